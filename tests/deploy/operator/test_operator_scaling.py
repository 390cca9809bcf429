"""Scaling by choice, on a real broker and a cluster that drops what Kubernetes would drop."""

from collections.abc import AsyncIterator

import pytest

from deploy.operator.objects import REPLICAS, RESTART
from tests.deploy.operator.world import POOL, World, made_world

pytestmark = pytest.mark.leaves_keys("groups that nobody finishes")


@pytest.fixture
async def world(redis_url: str, run: str) -> AsyncIterator[World]:
    async with made_world(redis_url, run, worker_replicas=(3,)) as made:
        made.cluster.deployment(POOL, 5)
        await made.beat_all()
        yield made


async def test_the_idle_go_and_the_busy_stay(world: World) -> None:
    busy = world.cluster.names()[:3]
    for pod in busy:
        await world.claim(pod)
    await world.looks(4)
    assert world.cluster.replicas(POOL) == 3
    assert sorted(world.cluster.names()) == sorted(busy)


async def test_a_busy_worker_that_was_chosen_finishes_first(world: World) -> None:
    claims = {pod: await world.claim(pod) for pod in world.cluster.names()}
    await world.looks(3)
    chosen = await world.draining()
    assert (len(chosen), world.cluster.replicas(POOL)) == (2, 5)
    for pod in chosen:
        await world.release(claims[pod])
    await world.looks(3)
    assert world.cluster.replicas(POOL) == 3
    assert not chosen & set(world.cluster.names())


async def test_those_with_the_fewest_samples_left_are_chosen(world: World) -> None:
    for number, pod in enumerate(world.cluster.names(), 1):
        await world.claim(pod, 6 - number)
    await world.looks(2)
    assert await world.draining() == set(world.cluster.names()[-2:])


async def test_an_unready_busy_bystander_and_pending_pods_survive(world: World) -> None:
    """Those that a person drained go, and not those that the ReplicaSet would drop first."""
    first, second, bystander, *_ = world.cluster.names()
    world.cluster.annotate(first, **{"rolloutfleet.io/drain": "yes"})
    world.cluster.annotate(second, **{"rolloutfleet.io/drain": "yes"})
    await world.claim(bystander)
    world.cluster.not_ready(bystander)
    await world.looks(4)
    assert world.cluster.replicas(POOL) == 3
    assert bystander in world.cluster.names()
    assert not {first, second} & set(world.cluster.names())


async def test_the_replica_set_drops_only_what_replaced_the_chosen(world: World) -> None:
    before = set(world.cluster.names())
    await world.looks(4)
    assert not before & set(world.cluster.dropped)


async def test_over_its_time_a_busy_one_goes_too(world: World) -> None:
    for pod in world.cluster.names():
        await world.claim(pod)
    impatient = world.another("operator-0", drain_seconds=0)
    await world.looks(4, impatient)
    assert world.cluster.replicas(POOL) == 3


async def test_growing_takes_back_who_was_told_to_go(world: World) -> None:
    for pod in world.cluster.names():
        await world.claim(pod)
    await world.looks(2)
    assert len(await world.draining()) == 2
    world.cluster.annotate(POOL, **{REPLICAS: "4 instead of 3"})
    await world.looks(2)
    assert (len(await world.draining()), world.cluster.replicas(POOL)) == (1, 5)


async def test_an_order_for_another_number_ends_with_the_number_that_it_replaced(world: World) -> None:
    world.cluster.annotate(POOL, **{REPLICAS: "6 instead of 3"})
    await world.looks(1)
    assert world.cluster.replicas(POOL) == 6
    await world.looks(4, world.another("operator-0", worker_replicas=(2,)))
    assert world.cluster.replicas(POOL) == 2


async def test_nothing_shrinks_while_a_rollout_runs(world: World) -> None:
    for pod in world.cluster.names():
        await world.claim(pod)
    await world.looks(2)
    world.cluster.controllers = False
    world.cluster.roll(POOL)
    await world.operator.look()
    assert (await world.draining(), world.cluster.replicas(POOL)) == (set(), 5)


async def test_a_number_that_waits_behind_a_rollout_without_a_gpu_is_said_where_people_look(world: World) -> None:
    """In the report for the page, and once as a warning on the Deployment."""
    world.cluster.gpus = 5
    world.cluster.set_replicas(POOL, 6)
    world.cluster.roll(POOL)
    await world.looks(4)
    (pool,) = (await world.report()).pools
    assert (pool.replicas, pool.wanted) == (6, 3)
    assert "needs a GPU that no node has free" in pool.problem
    assert "kubectl scale" in pool.advice
    assert [event["reason"] for event in world.cluster.events].count("ShrinkingWaits") == 1


