"""A whole fleet on real engines: deploy local with text prompts, killed workers, paused engines. Nothing is lost."""

import json
import math
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
URLS = os.environ.get("ROLLOUTFLEET_ENGINE_URLS", "").split()
GROUPS, N, LONGEST = 40, 4, 96
PATIENCE_SECONDS = 240
SLOW_STEP_SECONDS = 0.02

pytestmark = [
    pytest.mark.skipif(not URLS, reason="needs real engines: make test-engine starts them"),
    pytest.mark.timeout(PATIENCE_SECONDS + 60),
]

type Json = dict[str, Any]


def post(url: str, path: str, body: Json) -> None:
    request = urllib.request.Request(url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60):
        pass


def status(url: str, path: str) -> int:
    try:
        with urllib.request.urlopen(url + path, timeout=60) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


def running(url: str) -> int:
    with urllib.request.urlopen(url + "/v1/loads", timeout=60) as answer:
        return json.load(answer)["loads"][0]["num_running_reqs"]


def until(fact: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while not fact():
        assert time.monotonic() < end
        time.sleep(0.05)


@contextmanager
def job(folder: Path, *options: str) -> Generator[subprocess.Popen[str]]:
    """`deploy local` on all engines, with a reward that follows from the sample."""
    engines = [word for url in URLS for word in ("--engine", url)]
    sizes = ("--groups", str(GROUPS), "--n", str(N), "--max-new-tokens", str(LONGEST), "--slots", "16", "--batch", "8")
    files = ("--output", str(folder / "groups.jsonl"), "--summary", str(folder / "summary.json"))
    rest = ("--train-seconds", "0", "--no-live", "--no-api", "--reward", "tests.engine.hooks:length")
    command = [sys.executable, "-m", "deploy", "local", *engines, *sizes, *files, *rest, *options]
    environment = {name: value for name, value in os.environ.items() if name != "REDIS_URL"}
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def finish(process: subprocess.Popen[str], folder: Path) -> tuple[Json, list[Json]]:
    """The summary and the completed groups."""
    out, _ = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, out
    summary = json.loads((folder / "summary.json").read_text())
    # Random bytes of a random model are line separators, too: str.splitlines would cut at them.
    lines = (folder / "groups.jsonl").read_text().split("\n")[:-1]
    return summary, [json.loads(line) for line in lines]


def counts(summary: Json) -> list[int]:
    return [summary[name] for name in ("submitted", "completed", "dead", "lost", "doubled", "unfinished")]


def faults_of(sample: Json) -> Sequence[str]:
    """What a trainer would stumble over."""
    (ids,), (logprobs,) = sample["ids"], sample["logprobs"]
    checks = {
        "lengths differ": len(ids) == len(logprobs) == sample["length"],
        "no tokens, or too many": 1 <= len(ids) <= LONGEST,
        "an id is outside of the vocabulary": all(0 <= token < 512 for token in ids),
        "a log-probability is none": all(math.isfinite(x) and x <= 0 for x in logprobs),
        "ended before its budget without a reason": sample["finish"] == "stop" or len(ids) == LONGEST,
        "the reward is another sample's": sample["reward"] == len(ids),
    }
    return [name for name, holds in checks.items() if not holds]


def assert_whole(summary: Json, groups: Sequence[Json]) -> None:
    """Every group once, with n sound samples."""
    assert counts(summary) == [GROUPS, GROUPS, 0, 0, 0, 0]
    assert {group["id"] for group in groups} == {f"epoch-1-line-{line}" for line in range(1, GROUPS + 1)}
    assert {len(group["samples"]) for group in groups} == {N}
    assert [faults_of(sample) for group in groups for sample in group["samples"]] == [[]] * (GROUPS * N)


@pytest.fixture
def slow() -> Iterator[None]:
    """Engines slow enough that something can happen in the middle of a run; whatever a test did to them is undone."""
    for url in URLS:
        post(url, "/slow_down", {"forward_sleep_time": SLOW_STEP_SECONDS})
    yield
    for url in URLS:
        post(url, "/slow_down", {"forward_sleep_time": None})
        post(url, "/continue_generation", {})
        until(lambda url=url: status(url, "/health") == 200)


def test_a_fleet_on_real_engines_completes_every_group(tmp_path: Path) -> None:
    with job(tmp_path) as process:
        summary, groups = finish(process, tmp_path)
    assert_whole(summary, groups)
    assert (summary["samples_made"], summary["samples_made_again"]) == (GROUPS * N, 0)


@pytest.mark.usefixtures("slow")
def test_killed_workers_lose_nothing_and_no_finished_sample_is_made_again(tmp_path: Path) -> None:
    with job(tmp_path, "--kill-every", "5") as process:
        summary, groups = finish(process, tmp_path)
    assert summary["worker_kills"] >= 1
    assert_whole(summary, groups)
    assert (summary["samples_made"], summary["samples_made_again"]) == (GROUPS * N, 0)


@pytest.mark.usefixtures("slow")
@pytest.mark.parametrize("mode", ["retract", "abort"])
def test_an_engine_that_pauses_and_goes_on_loses_nothing(tmp_path: Path, mode: str) -> None:
    url = URLS[0]
    with job(tmp_path) as process:
        until(lambda: running(url) > 0 or process.poll() is not None)
        post(url, "/pause_generation", {"mode": mode})
        until(lambda: status(url, "/health") == 503)
        assert process.poll() is None
        post(url, "/continue_generation", {})
        summary, groups = finish(process, tmp_path)
    assert_whole(summary, groups)
    assert (summary["samples_made"], summary["samples_made_again"]) == (GROUPS * N, 0)
