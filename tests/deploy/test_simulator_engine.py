"""The scheduler of the simulated engine under a clock of its own: exact times, no waiting."""

import asyncio
from collections.abc import Iterator

import pytest

from deploy.simulator.engine import DuplicateRid, End, Engine, Job, Pace, QueueFull, Span


class Bench:
    """An engine whose clock stands until it is moved."""

    def __init__(self, loop: asyncio.AbstractEventLoop, **changes: object) -> None:
        self.now = 0.0
        self._loop = loop
        settings: dict[str, object] = {"slots": 2, "pace": Pace(10, 0), "version": "v0", "max_queued": None} | changes
        self.engine = Engine(clock=lambda: self.now, changed=lambda: None, **settings)  # pyright: ignore[reportArgumentType]

    def job(self, rid: str, total: int = 10) -> Job:
        return Job(rid, prompt_tokens=3, total=total, ended=self._loop.create_future())

    def submit(self, rid: str, total: int = 10) -> Job:
        job = self.job(rid, total)
        self.engine.submit(job)
        return job

    def advance(self, seconds: float) -> None:
        self.now += seconds
        self.engine.settle()


def how(job: Job) -> End | None:
    return job.ended.result() if job.ended.done() else None


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


@pytest.fixture
def bench(loop: asyncio.AbstractEventLoop) -> Bench:
    return Bench(loop)


def test_a_request_ends_when_its_tokens_are_made(bench: Bench) -> None:
    job = bench.submit("a", total=10)
    bench.advance(0.99)
    assert (how(job), bench.engine.made(job)) == (None, 9)
    bench.advance(0.02)
    assert (how(job), job.made) == (End.DONE, 10)


def test_no_more_than_the_slots_run(bench: Bench) -> None:
    for number in range(5):
        bench.submit(str(number), total=10 + number)
    for _ in range(40):
        bench.advance(0.1)
        assert bench.engine.running <= 2
    assert (bench.engine.most_running, bench.engine.is_idle) == (2, True)


def test_a_place_is_filled_at_the_instant_at_which_it_became_free(bench: Bench) -> None:
    jobs = [bench.submit(str(number), total=10) for number in range(4)]
    bench.advance(1.55)
    assert [how(job) for job in jobs[:2]] == [End.DONE, End.DONE]
    assert [bench.engine.made(job) for job in jobs[2:]] == [5, 5]


def test_decoding_slows_down_as_more_requests_run(loop: asyncio.AbstractEventLoop) -> None:
    bench = Bench(loop, pace=Pace(speed=30, half=2))
    first = bench.submit("a", total=1000)
    bench.advance(1)
    bench.submit("b", total=1000)
    bench.advance(1)
    assert bench.engine.made(first) == 20 + 15


def test_constant_speed_is_the_same_for_any_number() -> None:
    assert Pace(speed=30, half=0).of(1) == Pace(speed=30, half=0).of(500) == 30


def test_a_slow_step_and_a_slow_factor_add_up() -> None:
    assert Pace(speed=10, half=0, slow_factor=2, step_seconds=0.3).of(1) == pytest.approx(2)


def test_a_change_of_pace_counts_from_its_instant(bench: Bench) -> None:
    job = bench.submit("a", total=1000)
    bench.advance(1)
    bench.engine.set_pace(Pace(speed=100, half=0))
    bench.advance(1)
    assert bench.engine.made(job) == 110


def test_a_stalled_engine_makes_nothing_and_waits_for_nothing(bench: Bench) -> None:
    job = bench.submit("a")
    bench.engine.set_pace(Pace(10, 0, stalled=True))
    bench.advance(100)
    assert (how(job), bench.engine.made(job), bench.engine.seconds_to_next()) == (None, 0, None)


def test_the_time_to_the_next_end_is_exact(bench: Bench) -> None:
    bench.submit("a", total=30)
    bench.submit("b", total=10)
    bench.now = 0.25
    assert bench.engine.seconds_to_next() == pytest.approx(0.75)


def test_a_full_queue_refuses(loop: asyncio.AbstractEventLoop) -> None:
    bench = Bench(loop, slots=1, max_queued=1)
    bench.submit("a")
    bench.submit("b")
    with pytest.raises(QueueFull):
        bench.submit("c")
    assert (bench.engine.running, bench.engine.queued) == (1, 1)


def test_a_free_slot_takes_a_request_even_if_none_may_wait(loop: asyncio.AbstractEventLoop) -> None:
    bench = Bench(loop, slots=1, max_queued=0)
    assert how(bench.submit("a")) is None


def test_a_live_rid_is_refused_and_free_again_later(bench: Bench) -> None:
    bench.submit("a")
    with pytest.raises(DuplicateRid):
        bench.submit("a")
    bench.advance(2)
    assert how(bench.submit("a")) is None


