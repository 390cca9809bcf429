"""From what was read to what is shown: estimates, advice, ages, and what a young process leaves null."""

import pytest

from api.advice import advice
from api.columns import columns
from api.estimates import with_refill_sample
from api.models import Slots
from api.settings import ApiSettings
from api.views import demand_view, eta_seconds, gate_view, place_left, run_view, since_seconds, slots_view
from rolloutfleet.history import History, point_of
from rolloutfleet.window import Window
from tests.api.made import book, look, point, status, worker

SETTINGS = ApiSettings.model_validate({"redis_url": "redis://127.0.0.1:1"})
NO_SLOTS = Slots(busy=None, total=0, utilisation=None, utilisation_5_minutes=None, with_refill_sample=None)


def slots(measured: float | None, estimate: float | None, total: int = 16) -> Slots:
    return Slots(busy=None, total=total, utilisation=None, utilisation_5_minutes=measured, with_refill_sample=estimate)


def test_refill_sample_can_gain_only_the_time_behind_a_full_window():
    window = Window(samples=64, n=8)
    assert with_refill_sample(window, [64], utilisation=0.4, active_full=0.5) == pytest.approx(
        0.4 + 0.5 * (1 - 7 / 128 - 0.4)
    )


def test_samples_that_queue_at_one_worker_are_missing_at_another():
    window = Window(samples=64, n=8)
    estimates = [with_refill_sample(window, slots, utilisation=0.4, active_full=1.0) for slots in ([64], [16] * 4)]
    assert estimates == [pytest.approx(1 - 3.5 / 64), pytest.approx(1 - 4 * 4.375**2 / 14 / 64)]


def test_refill_sample_gains_nothing_where_the_window_was_never_full():
    assert with_refill_sample(Window(samples=64, n=8), [64], utilisation=0.4, active_full=0.0) == 0.4


def test_a_window_smaller_than_the_slots_bounds_the_estimate():
    assert with_refill_sample(Window(samples=32, n=1), [64], utilisation=0.3, active_full=1.0) == 0.5


def test_an_estimate_is_never_worse_than_what_was_measured():
    assert with_refill_sample(Window(samples=8, n=8), [64], utilisation=0.9, active_full=1.0) == 0.9


@pytest.mark.parametrize(
    ("window", "utilisation", "share"),
    [
        (Window(samples=64, n=8, refill="sample"), 0.5, 1.0),
        (Window(samples=64, n=8), None, 1.0),
        (Window(samples=64, n=8), 0.5, None),
    ],
    ids=["it is on", "no utilisation", "no shares"],
)
def test_an_estimate_without_its_facts_is_unknown(window: Window, utilisation: float | None, share: float | None):
    assert with_refill_sample(window, [64], utilisation, share) is None


def test_slots_that_idle_behind_a_full_window_are_told_what_refill_would_do():
    full = status(window={"active": 8})
    assert "refill = sample would use 90% of them instead of 40%" in advice(full, slots(0.4, 0.9), None)


def test_a_window_smaller_than_the_slots_is_told_to_grow():
    full = status(window={"active": 8})
    assert advice(full, slots(0.4, 0.9, total=32), None) == "raise sample_concurrency: the workers have 32 slots"


def test_an_open_window_without_workers_is_told_to_start_some():
    assert advice(status(workers=[]), NO_SLOTS, None) == "start workers"


def test_an_open_window_with_workers_needs_nothing():
    assert advice(status(), NO_SLOTS, None) == ""


@pytest.mark.parametrize(
    ("window", "left"),
    [
        (Window(samples=16, n=2, active=5), 3),
        (Window(samples=16, n=2, active=8), 0),
        (Window(samples=16, n=2, active=1, waiting=8), 0),
        (Window(samples=16, n=2, paused=True), 0),
        (Window(samples=16, n=2, active=31, outstanding=4, refill="sample"), 1),
        (Window(samples=0, n=2), 0),
    ],
    ids=["room", "full", "trainer full", "paused", "open cap", "no capacity"],
)
def test_the_place_left_is_what_may_be_claimed_now(window: Window, left: int):
    assert place_left(window) == left


def test_the_time_of_a_reason_is_the_gates_own_where_it_says_the_same():
    assert since_seconds(book(), status(gate="open", gate_seconds=7.0)) == 7.0


def test_the_time_of_a_reason_that_nobody_saw_begin_is_unknown():
    assert since_seconds(book(), status(gate="no_prompts", gate_seconds=7.0)) is None


def test_the_time_of_a_reason_that_this_process_saw_begin_is_known():
    seen = book()
    seen.history.add(point_of(status(prompts=0), 1.0))
    seen.history.add(point_of(status(), 4.0))
    seen.at = 10.0
    assert since_seconds(seen, status(gate="no_prompts")) == 6.0


def test_the_gate_is_open_only_if_a_group_may_be_claimed():
    later = status(prompts=0, again=3, again_seconds=20.0)
    assert not gate_view(book(), later, None, NO_SLOTS).is_open


def test_an_eta_without_a_rate_is_unknown():
    assert eta_seconds(status(), History()) is None


def test_an_eta_is_what_is_left_by_the_rate():
    history = History()
    history.add(point(0.0, completed=0))
    history.add(point(60.0, completed=120))
    assert eta_seconds(status(prompts=10, window={"active": 4}), history) == pytest.approx(7)


def test_with_nothing_left_the_eta_is_now():
    assert eta_seconds(status(prompts=0, window={"active": 0}), History()) == 0


def test_a_run_that_stands_still_has_no_eta():
    history = History()
    history.add(point(0.0, completed=5))
    history.add(point(60.0, completed=5))
    assert eta_seconds(status(), history) is None


def test_a_view_says_how_old_it_is():
    seen = book()
    seen.at = 100.0
    assert run_view(seen, look(), 112.5, SETTINGS).age_seconds == 12.5


def test_draining_workers_are_not_counted_as_able():
    seen = look(status(workers=[worker("a/1"), worker("b/1", draining=True)], prompts=0, window={"active": 0}))
    assert demand_view(book(seen), seen, SETTINGS)[0] == 1


def test_busy_slots_are_the_sum_of_what_workers_say():
    history = History()
    seen = status(workers=[worker("a/1", busy=3), worker("b/1", busy=4)])
    history.add(point_of(seen, 0.0))
    assert slots_view(seen, history).busy == 7


def test_a_chart_has_a_point_in_each_step_and_always_the_newest():
    history = History()
    for second in range(12):
        history.add(point(float(second), completed=second))
    assert columns("math", history, 900, 5).at_ms == [1000, 6000, 11_000]


def test_a_chart_has_no_rate_at_its_first_point():
    history = History()
    for second in range(11):
        history.add(point(float(second), completed=second * 2))
    assert columns("math", history, 900, 5).groups_per_second == [None, 2.0, 2.0]


def test_a_chart_of_nothing_is_empty():
    assert columns("math", History(), 900, 5).at_ms == []
