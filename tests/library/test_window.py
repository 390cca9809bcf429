"""The window: the pure decision, the invariants that it keeps, and its Lua twin, compared value by value."""

import asyncio
import itertools
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil

import pytest
import redis.asyncio
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rolloutfleet.redis import Client
from rolloutfleet.window import Pace, Reason, Refill, Window, decide, sample_refill_share, window_size
from tests.fakes.broker import WORKER, Fleet, fake_client

FAR = 10**15  # a lease that no test outlives


@dataclass(frozen=True, slots=True)
class Case:
    """A window, the missing samples of the groups in line, and the places that a worker asks for."""

    window: Window
    lefts: tuple[int, ...]
    places: int
    is_automatic: bool = False


def paces() -> st.SearchStrategy[Pace]:
    return st.builds(Pace, st.integers(0, 2), st.integers(1, 4), st.integers(0, 4), st.integers(0, 12))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    n = draw(st.integers(1, 5))
    samples = draw(st.integers(0, 4 * n))
    active = draw(st.integers(0, 8))
    refill: Refill = draw(st.sampled_from(["group", "sample"]))
    window = Window(
        samples=samples,
        n=n,
        active=active,
        outstanding=active + draw(st.integers(0, 4 * active)),
        waiting=draw(st.integers(0, 5)),
        taken=draw(st.integers(0, 3)),
        refill=refill,
        overcommit=draw(st.sampled_from([1, 333, 1000, 1250, 2000])),
        open_cap=draw(st.integers(1, 4)),
        paused=draw(st.integers(0, 9)) == 0,
        pace=draw(st.none() | paces()),
    )
    lefts = draw(st.lists(st.integers(0, 7), max_size=5))
    return Case(window, tuple(lefts), draw(st.integers(0, 5)), draw(st.booleans()))


# The pure decision


@given(st.integers(0, 10**6), st.integers(1, 4096), st.integers(1, 100_000))
def test_the_size_is_the_exact_quotient_rounded_up(samples: int, n: int, overcommit: int):
    assert window_size(samples, n, overcommit) == ceil(Fraction(overcommit * samples, 1000 * n))


@given(cases())
def test_after_a_grant_the_window_is_kept_or_the_group_is_the_only_one(case: Case):
    granted, _ = decide(case.window, list(case.lefts), case.places)
    after = case.window
    for left in case.lefts[:granted]:
        after = replace(after, active=after.active + 1, outstanding=after.outstanding + max(1, left))
        assert after.used <= after.size or after.active == 1 or case.window.outstanding == 0
    assert granted <= min(case.places, len(case.lefts))


@given(cases())
def test_what_opens_no_gate_grants_nothing(case: Case):
    if case.window.paused or case.window.waiting >= case.window.size or case.window.used >= case.window.size:
        assert decide(case.window, list(case.lefts), case.places)[0] == 0


@pytest.mark.parametrize(
    ("window", "lefts", "places", "answer"),
    [
        (Window(4, 2), [2, 2], 2, (2, Reason.ACTIVE_FULL)),
        (Window(4, 2), [2, 2], 1, (1, Reason.BUSY)),
        (Window(4, 2), [2], 2, (1, Reason.NO_PROMPTS)),
        (Window(4, 2, paused=True), [2], 1, (0, Reason.PAUSED)),
        (Window(0, 2), [2], 1, (0, Reason.NO_CAPACITY)),
        (Window(4, 2, waiting=2), [2], 1, (0, Reason.COMPLETED_FULL)),
        (Window(4, 2, waiting=2, active=2), [2], 1, (0, Reason.COMPLETED_FULL)),
        (Window(4, 2, active=2, outstanding=2), [2], 1, (0, Reason.ACTIVE_FULL)),
        (Window(4, 2, active=2, outstanding=2, refill="sample"), [2], 1, (1, Reason.ACTIVE_FULL)),
        (Window(4, 2, active=2, outstanding=3, refill="sample"), [2], 1, (0, Reason.ACTIVE_FULL)),
        (Window(4, 2, refill="sample"), [9], 1, (1, Reason.ACTIVE_FULL)),
        (Window(8, 8, active=1, outstanding=1, refill="sample", open_cap=1), [1], 1, (0, Reason.ACTIVE_FULL)),
        (Window(4, 2, overcommit=1500, active=2, outstanding=4), [2], 1, (1, Reason.ACTIVE_FULL)),
        (Window(1, 4), [4], 1, (1, Reason.ACTIVE_FULL)),
    ],
)
def test_the_decision(window: Window, lefts: list[int], places: int, answer: tuple[int, Reason]):
    assert decide(window, lefts, places) == answer


def test_every_reason_has_a_sentence():
    assert len({reason.sentence for reason in Reason}) == len(Reason)


# The twin