def test_an_abort_ends_all_whose_rid_begins_with_it(bench: Bench) -> None:
    jobs = [bench.submit(rid, total=100) for rid in ("pre", "pre-2", "other")]
    bench.advance(1)
    bench.engine.abort("pre")
    assert [how(job) for job in jobs] == [End.ABORTED, End.ABORTED, None]
    assert [job.made for job in jobs[:2]] == [10, 10]


def test_an_abort_of_a_prefix_that_is_not_live_ends_nothing(bench: Bench) -> None:
    job = bench.submit("pre-2")
    bench.engine.abort("pre")
    assert how(job) is None


def test_an_aborted_queued_request_says_so(bench: Bench) -> None:
    jobs = [bench.submit(str(number)) for number in range(3)]
    bench.engine.abort("2")
    assert how(jobs[2]) is End.ABORTED_IN_QUEUE


def test_the_slot_of_an_aborted_request_goes_to_the_next(bench: Bench) -> None:
    jobs = [bench.submit(str(number), total=10) for number in range(3)]
    bench.engine.abort("0")
    bench.advance(1.01)
    assert how(jobs[2]) is End.DONE


def test_a_request_whose_client_left_frees_its_slot(bench: Bench) -> None:
    jobs = [bench.submit(str(number), total=10) for number in range(3)]
    bench.engine.forget(jobs[1])
    assert (bench.engine.running, bench.engine.queued) == (2, 0)


@pytest.mark.parametrize("mode", ["retract", "in_place"])
def test_nothing_is_made_while_paused_and_nothing_is_lost(bench: Bench, mode: str) -> None:
    job = bench.submit("a", total=20)
    bench.advance(1)
    bench.engine.pause(mode)  # pyright: ignore[reportArgumentType]
    bench.advance(50)
    assert bench.engine.made(job) == 10
    bench.engine.resume()
    bench.advance(1.01)
    assert (how(job), job.made) == (End.DONE, 20)


def test_retracting_puts_running_requests_before_the_queued_ones(bench: Bench) -> None:
    jobs = [bench.submit(str(number), total=20) for number in range(3)]
    bench.engine.pause("retract")
    assert (bench.engine.running, bench.engine.queued) == (0, 3)
    bench.engine.resume()
    bench.advance(2.01)
    assert [how(job) for job in jobs] == [End.DONE, End.DONE, None]


def test_pausing_by_abort_ends_running_and_queued_requests(bench: Bench) -> None:
    jobs = [bench.submit(str(number)) for number in range(3)]
    bench.engine.pause("abort")
    assert [how(job) for job in jobs] == [End.ABORTED, End.ABORTED, End.ABORTED_IN_QUEUE]


def test_a_request_that_comes_during_a_pause_is_held_and_runs_afterwards(bench: Bench) -> None:
    bench.engine.pause("retract")
    job = bench.submit("a")
    assert (bench.engine.held, bench.engine.queued) == (1, 0)
    bench.engine.resume()
    bench.advance(1.01)
    assert how(job) is End.DONE


def test_the_abort_of_a_held_request_is_lost(bench: Bench) -> None:
    bench.engine.pause("retract")
    job = bench.submit("a")
    bench.engine.abort("a")
    bench.engine.abort_all()
    bench.engine.resume()
    bench.advance(1.01)
    assert how(job) is End.DONE


def test_held_requests_that_find_no_place_are_refused_one_by_one(loop: asyncio.AbstractEventLoop) -> None:
    bench = Bench(loop, slots=1, max_queued=1)
    bench.engine.pause("retract")
    jobs = [bench.submit(str(number)) for number in range(4)]
    bench.engine.resume()
    assert [how(job) for job in jobs] == [None, None, End.REFUSED, End.REFUSED]


def test_tokens_carry_the_version_that_made_them(bench: Bench) -> None:
    job = bench.submit("a", total=30)
    bench.advance(1)
    bench.engine.pause("retract")
    bench.engine.set_version("v1")
    bench.engine.resume()
    bench.advance(3)
    assert job.spans(job.made, "later") == [Span("v0", 0, 10), Span("v1", 10, 30)]


def test_a_version_that_made_no_token_leaves_no_span(bench: Bench) -> None:
    job = bench.submit("a", total=30)
    bench.advance(1)
    for version in ("v1", "v2"):
        bench.engine.set_version(version)
    bench.advance(3)
    assert job.spans(job.made, "later") == [Span("v0", 0, 10), Span("v2", 10, 30)]


def test_a_request_without_tokens_has_one_empty_span(bench: Bench) -> None:
    job = bench.submit("a", total=0)
    bench.advance(0)
    assert (how(job), job.spans(0, "later")) == (End.DONE, [Span("v0", 0, 0)])
