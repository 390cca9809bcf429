"""The measurements run and write what `--json` promises. What they measure is not judged here."""

import json
from pathlib import Path

import pytest

from bench.__main__ import main
from bench.makespan import list_schedule
from bench.rows import Target, at_least, at_most, near


@pytest.mark.parametrize("name", ["codec", "throughput", "roundtrips"])
def test_a_measurement_prints_its_table_and_writes_its_rows(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    file = tmp_path / "bench.json"
    assert main([name, "--quick", "--json", str(file)]) == 0
    (table,) = json.loads(file.read_text())
    assert table["bench"] == name
    assert any(row["holds"] in (True, False) for row in table["rows"])
    assert all(row["what"] in capsys.readouterr().out for row in table["rows"][:1])


def test_an_unknown_measurement_is_named_with_those_that_there_are(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit, match="2"):
        main(["speed"])
    assert "'speed': choose from slots" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("target", "holds", "fails"), [(at_least(2), 2.0, 1.9), (at_most(2), 2.0, 2.1), (near(1, 0.05), 0.96, 1.06)]
)
def test_a_target_holds_up_to_its_bound(target: Target, holds: float, fails: float):
    assert (target.holds(holds), target.holds(fails)) == (True, False)


def test_a_list_schedule_gives_each_sample_to_the_slot_that_is_free_first():
    assert list_schedule([4.0, 1.0, 2.0, 2.0], 2) == 5.0
