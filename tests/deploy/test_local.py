"""The main job as a process: broker, engines, workers and trainer for real, on a small scale."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PATIENCE_SECONDS = 120
FAST = ("--no-live", "--train-seconds", "0", "--batch", "5", "--n", "4", "--speed", "5000")
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "REDIS_URL"}


@contextmanager
def job(*options: str) -> Generator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "deploy", "local", *FAST, *options]
    with subprocess.Popen(
        command, cwd=ROOT, env=ENVIRONMENT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=PATIENCE_SECONDS)
    return process.returncode, out, err


def run(folder: Path, *options: str) -> tuple[dict[str, Any], str]:
    """The summary and what was printed."""
    with job("--summary", str(folder / "summary.json"), *options) as process:
        code, out, err = finish(process)
    assert (code, err) == (0, "")
    return json.loads((folder / "summary.json").read_text()), out


def descendants(pid: int) -> list[int]:
    found: list[int] = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):  # it ended meanwhile
            continue
        if parent == pid:
            found.append(int(path.parent.name))
    return found


def until(fact: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while not fact():
        assert time.monotonic() < end
        time.sleep(0.02)


def is_gone(pid: int) -> bool:
    """Whether a process has ended; one that nobody has waited for yet has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def wait_for_samples(process: subprocess.Popen[str]) -> list[int]:
    """Reads until samples were made; the processes that run then."""
    assert process.stdout is not None
    for line in process.stdout:
        if " samples, " in line and " 0 samples, " not in line:
            return descendants(process.pid)
    raise AssertionError("the job ended before it made a sample")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str, Path]:
    """One plain run of 20 groups: its summary, what it printed, and its folder."""
    folder = tmp_path_factory.mktemp("run")
    summary, out = run(folder, "--groups", "20", "--output", str(folder / "groups.jsonl"))
    return summary, out, folder


def test_every_group_comes_once(finished: tuple[dict[str, Any], str, Path]) -> None:
    summary, _, _ = finished
    names = ("submitted", "completed", "dead", "lost", "doubled", "unfinished", "samples_made", "samples_made_again")
    assert [summary[name] for name in names] == [20, 20, 0, 0, 0, 0, 80, 0]


def test_the_window_holds(finished: tuple[dict[str, Any], str, Path]) -> None:
    summary, _, _ = finished
    assert summary["window"] == 16
    assert 1 <= summary["most_active"] <= 16


def test_what_was_measured_is_plausible(finished: tuple[dict[str, Any], str, Path]) -> None:
    summary, _, _ = finished
    assert 0 < summary["ideal_seconds"] < summary["makespan_seconds"] < summary["seconds"]
    assert 0 < summary["utilisation"] <= 1
    assert 0 < summary["utilisation_bound"] <= 1
    assert 0.1 < summary["mean_reward"] < 0.9
    assert sum(summary["seconds_behind"].values()) > 0


def test_completed_groups_are_written_as_json_lines(finished: tuple[dict[str, Any], str, Path]) -> None:
    _, _, folder = finished
    groups = [json.loads(line) for line in (folder / "groups.jsonl").read_text().splitlines()]
    assert {group["id"] for group in groups} == {f"epoch-1-line-{line}" for line in range(1, 21)}
    assert all(len(group["samples"]) == 4 for group in groups)


def test_plain_lines_tell_progress_and_the_table_ends_it(finished: tuple[dict[str, Any], str, Path]) -> None:
    _, out, _ = finished
    assert "/20 groups, " in out
    assert "20 completed, 0 dead, 0 lost, 0 doubled" in out
    assert "\x1b" not in out


def test_a_trainer_that_bears_no_staleness_is_given_none(tmp_path: Path) -> None:
    summary, _ = run(tmp_path, "--groups", "20", "--max-staleness", "0", "--no-api")
    assert (summary["completed"], summary["lost"], summary["staleness"]["max"]) == (20, 0, 0)
    assert "pace" in summary["seconds_behind"]


def test_killed_workers_lose_nothing(tmp_path: Path) -> None:
    # At this speed the engines alone take six seconds: the first kill finds work on the fastest machine, too.
    options = ("--groups", "40", "--speed", "80", "--sigma", "0.3", "--kill-every", "3", "--workers", "3")
    summary, out = run(tmp_path, *options)
    assert summary["worker_kills"] >= 1
    assert [summary[name] for name in ("completed", "dead", "lost", "doubled")] == [40, 0, 0, 0]
    assert ": kill -9, started again" in out


def test_an_engine_that_dies_is_started_again_and_a_bad_line_is_told(tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"question": "1 + 1?", "answer": "#### 2"}\n{\n{"question": "2 + 2?", "answer": "#### 4"}\n')
    options = ("--prompts", str(prompts), "--groups", "12", "--die-after", "10", "--refill", "sample")
    summary, out = run(tmp_path, *options)
    assert [summary[name] for name in ("completed", "lost", "doubled", "bad_lines", "deaths")] == [12, 0, 0, 1, 2]
    assert "left out: line 2: not JSON" in out
    assert "engine-1 died (SIGKILL): started again" in out


def test_ctrl_c_drains_and_leaves_no_process() -> None:
    with job("--groups", "1000", "--speed", "100", "--drain-seconds", "1") as process:
        children = wait_for_samples(process)
        process.send_signal(signal.SIGINT)
        code, out, _ = finish(process)
    assert code == 130
    assert len(children) == 6  # broker, two engines, two workers, status service
    assert all(is_gone(child) for child in children)
    assert " 0 lost, 0 doubled" in out


def test_the_status_page_that_it_names_shows_its_run() -> None:
    with job("--groups", "1000", "--speed", "100") as process:
        assert process.stdout is not None
        said = (line for line in process.stdout if line.startswith("status page "))
        address = next(said).split()[-1]
        until(lambda: is_shown(f"{address}status"))


def is_shown(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            runs = json.loads(answer.read())["runs"]
    except OSError:  # it starts
        return False
    return any(run["name"].startswith("local-") and run["workers"] for run in runs)


def test_processes_die_with_a_job_that_is_killed() -> None:
    with job("--groups", "1000", "--speed", "100") as process:
        children = wait_for_samples(process)
        process.kill()
        process.wait()
        until(lambda: all(is_gone(child) for child in children))


def test_a_worker_that_can_not_start_ends_the_job_with_its_words() -> None:
    with job("--reward", "no_such_module:reward") as process:
        code, _, err = finish(process)
    assert code == 1
    assert "no_such_module" in err
    assert "Traceback" not in err
