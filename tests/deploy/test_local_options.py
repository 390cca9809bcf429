"""Options of the main job: what is refused, in which words, and what the processes are given."""

from pathlib import Path

import pytest

from deploy.__main__ import main as deploy
from deploy.local.cli import main
from deploy.local.fleet import engine_command, share, worker_commands
from deploy.local.options import read_settings
from deploy.local.settings import DEMO_GROUPS
from deploy.simulator.cli import main as simulator


@pytest.fixture(autouse=True)
def without_redis_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REDIS_URL", raising=False)


def test_a_wrong_address_is_refused_without_its_password(capsys: pytest.CaptureFixture[str]):
    assert main(["--redis-url", "http://user:secret@host"]) == 2
    assert "secret" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ("--n x", "--n: must be a valid integer"),
        ("--n 0", "--n: must be greater than or equal to 1"),
        ("--overcommit nan", "--overcommit: must be"),
        ("--sample-concurrency many", '--sample-concurrency: must be a valid integer, or "auto"'),
        ("--sample-concurrency 0", "--sample-concurrency: must be"),
        ("--refill both", "--refill: must be 'group' or 'sample'"),
        ("--engine foo", "--engine: must be an address like http://"),
        ("--engine http://h:1 --error-rate 0.1", "leave out --engine"),
        ("--engine http://h:1 --max-staleness 1", "--max-staleness: this trainer has no weights for real engines"),
        ("--max-staleness -1", "--max-staleness: must be greater than or equal to 0"),
        ("--workers 1", "--workers: 1 can't reach 2 engines: give 2"),
        ("--workers 9 --slots 4", "--workers: 9 share 8 slots"),
        ("--run a/b", "--run: must be letters"),
        ("--redis-url x:1", "--redis-url: must be an address like redis://"),
        ("--kill-every 0", "--kill-every: must be greater than 0"),
        ("--error-rate 2", "--error-rate must be in 0 to 1"),
        ("--error-rate q", "--error-rate: must be a valid number"),
        ("--die-after 0", "--die-after must be at least 1"),
        ("--lengths /no/such.csv", "--lengths: can't read /no/such.csv"),
        ("--prompts /no/such.jsonl", "--prompts: can't read /no/such.jsonl"),
        ("--output /no/such/file", "--output: can't write /no/such/file"),
        ("--summary /no/such/file", "--summary: can't write /no/such/file"),
        ("--logs /dev/null/logs", "--logs: can't make /dev/null/logs"),
    ],
)
def test_a_wrong_option_is_named_in_one_sentence(
    options: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(options.split()) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1


def test_an_option_that_does_not_exist_ends_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["--bogus"])
    assert "--bogus" in capsys.readouterr().err


@pytest.mark.parametrize(("argv", "code"), [([], 2), (["nothing"], 2), (["--help"], 0)])
def test_deploy_without_a_command_says_which_there_are(
    argv: list[str], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert deploy(argv) == code
    said = capsys.readouterr()
    assert "simulator" in said.out + said.err


def test_the_demo_has_a_fixed_size_and_a_file_of_ones_own_is_read_once(tmp_path: Path) -> None:
    assert read_settings([]).group_count == DEMO_GROUPS
    assert read_settings(["--prompts", str(tmp_path)]).group_count is None
    assert read_settings(["--prompts", str(tmp_path), "--groups", "7"]).group_count == 7


def test_redis_url_comes_from_the_environment_unless_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDIS_URL", "redis://there:1")
    assert read_settings([]).redis_url == "redis://there:1"
    assert read_settings(["--redis-url", "redis://here:1"]).redis_url == "redis://here:1"


def test_overcommit_is_a_factor_here_and_permille_in_the_run() -> None:
    assert read_settings(["--overcommit", "1.5"]).run_config().overcommit == 1500


@pytest.mark.parametrize(
    ("slots", "workers", "engines", "shares"),
    [(32, 2, 2, [32, 32]), (32, 4, 2, [16, 16, 16, 16]), (10, 3, 1, [4, 3, 3]), (10, 3, 2, [5, 10, 5])],
)
def test_workers_beside_one_engine_share_its_slots(slots: int, workers: int, engines: int, shares: list[int]) -> None:
    assert [share(slots, workers, engines, number) for number in range(workers)] == shares


def test_workers_go_round_the_engines_and_listen_on_loopback_only() -> None:
    settings = read_settings(["--workers", "3", "--drain-seconds", "7"])
    variables = [command.environment for command in worker_commands(settings, ["http://a", "http://b"], {"X": "y"})]
    assert [one["ROLLOUTFLEET_ENGINE_URL"] for one in variables] == ["http://a", "http://b", "http://a"]
    assert [one["ROLLOUTFLEET_POD"] for one in variables] == ["worker-1", "worker-2", "worker-3"]
    assert variables[0]["ROLLOUTFLEET_PROBE_HOST"] == "127.0.0.1"
    assert (variables[0]["ROLLOUTFLEET_DRAIN_SECONDS"], variables[0]["X"]) == ("7.0", "y")


def test_simulated_engines_are_given_what_was_asked_for(tmp_path: Path) -> None:
    settings = read_settings(["--speed", "900", "--error-rate", "0.1", "--die-after", "5", "--seed", "3"])
    command = engine_command(settings, "engine-1", 1234, tmp_path / "answers.jsonl")
    given = dict(zip(command.arguments[1::2], command.arguments[2::2], strict=True))
    assert (given["--speed"], given["--error-rate"], given["--seed"], given["--port"]) == ("900.0", "0.1", "3", "1234")
    assert given["--answers"] == str(tmp_path / "answers.jsonl")
    assert command.once == ("--die-after", "5")


def test_the_simulator_knows_every_option_that_it_is_given(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = read_settings(["--error-rate", "0.1", "--slow-factor", "2", "--die-after", "5"])
    command = engine_command(settings, "engine-1", 0, tmp_path / "nothing.jsonl")
    assert simulator([*command.arguments[1:], *command.once]) == 2
    assert "nothing.jsonl" in capsys.readouterr().err
