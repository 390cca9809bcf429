"""docs/operations.md speaks of what there is."""

import re
from pathlib import Path

import yaml

from tests.helm.render import ci_modes
from tests.helm.values import CHART, described, read_values

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "operations.md").read_text()


def test_every_alert_is_explained():
    groups = yaml.safe_load((CHART / "files" / "alerts.yaml").read_text())["groups"]
    alerts = {rule["alert"] for group in groups for rule in group["rules"]}
    assert set(re.findall(r"^\| (Rolloutfleet\w+) \|", TEXT, re.MULTILINE)) == alerts


def test_every_value_that_is_named_exists():
    tops = "|".join(read_values())
    named = set(re.findall(rf"`({tops})((?:\.\w+)+)", TEXT)) | set(re.findall(rf"[ ,]({tops})((?:\.\w+)+)=", TEXT))
    known = [value.path for value in described()]
    unknown = {top + rest for top, rest in named if not any(_covers(path, top + rest) for path in known)}
    assert unknown == set()


def _covers(path: str, name: str) -> bool:
    """A value, a part above one, or a field of one that is a map."""
    return path == name or path.startswith(f"{name}.") or name.startswith(f"{path}.")


def test_every_file_of_values_has_a_line_that_says_what_it_is():
    first = {mode: (CHART / "ci" / f"{mode}-values.yaml").read_text().splitlines()[0] for mode in ci_modes()}
    assert [mode for mode, line in first.items() if not line.startswith("# ")] == []
