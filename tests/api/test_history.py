"""Rates and shares over a span: what is not known is None, what went back is not mixed, gaps don't stretch a span."""

import pytest

from rolloutfleet.history import COARSE_POINTS, FINE_POINTS, History, growth, point_of, whole_run
from rolloutfleet.window import Reason
from tests.api.made import NOW_MS, point, status, worker


def seconds_of(number: int, groups_each: int = 2, start: int = 0) -> History:
    history = History()
    for second in range(start, start + number):
        history.add(point(float(second), completed=second * groups_each))
    return history


def test_a_rate_is_what_was_counted_per_second():
    assert seconds_of(61).rate("completed", 60) == pytest.approx(2)


def test_a_process_younger_than_the_span_knows_no_rate():
    assert seconds_of(59).rate("completed", 60) is None


def test_a_process_without_a_look_knows_no_rate():
    assert History().rate("completed", 60) is None


def test_what_nobody_counts_has_no_rate():
    assert seconds_of(61).rate("tokens", 60) is None


def test_a_counter_that_appears_in_the_span_began_at_zero():
    then, now = point(0.0), point(10.0, tokens=50)
    assert growth(then, now, "tokens") == pytest.approx(5)


def test_a_rate_over_an_hour_comes_from_the_coarse_points():
    history = seconds_of(3611)
    assert history.rate("completed", 3600) == pytest.approx(2)


def test_points_are_kept_for_an_hour_and_no_longer():
    history = seconds_of(5000)
    assert (len(history.fine), len(history.coarse)) == (FINE_POINTS, COARSE_POINTS)


def test_a_gap_makes_a_short_span_unknown_rather_than_long():
    history = seconds_of(100)
    history.add(point(700.0, completed=1000))
    assert history.rate("completed", 60) is None


def test_a_run_made_anew_begins_a_history_of_its_own():
    history = seconds_of(61)
    history.add(point(61.0, epoch="2", completed=0))
    assert len(history.fine) == 1


def test_counters_that_went_back_begin_a_history_of_its_own():
    history = seconds_of(61)
    history.add(point(61.0, completed=5))
    assert history.rate("completed", 60) is None


def test_shares_are_of_the_observed_time_and_sum_to_one():
    history = History()
    history.add(point(0.0, behind={"open": 1000}))
    history.add(point(300.0, behind={"open": 51_000, "completed_full": 150_000}))
    spent = history.spent(300)
    assert spent is not None
    assert spent.shares == {"completed_full": 0.75, "open": 0.25}


def test_time_in_which_nobody_asked_is_not_observed():
    history = History()
    history.add(point(0.0, behind={"open": 1000}))
    history.add(point(300.0, behind={"open": 101_000}))
    spent = history.spent(300)
    assert spent is not None
    assert (spent.seconds, spent.observed_seconds) == (300, 100)


def test_without_a_claim_the_shares_are_empty():
    history = History()
    history.add(point(0.0))
    history.add(point(300.0))
    spent = history.spent(300)
    assert spent is not None
    assert spent.shares == {}


def test_the_time_since_the_last_claim_counts_for_the_reason_that_held_then():
    seen = status(stats={"behind:open": 7000}, gate="open", state={"gate_at": str(NOW_MS - 2000)})
    assert point_of(seen, 1.0).behind_ms == {"open": 9000}


def test_no_more_than_five_seconds_count_since_the_last_claim():
    seen = status(gate="open", state={"gate_at": str(NOW_MS - 60_000)})
    assert point_of(seen, 1.0).behind_ms == {"open": 5000}


def test_the_whole_run_is_counted_from_its_birth():
    spent = whole_run(status(stats={"behind:open": 95_000}, state={"epoch": f"{NOW_MS // 1000 - 380}.25"}))
    assert spent is not None
    assert (spent.seconds, spent.observed_seconds) == (380, 95)


def test_a_run_that_does_not_say_its_birth_has_no_whole():
    assert whole_run(status(state={})) is None


def test_utilisation_is_busy_time_by_slot_time():
    history = History()
    history.add(point(0.0, busy_ms=0, slot_ms=0))
    history.add(point(60.0, busy_ms=120_000, slot_ms=480_000))
    assert history.utilisation(60) == pytest.approx(0.25)


def test_without_slots_there_is_no_utilisation():
    history = History()
    history.add(point(0.0, busy_ms=0, slot_ms=0))
    history.add(point(60.0, busy_ms=0, slot_ms=0))
    assert history.utilisation(60) is None


def test_the_beginning_of_a_reason_is_known_only_if_it_was_seen():
    history = History()
    history.add(point(0.0))
    assert history.reason_since is None


def test_a_reason_that_changed_began_at_that_look():
    history = History()
    history.add(point_of(status(), 1.0))
    history.add(point_of(status(prompts=0), 2.0))
    history.add(point_of(status(prompts=0), 3.0))
    assert (history.reason_since, history.fine[-1].reason) == (2.0, Reason.NO_PROMPTS)


def test_busy_slots_are_unknown_where_no_worker_says_them():
    assert point_of(status(workers=[worker(busy=None)]), 1.0).busy is None


def test_without_workers_no_slot_is_busy():
    assert point_of(status(workers=[]), 1.0).busy == 0
