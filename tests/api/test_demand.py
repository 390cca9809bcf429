"""How many workers a run can use: when the number grows, when it shrinks, and that it stays within its bounds."""

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rolloutfleet.demand import Bounds, Demand, desired_workers
from rolloutfleet.window import Reason, Window

FULL = Demand(
    window=Window(samples=64, n=8, active=4, outstanding=32),
    is_auto=False,
    reason=Reason.OPEN,
    queued=100,
    workers=4,
    slots=32,
    busy_now=32,
    busy=30.0,
    slack=0.0,
)


def wanted(**changes: Any) -> int:
    return desired_workers(replace(FULL, **changes))[0]


def test_it_grows_while_prompts_wait_and_all_slots_are_busy():
    assert wanted() == 8


def test_it_grows_no_further_than_the_window_gives_work_to():
    assert wanted(window=Window(samples=40, n=8, active=4, outstanding=32)) == 5


def test_a_window_that_follows_the_slots_does_not_bound_the_growth():
    assert (
        wanted(window=Window(samples=32, n=8, active=4, outstanding=32), is_auto=True, reason=Reason.ACTIVE_FULL) == 8
    )


def test_it_grows_no_further_than_the_prompts_that_wait():
    assert wanted(queued=1) == 5


def test_it_at_most_doubles_until_the_new_workers_are_there():
    assert wanted(window=Window(samples=10_000, n=8, active=4, outstanding=32), queued=1000) == 8


def test_it_does_not_grow_while_slots_idle():
    assert wanted(busy_now=16) == 4


def test_it_does_not_grow_on_slots_that_nobody_reports():
    assert wanted(busy_now=None) == 4


def test_slots_that_idle_behind_slow_samples_are_taken():
    full = Window(samples=32, n=8, active=4, outstanding=10)
    assert wanted(window=full, is_auto=True, reason=Reason.ACTIVE_FULL, busy_now=10) == 8


def test_workers_whose_places_are_full_want_others():
    assert wanted(reason=Reason.BUSY, busy_now=20) == 8


def test_it_does_not_grow_in_the_short_whiles_between_waits_for_the_trainer():
    assert wanted(slack=0.6, busy=12.0) == 4


def test_it_shrinks_no_more_because_of_one_open_moment():
    waits = wanted(reason=Reason.COMPLETED_FULL, slack=0.6, busy=12.0, busy_now=8)
    assert wanted(reason=Reason.OPEN, slack=0.6, busy=12.0, busy_now=8) == waits == 2


def test_a_full_fixed_window_wants_no_more_workers_and_says_why():
    number, reason = desired_workers(
        replace(FULL, window=Window(samples=32, n=8, active=4, outstanding=32), reason=Reason.ACTIVE_FULL)
    )
    assert number == 4
    assert "the window or the line holds no work for more" in reason


def test_prompts_without_a_worker_want_one():
    assert wanted(workers=0, slots=0, busy_now=None, reason=Reason.NO_CAPACITY) == 1


def test_it_shrinks_to_what_was_busy_when_the_trainer_is_the_bottleneck():
    assert wanted(reason=Reason.COMPLETED_FULL, slack=0.7, busy=10.0, busy_now=8) == 2


def test_it_does_not_grow_while_the_trainer_sets_the_pace():
    number, reason = desired_workers(replace(FULL, reason=Reason.PACE))
    assert number == FULL.workers
    assert "max_staleness" in reason


def test_it_does_not_shrink_before_the_cool_down():
    assert wanted(reason=Reason.COMPLETED_FULL, slack=None, busy=None, busy_now=0) == 4


def test_it_does_not_shrink_for_a_short_rest():
    assert wanted(reason=Reason.NO_PROMPTS, slack=0.2, busy=10.0, busy_now=0, queued=0) == 4


def test_a_run_without_work_shrinks_to_the_least():
    idle = Window(samples=64, n=8)
    assert wanted(reason=Reason.NO_PROMPTS, slack=1.0, busy=0.0, busy_now=0, queued=0, window=idle) == 1


def test_the_least_may_be_none_at_all():
    idle = Window(samples=64, n=8)
    assert (
        wanted(reason=Reason.NO_PROMPTS, slack=1.0, busy=0.0, busy_now=0, queued=0, window=idle, bounds=Bounds(least=0))
        == 0
    )


def test_workers_that_hold_work_now_are_kept():
    assert wanted(reason=Reason.NO_PROMPTS, slack=1.0, busy=1.0, busy_now=24, queued=0) == 3


def test_a_paused_run_keeps_its_workers():
    assert wanted(reason=Reason.PAUSED, slack=1.0, busy=0.0) == 4


def test_a_bound_that_holds_is_said():
    number, reason = desired_workers(replace(FULL, bounds=Bounds(most=5)))
    assert number == 5
    assert "held at the most of 5" in reason


demands = st.builds(
    Demand,
    window=st.builds(
        Window,
        samples=st.integers(0, 500),
        n=st.integers(1, 16),
        active=st.integers(0, 100),
        outstanding=st.integers(0, 800),
    ),
    is_auto=st.booleans(),
    reason=st.sampled_from(Reason),
    queued=st.integers(0, 1000),
    workers=st.integers(0, 50),
    slots=st.integers(0, 500),
    busy_now=st.none() | st.integers(0, 500),
    busy=st.none() | st.floats(0, 500),
    slack=st.none() | st.floats(0, 1),
    bounds=st.builds(Bounds, least=st.integers(0, 3), most=st.integers(3, 60)),
)


@given(demands)
def test_every_answer_lies_within_the_bounds_and_has_a_reason(state: Demand):
    number, reason = desired_workers(state)
    assert state.bounds.least <= number <= state.bounds.most
    assert reason


@given(demands.filter(lambda state: state.workers <= state.bounds.most))
def test_unknown_slack_never_shrinks(state: Demand):
    assert desired_workers(replace(state, slack=None))[0] >= state.workers
