"""A run as lines of text: the gate first, nothing wider than a terminal, nothing made up."""

from dataclasses import replace
from typing import Any

import pytest

from rolloutfleet import RunConfig
from rolloutfleet.policy import Policy
from rolloutfleet.status import Status, WorkerStatus
from rolloutfleet.view import bar, duration, lines
from rolloutfleet.window import Window

WINDOW = Window(samples=512, n=8, active=32, outstanding=200, waiting=16, taken=4)
WORKER = WorkerStatus("pod-1/1000", 32, 55.0, {"state": "ready", "busy": 8, "held": 4}, draining=False)
STATUS = Status(
    run="math",
    config=RunConfig(sample_concurrency=512, n=8),
    window=WINDOW,
    prompts=1000,
    again=2,
    again_seconds=0.0,
    dead=3,
    stats={"completed": "20", "acked": "15", "behind:open": "1000", "behind:completed_full": "3000"},
    gate="open",
    gate_seconds=180.0,
    workers=[WORKER],
)


def shown(**changes: Any) -> str:
    return "\n".join(lines(replace(STATUS, **changes)))


def test_the_first_line_says_why_and_since_when():
    assert lines(STATUS)[0] == "math: the window is open (for 3 min)"


def test_weights_are_shown_with_who_serves_them():
    policy = Policy(7, "/w/7", "step 8", "drain")
    serving = replace(WORKER, facts={**WORKER.facts, "weight_version": "7"})
    stats = {"slot_ms": "1000", "updating_ms": "12"}
    status = replace(STATUS, policy=policy, workers=[WORKER, serving], stats=stats)
    (line,) = [line for line in lines(status, 200) if line.startswith("weights")]
    assert line == "weights   version 7 (step 8), drain, on 1 of 2 workers; 1.2% of the slots' time stood for updates"


def test_without_a_publication_there_is_no_line_of_weights():
    assert "weights" not in shown()


def test_a_gate_that_is_not_the_reason_of_now_has_no_time():
    assert lines(replace(STATUS, gate="active_full"))[0] == "math: the window is open"


def test_a_gate_that_was_never_asked_has_no_time():
    assert lines(replace(STATUS, gate_seconds=None))[0] == "math: the window is open"


def test_the_window_is_told_in_groups_with_where_it_comes_from():
    assert "window    64 groups (sample_concurrency 512, n 8, refill group)" in shown()


def test_active_and_waiting_are_pictures_of_the_window():
    assert f"active    {'#' * 30}{'.' * 30} 32/64" in shown()
    assert f"waiting   {'#' * 15}{'.' * 45} 16/64" in shown()


def test_the_queues_are_counted():
    assert "1000 queued, 2 again, 4 taken, 20 completed, 15 trained, 3 dead" in shown()


def test_the_time_behind_each_reason_is_a_share_largest_first():
    assert "gate      completed_full 75%, open 25%" in shown()


def test_a_run_whose_gate_was_never_asked_says_so():
    assert "gate      no claim yet" in shown(stats={})


def test_a_worker_shows_its_state_and_its_busy_slots():
    assert "workers   1, slots ########...................... 8/32" in shown()
    assert "pod-1/1000" in shown()
    assert "ready" in shown()


def test_a_draining_worker_shows_that():
    assert "draining" in shown(workers=[replace(WORKER, draining=True)])


def test_a_worker_that_does_not_claim_shows_the_whole_reason():
    reason = (
        "version 5 is not loaded from /weights/step-5: /weights/step-5/config.json was changed after it was published"
    )
    failed = replace(WORKER, facts={**WORKER.facts, "state": "weights_failed", "reason": reason})
    (line,) = [line for line in lines(replace(STATUS, workers=[failed])) if line.startswith("  pod-1")]
    assert "weights_failed" in line
    assert line.endswith(f"4 groups; {reason}")


def test_a_worker_that_told_nothing_of_itself_is_unknown():
    assert "unknown" in shown(workers=[replace(WORKER, facts={})])
    assert "? groups" in shown(workers=[replace(WORKER, facts={})])


def test_without_workers_it_says_so():
    assert "workers   none is alive" in shown(workers=[])


@pytest.mark.parametrize("width", [20, 60, 80, 200])
def test_no_line_is_wider_than_the_terminal(width: int):
    assert max(len(line) for line in lines(replace(STATUS, run="m" * 100), width)) <= width


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [(0, 4, "...."), (1, 4, "#..."), (4, 4, "####"), (9, 4, "####"), (1, 0, "....")],
)
def test_a_bar_is_filled_by_its_share_and_never_beyond(part: int, whole: int, text: str):
    assert bar(part, whole, 4) == text


@pytest.mark.parametrize(("seconds", "text"), [(0, "0 s"), (119, "119 s"), (120, "2 min"), (7200, "2 h")])
def test_a_duration_is_told_in_the_unit_a_person_would_use(seconds: float, text: str):
    assert duration(seconds) == text