async def test_nothing_shrinks_while_redis_is_unknown(world: World) -> None:
    nowhere = world.another("operator-0")
    nowhere.lines.broker.calls.retry_seconds = 0
    await world.broker.client.rename(world.broker.keys.named("config"), world.broker.keys.named("config") + "-away")
    await nowhere.look()
    await nowhere.look()
    await world.broker.client.rename(world.broker.keys.named("config") + "-away", world.broker.keys.named("config"))
    assert (await world.draining(), world.cluster.replicas(POOL)) == (set(), 5)


async def test_a_quota_that_forbids_pods_does_not_forbid_shrinking(world: World) -> None:
    world.cluster.quota = 5
    world.cluster.set_replicas(POOL, 9)
    await world.looks(4)
    assert (world.cluster.replicas(POOL), len(world.cluster.names())) == (3, 3)


async def test_conflicts_are_read_again(world: World) -> None:
    """The status of a Deployment changes its version under the operator's hands."""
    tries = iter([True, True, False])

    def disturb(verb: str, resource: str, when: str) -> None:
        if (verb, resource, when) == ("patch", "deployments/scale", "before") and next(tries, False):
            world.cluster._touch(world.cluster.deployments[POOL])  # pyright: ignore[reportPrivateUsage]

    world.cluster.on_call = disturb
    await world.looks(4)
    assert world.cluster.replicas(POOL) == 3


async def test_keda_s_number_is_left_alone(world: World) -> None:
    await world.looks(4, world.another("operator-0", scaling_owner="keda"))
    assert (world.cluster.replicas(POOL), await world.draining()) == (5, set())


@pytest.mark.parametrize("before", ["fixed", "operator", "keda"])
@pytest.mark.parametrize("after", ["fixed", "operator", "keda"])
async def test_handing_the_scaling_over_changes_no_number(world: World, before: str, after: str) -> None:
    for owner in (before, after, before):
        operator = world.another("operator-0", scaling_owner=owner, worker_replicas=(5,), cooldown_seconds=60)
        await world.looks(3, operator)
        assert (world.cluster.replicas(POOL), await world.draining()) == (5, set())


async def test_a_restart_takes_one_engine_at_a_time(world: World) -> None:
    operator = world.another("operator-0", worker_replicas=(5,))
    old = world.cluster.names()
    seconds = max(pod["metadata"]["creationTimestamp"] for pod in world.cluster.pods.values())
    world.cluster.annotate(POOL, **{RESTART: seconds})
    world.cluster.now += 60
    for _ in range(20):
        await world.looks(1, operator)
        assert len(set(world.cluster.names()) - await world.draining()) >= 4
    assert not set(old) & set(world.cluster.names())
    assert world.cluster.replicas(POOL) == 5


async def test_a_restart_waits_for_a_busy_worker_and_takes_the_idle_ones_first(world: World) -> None:
    operator = world.another("operator-0", worker_replicas=(5,))
    busy = world.cluster.names()[0]
    await world.claim(busy)
    seconds = max(pod["metadata"]["creationTimestamp"] for pod in world.cluster.pods.values())
    world.cluster.annotate(POOL, **{RESTART: seconds})
    world.cluster.now += 60
    await world.looks(20, operator)
    assert await world.draining() == {busy}
    assert world.cluster.replicas(POOL) == 5


async def test_a_drain_that_a_person_asks_for_is_told_and_taken_back(world: World) -> None:
    operator = world.another("operator-0", worker_replicas=(5,))
    pod = world.cluster.names()[2]
    world.cluster.annotate(pod, **{"rolloutfleet.io/drain": "yes"})
    await world.looks(1, operator)
    assert await world.draining() == {pod}
    world.cluster.pods[pod]["metadata"]["annotations"].clear()
    await world.looks(1, operator)
    assert await world.draining() == set()


async def test_a_drain_by_the_page_is_not_taken_back(world: World) -> None:
    pod = world.cluster.names()[0]
    await world.broker.drain([await world.beat(pod)])
    await world.looks(2, world.another("operator-0", worker_replicas=(5,)))
    assert await world.draining() == {pod}
