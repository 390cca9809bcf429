"""The command line in this process: what each command prints, and which code it ends with."""

import asyncio
import io
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rolloutfleet.broker import Broker
from rolloutfleet.cli import main
from rolloutfleet.redis import connect
from rolloutfleet.repair import purge as purge_run
from tests.fakes.broker import Fleet, group
from tests.fakes.worker import InstantWorker, complete, make_run

EXAMPLES = Path(__file__).parents[2] / "examples" / "prompts.jsonl"


@dataclass(frozen=True, slots=True)
class Place:
    """A run on a server, for synchronous tests: each call on a loop and a connection of its own."""

    url: str
    run: str

    def do[T](self, call: Callable[[Broker], Awaitable[T]]) -> T:
        async def connected() -> T:
            async with connect(self.url) as client:
                return await call(Broker(client, self.run))

        return asyncio.run(connected())

    def make(self) -> None:
        async def call(broker: Broker) -> None:
            await make_run(broker.client, self.run)

        self.do(call)

    def complete(self, *ids: str) -> None:
        self.do(lambda broker: complete(broker, *ids))

    def kill(self, *ids: str) -> None:
        """These groups become dead letters."""

        async def call(broker: Broker) -> None:
            await broker.submit([group(group_id) for group_id in ids])
            await InstantWorker(broker, rejects=dict.fromkeys(ids, "too long")).step(100)

        self.do(call)

    def finish(self) -> None:
        self.do(lambda broker: Fleet(broker).finish_all())

    def queued(self) -> int:
        return self.do(lambda broker: broker.queued())


