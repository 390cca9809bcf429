"""Who leads: never two at once, whatever the clocks, the network and the API server do."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deploy.operator.cluster import ClusterUnavailable
from deploy.operator.leader import LEASE_SECONDS, RENEW_SECONDS, VALID_SECONDS, Leader, NotLeading
from tests.fakes.cluster import FakeCluster


class Clock:
    """A process's own clock: it began anywhere, and runs at its own speed."""

    def __init__(self, began: float = 0.0, speed: float = 1.0) -> None:
        self.now, self.speed = began, speed

    def __call__(self) -> float:
        return self.now

    def pass_by(self, seconds: float) -> None:
        self.now += seconds * self.speed


def two(first: Clock, second: Clock) -> tuple[FakeCluster, Leader, Leader]:
    cluster = FakeCluster()
    return cluster, Leader(cluster, "lease", "a", first), Leader(cluster, "lease", "b", second)


async def pass_by(seconds: float, *clocks: Clock) -> None:
    for clock in clocks:
        clock.pass_by(seconds)


async def test_the_first_one_leads_and_the_second_follows() -> None:
    _, a, b = two(Clock(), Clock(5000))
    await a.step()
    await b.step()
    assert (a.is_leading, b.is_leading, b.holder) == (True, False, "a")


async def test_a_leader_renews_in_one_call() -> None:
    clock = Clock()
    cluster, a, _ = two(clock, Clock())
    await a.step()
    cluster.calls.clear()
    await pass_by(RENEW_SECONDS, clock)
    await a.step()
    assert cluster.calls == {("patch", "leases"): 1}


async def test_a_leader_that_is_not_heard_of_stops_before_another_begins() -> None:
    first, second = Clock(), Clock(77)
    _, a, b = two(first, second)
    await a.step()
    await b.step()
    await pass_by(VALID_SECONDS, first, second)
    assert not a.is_leading
    await b.step()
    assert not b.is_leading
    await pass_by(LEASE_SECONDS - VALID_SECONDS + 1, first, second)
    await b.step()
    assert b.is_leading


async def test_one_that_was_frozen_learns_that_another_leads() -> None:
    first, second = Clock(), Clock()
    _, a, b = two(first, second)
    await a.step()
    await b.step()
    await pass_by(LEASE_SECONDS + 1, first, second)
    await b.step()
    await a.step()
    await a.step()
    assert (a.is_leading, a.holder) == (False, "b")


async def test_a_leader_that_stops_hands_over_at_once() -> None:
    _, a, b = two(Clock(), Clock())
    await a.step()
    await b.step()
    await a.release()
    await b.step()
    assert (a.is_leading, b.is_leading) == (False, True)


async def test_nobody_leads_without_an_answer() -> None:
    clock = Clock()
    cluster, a, _ = two(clock, Clock())
    await a.step()
    cluster.away = True
    await pass_by(VALID_SECONDS + 1, clock)
    with pytest.raises(ClusterUnavailable):
        await a.step()
    with pytest.raises(NotLeading):
        a.check()


async def test_a_lease_that_was_deleted_is_made_again() -> None:
    cluster, a, _ = two(Clock(), Clock())
    await a.step()
    cluster.leases.clear()
    await a.step()
    await a.step()
    assert a.is_leading
    assert cluster.leases["lease"]["spec"]["holderIdentity"] == "a"


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("step"), st.integers(0, 2)),
        st.tuples(st.just("wait"), st.floats(0.1, 12)),
        st.tuples(st.just("away"), st.booleans()),
        st.tuples(st.just("lost"), st.integers(0, 2)),
    ),
    min_size=5,
    max_size=60,
)


@settings(max_examples=300, deadline=None)
@given(steps=STEPS, speeds=st.lists(st.floats(0.9, 1.1), min_size=3, max_size=3))
def test_never_two_lead(steps: list[tuple[str, float]], speeds: list[float]) -> None:
    """Three processes whose clocks began anywhere and run up to a tenth too fast or slow; answers are lost."""
    asyncio.run(_never_two(steps, speeds))


async def _never_two(steps: list[tuple[str, float]], speeds: list[float]) -> None:
    cluster = FakeCluster()
    clocks = [Clock(1000.0 * number, speed) for number, speed in enumerate(speeds)]
    leaders = [Leader(cluster, "lease", name, clock) for name, clock in zip("abc", clocks, strict=True)]
    for what, value in steps:
        match what:
            case "wait":
                await pass_by(value, *clocks)
            case "away":
                cluster.away = bool(value)
            case _:
                cluster.on_call = _lose_answer if what == "lost" else _answer
                await _try(leaders[int(value)])
        assert sum(leader.is_leading for leader in leaders) <= 1


def _answer(verb: str, resource: str, when: str) -> None:
    return


def _lose_answer(verb: str, resource: str, when: str) -> None:
    if when == "after" and verb in ("patch", "create"):
        raise ClusterUnavailable("the answer was lost")


async def _try(leader: Leader) -> None:
    try:
        await leader.step()
    except ClusterUnavailable:
        return