class Stage:
    """A run on some server, set to one case after the other."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.numbers = itertools.count()

    async def set(self, case: Case) -> None:
        """Writes the state that the decision depends on, straight into the keys."""
        fleet, window = self.fleet, case.window
        await fleet.delete()
        samples = "auto" if case.is_automatic else max(1, window.samples)
        await fleet.configure(
            sample_concurrency=samples, n=window.n, refill=window.refill, overcommit=window.overcommit,
            open_cap=window.open_cap, paused=window.paused,
        )  # fmt: skip
        # 0 samples can't be configured, but reached with nobody there.
        await fleet.do(
            "HSET", fleet.key("config"), "sample_concurrency", "auto" if case.is_automatic else window.samples
        )
        await fleet.do("HSET", fleet.key("state"), "slots", window.samples)
        for number in range(window.active):
            await fleet.do("ZADD", fleet.key("leases"), FAR, f"held{number}")
        if window.outstanding:
            await fleet.do("SET", fleet.key("outstanding"), window.outstanding)
        for _ in range(window.taken + window.waiting):
            await fleet.do("XADD", fleet.key("completed"), "*", "id", "done", "born", "1")
        if window.taken:
            await fleet.take(window.taken)
        await self.set_pace(window.pace)
        for left in case.lefts:
            await self.queue(left)

    async def set_pace(self, pace: Pace | None) -> None:
        """The books were opened at some other number than 0."""
        if pace is None:
            return
        fleet = self.fleet
        bound = {"max_staleness": pace.max_staleness, "groups_per_update": pace.groups_per_update}
        books = {"updates": pace.updates + 500, "updates_from": 500, "trained": pace.trained + 70, "trained_from": 70}
        for name, fields in (("config", bound), ("state", books)):
            await fleet.do("HSET", fleet.key(name), *[part for pair in fields.items() for part in pair])

    async def queue(self, left: int) -> None:
        """A group in line that lacks so many samples."""
        group_id = f"g{next(self.numbers)}"
        await self.fleet.submit(group_id, n=left + 1)
        born = (await self.fleet.group(group_id))["born"].decode()
        await self.fleet.do("HSET", self.fleet.broker.keys.samples(group_id, born), 0, "x")
        await self.fleet.do("HSET", self.fleet.broker.keys.group(group_id), "left", left)

    async def compare(self, case: Case) -> None:
        await self.set(case)
        claim = await self.fleet.broker.claim(WORKER, f"{WORKER}/{next(self.numbers)}", case.places)
        granted, reason = decide(case.window, list(case.lefts), case.places)
        assert len(claim.grants) == granted
        assert claim.reason == ("open" if granted else reason)
        # What held is in `gate`; a worker whose own places are full leaves the gate open.
        gate = (await self.fleet.do("HGET", self.fleet.key("state"), "gate")).decode()
        assert gate == ("open" if reason is Reason.BUSY and case.places else reason)
        await self.compare_counts(case, granted)

    async def compare_counts(self, case: Case, granted: int) -> None:
        outstanding = case.window.outstanding + sum(max(1, left) for left in case.lefts[:granted])
        assert await self.fleet.outstanding() == outstanding
        assert await self.fleet.active() == case.window.active + granted


def compare_all(client: Client, runner: asyncio.Runner, examples: int) -> None:
    stage = Stage(runner.run(Fleet.make(client, "twin")))

    @settings(max_examples=examples, deadline=None, database=None)
    @given(cases())
    @example(Case(Window(6, 2, refill="sample", active=2, outstanding=3), (3, 1), 3))
    @example(Case(Window(8, 4, refill="sample", active=8, outstanding=5, open_cap=4), (1,), 1))
    @example(Case(Window(4, 4, refill="sample"), (7, 7), 2))
    def each(case: Case) -> None:
        runner.run(stage.compare(case))

    each()
    runner.run(stage.fleet.delete())
    runner.run(client.aclose())


def test_the_script_decides_as_the_function_does():
    with asyncio.Runner() as runner:
        compare_all(fake_client(), runner, examples=250)


def test_the_script_decides_as_the_function_does_on_a_real_server(redis_url: str):
    with asyncio.Runner() as runner:
        compare_all(redis.asyncio.Redis.from_url(redis_url, protocol=2), runner, examples=150)


@pytest.mark.parametrize(
    ("room", "n", "engines", "share"),
    [
        (64, 8, 1, 1 - 3.5 / 64),
        (64, 8, 4, 1 - 4 * 4.375**2 / 14 / 64),
        (64, 1, 4, 1.0),
        (100, 1, 4, 1.0),
        (64 + 4 * 4.375, 8, 4, 1.0),
        (32, 1, 4, 0.5),
        (0, 8, 4, 0.0),
    ],
)
def test_groups_that_come_whole_leave_slots_idle(room: float, n: int, engines: int, share: float):
    assert sample_refill_share(room, n, 64, engines) == pytest.approx(share)


def test_more_room_never_keeps_fewer_slots_busy():
    shares = [sample_refill_share(room, 8, 64, 4) for room in range(120)]
    assert shares == sorted(shares)