@pytest.fixture
def place(redis_url: str, run: str, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A run that exists, and that the environment names."""
    monkeypatch.setenv("REDIS_URL", redis_url)
    monkeypatch.setenv("ROLLOUTFLEET_RUN", run)
    made = Place(redis_url, run)
    made.make()
    return made


type Out = pytest.CaptureFixture[str]


def printed(out: Out) -> Any:
    return json.loads(out.readouterr().out)


# Settings


def test_a_run_is_named_by_option_before_the_command(place: Place, out: Out, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("REDIS_URL")
    monkeypatch.delenv("ROLLOUTFLEET_RUN")
    assert main(["--redis-url", place.url, "--run", place.run, "status", "--json"]) == 0
    assert printed(out)["run"] == place.run


def test_a_run_is_named_by_option_after_the_command(place: Place, out: Out):
    assert main(["status", "--json", "--redis-url", place.url, "--run", place.run]) == 0
    assert printed(out)["run"] == place.run


def test_a_run_is_named_by_the_environment(place: Place, out: Out):
    assert main(["status", "--json"]) == 0
    assert printed(out)["run"] == place.run


def test_an_option_counts_more_than_the_environment(place: Place, out: Out, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ROLLOUTFLEET_RUN", "another")
    assert main(["--run", place.run, "status", "--json"]) == 0
    assert printed(out)["run"] == place.run


@pytest.fixture
def out(capsys: Out) -> Out:
    return capsys


@pytest.mark.parametrize("name", ["REDIS_URL", "ROLLOUTFLEET_RUN"])
@pytest.mark.usefixtures("place")
def test_a_setting_that_is_missing_is_named_with_the_mend(out: Out, monkeypatch: pytest.MonkeyPatch, name: str):
    monkeypatch.delenv(name)
    assert main(["status"]) == 2
    assert out.readouterr().err == f"rolloutfleet: {name} is not set: give it as an option or in the environment\n"


@pytest.mark.parametrize(
    ("url", "says"),
    [("nonsense", "redis://"), ("http://127.0.0.1", "redis://"), ("redis://127.0.0.1:port/0", "'port'")],
)
@pytest.mark.usefixtures("place")
def test_an_address_that_is_none_is_one_sentence(out: Out, url: str, says: str):
    assert main(["--redis-url", url, "status"]) == 2
    said = out.readouterr().err
    assert said.startswith("rolloutfleet: REDIS_URL: ")
    assert says in said


@pytest.mark.usefixtures("place")
def test_a_wrong_address_is_refused_without_its_password(out: Out):
    assert main(["--redis-url", "http://user:secret@host", "status"]) == 2
    assert "secret" not in out.readouterr().err


@pytest.mark.usefixtures("place")
def test_a_run_name_that_can_be_none_is_one_sentence(out: Out):
    assert main(["--run", "two words", "status"]) == 2
    said = out.readouterr().err
    assert "'two words'" in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    "command",
    [
        *(["status"], ["top"], ["pause"], ["resume"], ["repair"], ["purge", "--yes"], ["dead", "list"]),
        *(["consume", "--groups", "1"], ["submit", str(EXAMPLES)], ["dead", "requeue", "--all"]),
    ],
    ids=" ".join,
)
def test_a_run_that_is_not_there_is_told_which_runs_are(place: Place, out: Out, command: list[str]):
    assert main(["--run", f"{place.run}-mistyped", *command]) == 1
    said = out.readouterr().err.splitlines()[-1]
    assert said.startswith(f"rolloutfleet: there is no run '{place.run}-mistyped' (runs here: ")
    assert place.run in said.partition("runs here: ")[2]


def test_a_redis_that_is_away_is_one_sentence(place: Place, out: Out, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("rolloutfleet.commands._RETRY_SECONDS", 0.1)
    assert main(["--redis-url", "redis://127.0.0.1:1/0", "status"]) == 1
    assert "is it running, is the URL right?" in out.readouterr().err


# Making and steering a run


def test_configure_makes_a_run_and_prints_it(place: Place, out: Out):
    assert main(["--run", place.run, "configure", "--n", "4", "--sample-concurrency", "512", "--refill", "sample"]) == 0
    made = printed(out)
    assert (made["n"], made["sample_concurrency"], made["refill"]) == (4, 512, "sample")


def test_configure_changes_only_what_it_was_given(place: Place, out: Out):
    assert main(["configure", "--max-attempts", "2"]) == 0
    changed = printed(out)
    assert (changed["max_attempts"], changed["n"], changed["sample_concurrency"]) == (2, 2, 200)


def test_configure_only_missing_changes_nothing_that_the_run_has(place: Place, out: Out):
    before = place.do(lambda broker: broker.config())
    assert main(["configure", "--only-missing", "--n", "4", "--max-attempts", "2"]) == 0
    assert printed(out) == before.model_dump()


def test_configure_only_missing_makes_a_run_that_is_not_there(place: Place, out: Out):
    place.do(lambda broker: purge_run(broker))
    assert main(["configure", "--only-missing", "--n", "4"]) == 0
    assert printed(out)["n"] == 4


@pytest.mark.parametrize(
    ("option", "value"), [("--n", "0"), ("--refill", "sometimes"), ("--sample-concurrency", "many")]
)
@pytest.mark.usefixtures("place")
def test_a_wrong_setting_of_a_run_is_named_with_its_value(out: Out, option: str, value: str):
    assert main(["configure", option, value]) == 2
    said = out.readouterr().err
    assert option.removeprefix("--").replace("-", "_") in said
    assert repr(value) in said


@pytest.mark.usefixtures("place")
def test_a_setting_that_does_not_fit_those_of_the_run_is_refused(out: Out):
    assert main(["configure", "--retry-seconds", "100"]) == 2
    assert "retry_cap_seconds is shorter than retry_seconds" in out.readouterr().err


def test_a_paused_run_says_so_until_it_is_resumed(place: Place, out: Out):
    assert main(["pause"]) == 0
    assert main(["status"]) == 0
    assert "the run is paused" in out.readouterr().out
    assert main(["resume"]) == 0
    assert main(["status"]) == 0
    assert "no prompt group waits" in out.readouterr().out


@pytest.mark.usefixtures("place")
def test_repair_says_what_it_mended(out: Out):
    assert main(["repair"]) == 0
    assert printed(out) == {"groups": 0, "leases": 0, "samples": 0, "entries": 0}


def test_purge_deletes_a_run(place: Place, out: Out):
    place.complete("a")
    assert main(["purge", "--yes"]) == 0
    assert "keys deleted" in out.readouterr().err
    assert place.do(purge_run) == 0


@pytest.mark.parametrize(("answer", "code", "is_left"), [("n\n", 1, True), ("y\n", 0, False)])
def test_purge_asks_first(place: Place, monkeypatch: pytest.MonkeyPatch, answer: str, code: int, is_left: bool):
    monkeypatch.setattr("sys.stdin", io.StringIO(answer))
    assert main(["purge"]) == code
    assert bool(place.do(lambda broker: broker.config_fields())) is is_left


@pytest.mark.parametrize(
    "command",
    [["submit", "-", "--max-queued", "0"], ["consume", "--groups", "-1"], ["dead", "list", "--most", "many"]],
    ids=" ".join,
)
@pytest.mark.usefixtures("place")
def test_a_count_that_is_none_is_wrong_usage(out: Out, command: list[str]):
    with pytest.raises(SystemExit, match="2"):
        main(command)
    assert f"{command[-2]}: {command[-1]!r} is no count" in out.readouterr().err


# Submit


def write(path: Path, *lines: str | bytes) -> str:
    path.write_bytes(b"\n".join(line if isinstance(line, bytes) else line.encode() for line in lines))
    return str(path)


def test_real_rows_are_submitted_and_a_second_time_known(place: Place, out: Out, tmp_path: Path):
    rows = [json.loads(line) for line in EXAMPLES.read_text().splitlines()]
    lines = [
        json.dumps({"id": f"row-{number}", "prompt": row["question"], "label": row["answer"]})
        for number, row in enumerate(rows)
    ]
    file = write(tmp_path / "groups.jsonl", *lines)
    assert (main(["submit", file]), out.readouterr().err) == (0, f"{len(rows)} queued\n")
    assert (main(["submit", file]), out.readouterr().err) == (0, f"{len(rows)} known\n")
    place.do(lambda broker: Fleet(broker).configure(sample_concurrency=1000))
    place.finish()


def test_lines_that_are_no_prompt_groups_are_refused_by_number_and_the_others_go_in(
    place: Place, out: Out, tmp_path: Path
):
    bad = ['{"prompt": "a"}', "{", '{"question": "b"}', "", b'{"prompt": "\xff"}', '{"prompt": "\\ud800"}']
    file = write(tmp_path / "groups.jsonl", *bad, '{"prompt": "c", "n": 0}', '{"prompt": "d"}')
    assert main(["submit", file]) == 1
    said = out.readouterr().err.splitlines()
    assert [line.split(":")[0] for line in said[:-1]] == [f"line {number} is refused" for number in (2, 3, 5, 6, 7)]
    assert said[-1] == "2 queued"
    assert place.queued() == 2
    place.finish()


def test_a_file_that_is_not_there_is_one_sentence(place: Place, out: Out, tmp_path: Path):
    assert main(["submit", str(tmp_path / "missing.jsonl")]) == 1
    assert "missing.jsonl" in out.readouterr().err
    assert place.queued() == 0


@pytest.mark.usefixtures("place")
def test_an_empty_file_submits_nothing(out: Out, tmp_path: Path):
    assert main(["submit", write(tmp_path / "empty.jsonl")]) == 0
    assert out.readouterr().err == "nothing submitted\n"


# Consume


def test_completed_groups_become_lines_of_json_and_are_over(place: Place, out: Out, tmp_path: Path):
    place.complete("a", "b")
    file = tmp_path / "completed.jsonl"
    assert main(["consume", "--groups", "2", "--output", str(file)]) == 0
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [line["id"] for line in lines] == ["a", "b"]
    assert [len(line["samples"]) for line in lines] == [2, 2]
    shown = out.readouterr()
    assert (shown.out, shown.err.split("\r")[-1]) == ("", "2 groups taken\n")


def test_consume_appends_to_what_is_there(place: Place, tmp_path: Path):
    place.complete("a")
    file = tmp_path / "completed.jsonl"
    file.write_text('{"id": "before"}\n')
    assert main(["consume", "--groups", "1", "--output", str(file)]) == 0
    assert [json.loads(line)["id"] for line in file.read_text().splitlines()] == ["before", "a"]


def test_consume_takes_no_more_than_it_was_asked_for(place: Place, tmp_path: Path):
    place.complete("a", "b", "c")
    assert main(["consume", "--groups", "2", "--output", str(tmp_path / "some.jsonl")]) == 0
    assert place.do(lambda broker: Fleet(broker).take_and_ack()) == ["c"]


def test_consume_ends_when_none_came_for_a_while(place: Place, tmp_path: Path):
    place.complete("a")
    file = tmp_path / "completed.jsonl"
    assert main(["consume", "--seconds", "0.1", "--output", str(file)]) == 0
    assert len(file.read_text().splitlines()) == 1


def test_consume_says_by_its_code_that_fewer_came_than_it_was_to_take(place: Place, tmp_path: Path):
    place.complete("a")
    file = str(tmp_path / "completed.jsonl")
    assert main(["consume", "--groups", "2", "--seconds", "0.1", "--output", file]) == 1


# Status


def test_status_shows_the_run_as_a_person_reads_it(place: Place, out: Out):
    assert main(["status"]) == 0
    shown = out.readouterr().out
    assert shown.startswith(f"{place.run}: no prompt group waits"[:80])
    assert "window    100 groups (sample_concurrency 200, n 2, refill group)" in shown


@pytest.mark.usefixtures("place")
def test_status_is_data_when_asked(out: Out):
    assert main(["status", "--json"]) == 0
    assert printed(out).items() >= {"reason": "no_prompts", "window": 100, "workers": []}.items()


# Dead letters


@pytest.fixture
def letters(place: Place, out: Out) -> list[dict[str, Any]]:
    """Two dead letters, b the newer one."""
    place.kill("a", "b")
    assert main(["dead", "list", "--json"]) == 0
    return printed(out)


def test_dead_letters_are_listed_newest_first_with_their_reasons(letters: list[dict[str, Any]]):
    assert [(letter["id"], letter["reason"]) for letter in letters] == [("b", "too long"), ("a", "too long")]


def test_no_more_dead_letters_are_listed_than_asked(letters: list[dict[str, Any]], out: Out):
    assert main(["dead", "list", "--most", "1"]) == 0
    (line,) = out.readouterr().out.splitlines()
    assert line.split() == [letters[0]["entry"], "b", "1", "too", "long"]


@pytest.mark.usefixtures("place")
def test_a_run_without_dead_letters_says_so(out: Out):
    assert main(["dead", "list"]) == 0
    assert out.readouterr().out == "no dead letters\n"


def test_one_letter_is_shown_whole(letters: list[dict[str, Any]], out: Out):
    assert main(["dead", "show", letters[1]["entry"]]) == 0
    assert '{"id":"a","prompt":"question a"}' in out.readouterr().out
    assert main(["dead", "show", letters[1]["entry"], "--json"]) == 0
    assert printed(out) == letters[1]


@pytest.mark.usefixtures("place")
def test_a_letter_that_is_not_there_is_one_sentence(out: Out):
    assert main(["dead", "show", "1-1"]) == 1
    assert "there is no dead letter 1-1" in out.readouterr().err


@pytest.mark.usefixtures("place")
def test_an_entry_that_can_be_none_is_wrong_usage(out: Out):
    with pytest.raises(SystemExit, match="2"):
        main(["dead", "show", "yesterday"])
    assert "'yesterday' is no entry" in out.readouterr().err


def test_a_letter_is_requeued(place: Place, letters: list[dict[str, Any]], out: Out):
    assert main(["dead", "requeue", letters[0]["entry"], "1-1", "--json"]) == 0
    assert printed(out) == {letters[0]["entry"]: "ok", "1-1": "gone"}
    assert place.queued() == 1
    place.finish()


def test_all_letters_are_requeued(
    place: Place, letters: list[dict[str, Any]], out: Out, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("rolloutfleet.commands._PAGE", 1)
    assert main(["dead", "requeue", "--all"]) == 0
    assert out.readouterr().out == "".join(f"{letter['entry']}  ok\n" for letter in letters)
    assert place.queued() == 2
    place.finish()


@pytest.mark.parametrize("options", [[], ["--all", "1-1"]], ids=repr)
@pytest.mark.usefixtures("place")
def test_requeue_wants_either_entries_or_all(out: Out, options: list[str]):
    assert main(["dead", "requeue", *options]) == 2
    assert out.readouterr().err == "rolloutfleet: name the entries to requeue, or give --all\n"


# Doctor


def test_doctor_says_what_is_well_and_what_is_to_be_mended(place: Place, out: Out):
    assert main(["doctor", "--batch", "4"]) == 1
    said = out.readouterr().out.splitlines()
    assert (
        "mend  server: the append-only file is off: a restart of the server loses the run; set appendonly yes" in said
    )
    assert "ok    batch: a batch of 4 groups fits into the 199 that can wait" in said
    assert "mend  workers: no worker is alive: start some, and look at their logs" in said


@pytest.mark.usefixtures("place")
def test_doctor_is_data_when_asked(out: Out):
    assert main(["doctor", "--json"]) == 1
    assert {finding["what"]: finding["ok"] for finding in printed(out)} == {
        **{"server": False, "window": True, "workers": False, "dead letters": True}
    }
