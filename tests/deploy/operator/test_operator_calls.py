"""What the operator asks of the API server while nothing happens, and how soon it does as it is told: counted."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from deploy.operator.cluster import POOLS_SECONDS, WATCH_SECONDS
from deploy.operator.loop import LOOK_SECONDS
from deploy.operator.objects import REPLICAS
from tests.deploy.operator.world import POOL, World, made_world
from tests.fakes.worker import until

PODS = 100
MOST_PER_SECOND = 0.2  # for 100 pods, besides the Lease
MOST_SECONDS = 5.0  # from an order to the number of replicas


@pytest.fixture
async def world(redis_url: str, run: str) -> AsyncIterator[World]:
    async with made_world(redis_url, run, worker_replicas=(PODS,)) as made:
        made.cluster.deployment(POOL, PODS)
        await made.operator.look()
        made.cluster.calls.clear()
        yield made


async def test_a_look_at_a_fleet_to_which_nothing_happens_asks_the_cluster_nothing(world: World) -> None:
    for _ in range(10):
        await world.operator.loop.look()
    assert world.cluster.calls == {}


async def test_a_fleet_to_which_nothing_happens_costs_two_calls_in_each_period_of_a_watch(world: World) -> None:
    watches = asyncio.create_task(world.operator.watch.run())

    async def are_open() -> bool:
        return world.cluster.calls["watch", "pods"] == world.cluster.calls["watch", "deployments"] == 1

    await until(are_open)
    watches.cancel()
    of_pods = sum(count for (_, resource), count in world.cluster.calls.items() if resource == "pods")
    of_pools = sum(count for (_, resource), count in world.cluster.calls.items() if resource == "deployments")
    assert sum(world.cluster.calls.values()) == of_pods + of_pools
    assert of_pods / WATCH_SECONDS + of_pools / POOLS_SECONDS <= MOST_PER_SECOND


async def test_an_order_on_a_deployment_wakes_the_loop_and_takes_few_looks(world: World) -> None:
    """Nobody waits for a list: the watch tells of the annotation."""
    watches = asyncio.create_task(world.operator.watch.run())

    async def is_open() -> bool:
        return world.cluster.calls["watch", "deployments"] == 1

    async def is_woken() -> bool:
        return world.operator.watch.changed.is_set()

    await until(is_open)
    world.operator.watch.changed.clear()
    await world.cluster.annotate_deployment(POOL, {REPLICAS: f"{PODS - 2} instead of {PODS}"})
    await until(is_woken)
    looks = 0
    while world.cluster.replicas(POOL) == PODS and looks * LOOK_SECONDS < 60:
        await world.operator.loop.look()
        looks += 1
    watches.cancel()
    assert looks * LOOK_SECONDS <= MOST_SECONDS
    assert world.cluster.replicas(POOL) == PODS - 2


async def test_what_a_list_brings_late_does_not_undo_a_number_that_was_set(world: World) -> None:
    """The list was answered before the change, and comes after it."""
    watch = world.operator.watch
    before = watch.deployments[POOL]
    world.cluster.set_replicas(POOL, 7)
    watch.see_deployment(await world.cluster.get_deployment(POOL))
    watch.see_deployment(before)
    assert watch.deployments[POOL].replicas == 7
