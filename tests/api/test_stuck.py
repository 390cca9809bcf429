"""The watchdog: when it speaks, when it doesn't, and what it names as the cause."""

import pytest

from rolloutfleet.status import Status
from rolloutfleet.stuck import Cause, Held, Watch, judge, quiet_seconds, watch
from tests.api.made import status, worker

STUCK_SECONDS = 600.0


def watched(*looks: tuple[float, Status]) -> Watch:
    found: Watch | None = None
    for at, seen in looks:
        found = watch(found, seen, at)
    assert found is not None
    return found


def cause(seen: Status, before: Status | None = None, held: Held | None = None) -> Cause | None:
    """What is said ten minutes after `before`."""
    found = watched((0.0, before or seen), (STUCK_SECONDS, seen))
    verdict = judge(found, seen, STUCK_SECONDS, STUCK_SECONDS, held)
    return verdict.cause if verdict else None


def test_a_run_that_completes_nothing_for_long_enough_is_stuck():
    assert cause(status()) is not None


def test_a_run_is_not_stuck_before_that():
    found = watched((0.0, status()), (599.0, status()))
    assert judge(found, status(), 599.0, STUCK_SECONDS, None) is None


def test_a_completion_begins_the_time_anew():
    found = watched((0.0, status()), (500.0, status(stats={"completed": 1})))
    assert quiet_seconds(found, 600.0) == 100


def test_a_run_without_work_is_never_stuck():
    assert cause(status(prompts=0, window={"active": 0, "outstanding": 0})) is None


def test_the_last_group_that_does_not_end_is_work():
    assert cause(status(prompts=0, window={"active": 1})) is not None


@pytest.mark.parametrize("window", [{"paused": True}, {"waiting": 8}], ids=["paused", "the trainer is full"])
def test_a_run_that_somebody_holds_is_not_stuck(window: dict[str, int]):
    assert cause(status(window=window)) is None


def test_a_full_window_in_which_nothing_ends_is_stuck():
    assert cause(status(window={"active": 8})) is not None


def test_work_that_comes_after_a_long_rest_has_its_own_time():
    rest = status(prompts=0, window={"active": 0})
    found = watched((0.0, rest), (900.0, rest), (1000.0, status()))
    assert quiet_seconds(found, 1010.0) == 10


def test_a_run_without_workers_says_so():
    assert cause(status(workers=[])) == "no_workers"


def test_workers_that_all_drain_are_the_cause():
    assert cause(status(workers=[worker(draining=True)])) == "workers_draining"


def test_engines_that_are_not_ready_are_the_cause():
    assert cause(status(workers=[worker(state="engine_down"), worker("b/1", state="starting")])) == "engines_not_ready"


def test_one_ready_worker_clears_the_engines():
    assert cause(status(workers=[worker(state="engine_down"), worker("b/1")])) == "unknown"


def test_attempts_that_fail_again_and_again_are_the_cause():
    assert cause(status(stats={"released:fail": 9, "reaped": 2}), status(stats={"released:fail": 8})) == "all_retries"


def test_failures_from_before_do_not_count():
    assert cause(status(stats={"released:fail": 50})) == "unknown"


def test_a_filter_that_drops_everything_is_the_cause():
    assert cause(status(stats={"dropped": 40}), status()) == "all_dropped"


def test_a_group_that_is_held_for_long_is_named():
    verdict = judge(watched((0.0, status())), status(), 700.0, STUCK_SECONDS, Held("q-7", "pod/1", 690.0))
    assert verdict is not None
    assert (verdict.cause, verdict.group) == ("slow_group", "q-7")


def test_the_sentence_says_how_long_and_why():
    verdict = judge(watched((0.0, status())), status(), 700.0, STUCK_SECONDS, Held("q-7", "pod/1", 660.0))
    assert verdict is not None
    assert verdict.sentence == "no group was completed for 12 min: group q-7 has been held by pod/1 for 11 min"
