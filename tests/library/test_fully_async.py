"""What users of slime's fully asynchronous rollout expect of the buffer between fleet and trainer."""

import pytest

from rolloutfleet.messages import Grant
from rolloutfleet.window import window_size
from tests.fakes.broker import Fleet


@pytest.mark.parametrize(
    ("samples", "n", "groups"), [(512, 8, 64), (10, 4, 3), (2, 4, 1), (1, 1, 1), (8, 8, 1), (9, 8, 2), (0, 8, 0)]
)
async def test_samples_are_converted_to_groups_rounding_up(samples: int, n: int, groups: int):
    assert window_size(samples, n) == groups


@pytest.mark.parametrize(("samples", "n", "groups"), [(512, 8, 64), (10, 4, 3), (2, 4, 1), (1, 1, 1)])
async def test_a_fleet_holds_as_many_groups_as_the_conversion_says(fleet: Fleet, samples: int, n: int, groups: int):
    await fleet.configure(sample_concurrency=samples, n=n)
    await fleet.submit(*[f"g{number}" for number in range(groups + 2)])
    assert len((await fleet.claim(groups + 2)).grants) == groups
    assert (await fleet.claim()).reason == "active_full"


async def test_a_trainer_takes_exactly_its_target_and_leaves_the_surplus(fleet: Fleet):
    await fleet.configure(sample_concurrency=20)
    await fleet.run_through(*[f"g{number}" for number in range(7)])
    assert [entry.id for entry in await fleet.take(4)] == ["g0", "g1", "g2", "g3"]
    assert [entry.id for entry in await fleet.take(4)] == ["g4", "g5", "g6"]


async def test_a_take_gives_less_than_its_limit_rather_than_wait(fleet: Fleet):
    await fleet.run_through("a")
    assert len(await fleet.take(32)) == 1
    assert await fleet.take(32) == []


async def test_the_surplus_of_one_step_is_first_in_the_next(fleet: Fleet):
    await fleet.configure(sample_concurrency=20)
    await fleet.run_through("a", "b", "c")
    await fleet.take(1)
    await fleet.run_through("d")
    assert [entry.id for entry in await fleet.take(3)] == ["b", "c", "d"]


async def test_completing_never_blocks_however_many_groups_wait(fleet: Fleet):
    await fleet.configure(sample_concurrency=20)
    await fleet.submit(*[f"g{number}" for number in range(10)])
    grants = await fleet.hold(10)
    await fleet.configure(sample_concurrency=2)
    await fleet.finish(*grants)
    assert await fleet.completed() == 10


async def idle_trainer(fleet: Fleet) -> int:
    """Workers do all they may while no trainer takes: groups that wait in the end.

    All but one of a round complete first, so that the window opens once more before the last does.
    """
    await fleet.submit(*[f"g{number}" for number in range(100)])
    while grants := (await fleet.claim(100)).grants:
        await fleet.finish(*grants[:-1])
        more = (await fleet.claim(100)).grants
        await fleet.finish(*grants[-1:], *more)
    return await fleet.completed()


@pytest.mark.parametrize(("samples", "size"), [(2, 1), (4, 2), (10, 5)])
async def test_with_an_idle_trainer_just_two_windows_less_one_wait(fleet: Fleet, samples: int, size: int):
    await fleet.configure(sample_concurrency=samples)
    assert await idle_trainer(fleet) == 2 * size - 1
    assert (await fleet.claim()).reason == "completed_full"


@pytest.mark.parametrize(("n", "size", "open_cap"), [(2, 1, 1), (4, 3, 2), (8, 2, 4)])
async def test_with_sample_refill_and_slow_rewards_open_cap_more_windows_wait(
    fleet: Fleet, n: int, size: int, open_cap: int
):
    await fleet.configure(sample_concurrency=n * size, n=n, refill="sample", open_cap=open_cap)
    await fleet.submit(*[f"g{number}" for number in range(100)])
    first = await open_all(fleet)
    assert len(first) == open_cap * size
    await fleet.finish(*first[: size - 1])
    second = await open_all(fleet)
    assert len(second) == size - 1
    await fleet.finish(*first[size - 1 :], *second)
    assert await fleet.completed() == (1 + open_cap) * size - 1
    assert (await fleet.claim()).reason == "completed_full"


async def open_all(fleet: Fleet) -> list[Grant]:
    """Claims until refused; all samples of each group finish at once, and its reward doesn't."""
    opened = list[Grant]()
    while grants := (await fleet.claim(1)).grants:
        await fleet.put(grants[0], *grants[0].missing)
        opened += grants
    return opened


async def test_a_trainer_that_holds_more_than_a_window_does_not_stop_the_fleet(fleet: Fleet):
    for number in range(10):
        await fleet.run_through(f"g{number}")
        assert len(await fleet.take()) == 1
    assert len(await fleet.take(position="0-0")) == 10


async def test_what_an_idle_trainer_left_flows_on_when_it_is_back(fleet: Fleet):
    await idle_trainer(fleet)
    assert len(await fleet.take_and_ack()) == 3
    await fleet.hold(2)
