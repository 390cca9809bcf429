"""When a worker is gone, and what becomes of what it held."""

from collections.abc import AsyncIterator

import pytest

from deploy.operator.evict import verdict
from deploy.operator.objects import Condition, Container, Exit, Pod
from rolloutfleet.broker import Beat
from rolloutfleet.pods import FLEET_NAME
from tests.deploy.operator.world import POOL, World, made_world

pytestmark = pytest.mark.leaves_keys("groups that nobody finishes")

WORKER = "uid-1/1764400005250"  # began in the second 1764400005
RUNS = Container("worker", started_at=1_764_400_005)
ENDED = Container("worker", ended=Exit(1, "Error"))


def pod(container: Container | None = RUNS, **fields: object) -> Pod:
    containers = {"worker": container} if container else {}
    return Pod(**{"name": "p", "uid": "uid-1", "phase": "Running", "containers": containers} | fields)  # pyright: ignore


@pytest.mark.parametrize(
    "alive",
    [
        pod(),
        pod(container=None),
        pod(is_deleting=True),
        pod(conditions={"Ready": Condition(False, "NodeNotReady")}),
        pod(conditions={"DisruptionTarget": Condition(True, "EvictionByEvictionAPI")}),
        pod(Container("worker", started_at=1_764_400_001)),
        pod(Container("worker", waiting="PodInitializing"), phase="Pending"),
        pod(Container("worker", waiting="CrashLoopBackOff", ended=Exit(1, "Error", at=1_764_400_004))),
    ],
    ids=[
        *("runs", "says nothing of its container", "is ending", "its node is away", "is to be evicted"),
        *("began earlier", "is not yet said to run", "is not yet said to run again"),
    ],
)
def test_a_worker_whose_container_may_run_is_not_gone(alive: Pod) -> None:
    assert verdict(WORKER, alive) is None


@pytest.mark.parametrize(
    ("gone", "counts"),
    [
        (None, False),
        (pod(uid="uid-2"), False),
        (pod(ENDED), True),
        (pod(Container("worker", ended=Exit(137, "OOMKilled"))), True),
        (pod(Container("worker", ended=Exit(0, "Completed"))), False),
        (pod(ENDED, is_deleting=True), False),
        (pod(ENDED, phase="Failed"), True),
        (pod(ENDED, phase="Failed", conditions={"DisruptionTarget": Condition(True)}), False),
        (pod(container=None, phase="Failed", reason="Evicted"), False),
        (pod(Container("worker", ended=Exit(0, "Completed")), phase="Succeeded"), False),
        (pod(Container("worker", started_at=1_764_400_006, ended=Exit(137, "Error"))), True),
        (pod(Container("worker", waiting="CrashLoopBackOff", ended=Exit(2, "Error"))), True),
        (pod(Container("worker", ended=Exit(2, "Error", at=1_764_400_006))), True),
    ],
)
def test_what_the_cluster_took_is_no_failed_attempt(gone: Pod | None, counts: bool) -> None:
    found = verdict(WORKER, gone)
    assert found is not None
    assert found.counts is counts


@pytest.fixture
async def world(redis_url: str, run: str) -> AsyncIterator[World]:
    async with made_world(redis_url, run, worker_replicas=(2,)) as made:
        made.cluster.deployment(POOL, 2)
        await made.beat_all()
        await made.operator.look()
        yield made


async def test_the_groups_of_a_pod_that_was_deleted_are_free(world: World) -> None:
    victim, other = world.cluster.names()
    await world.claim(victim, 3)
    world.cluster.end(victim)
    await world.operator.look()
    worker = await world.beat(other)
    assert len((await world.broker.claim(worker, f"{worker}/again", 3)).grants) == 3


async def test_a_zombie_gets_no_group(world: World) -> None:
    victim = world.cluster.names()[0]
    worker = await world.beat(victim)
    world.cluster.end(victim)
    await world.operator.look()
    assert (await world.broker.claim(worker, f"{worker}/late", 1)).reason == "gone"


async def test_a_container_that_started_again_frees_what_the_process_before_held(world: World) -> None:
    victim = world.cluster.names()[0]
    claim = await world.claim(victim)
    world.cluster.restart_container(victim)
    await world.operator.look()
    assert await world.tokens(claim.grants[0].token.rsplit("/", 2)[0]) == []
    await world.beat(victim)


async def test_a_worker_that_carries_another_fleet_is_left_alone(world: World) -> None:
    facts = {"fleet": "other/fleet", "pod_name": "elsewhere", "pod": "uid-9"}
    assert FLEET_NAME.fullmatch("other/fleet")
    await world.broker.heartbeat(Beat("uid-9/1", (), 4, facts))
    await world.operator.look()
    assert "uid-9/1" in await world.workers()


async def test_a_worker_of_no_cluster_is_left_alone(world: World) -> None:
    await world.broker.heartbeat(Beat("host/1", (), 4, {"pod": "host"}))
    await world.operator.look()
    assert "host/1" in await world.workers()


async def test_a_pod_that_is_younger_than_the_list_is_asked_for_and_left_alone(world: World) -> None:
    pod = world.cluster.names()[0]
    worker = await world.beat(pod)
    world.operator.watch.pods.pop(world.cluster.uid(pod))
    await world.operator.loop.look()
    assert worker in await world.workers()
    assert world.cluster.calls["get", "pods"] == 1


async def test_a_node_that_is_away_frees_nothing(world: World) -> None:
    pod = world.cluster.names()[0]
    worker = await world.beat(pod)
    world.cluster.not_ready(pod)
    await world.operator.look()
    assert worker in await world.workers()


async def test_an_api_server_that_is_away_frees_nothing(world: World) -> None:
    pod = world.cluster.names()[0]
    worker = await world.beat(pod)
    world.cluster.end(pod)
    world.operator.watch.pods.clear()
    world.cluster.away = True
    await world.operator.loop.look()
    assert worker in await world.workers()


async def test_a_follower_evicts_nobody(world: World) -> None:
    pod = world.cluster.names()[0]
    worker = await world.beat(pod)
    world.cluster.end(pod)
    await world.another("operator-1").look()
    assert worker in await world.workers()


async def test_a_broker_that_started_anew_is_repaired_once(world: World) -> None:
    await world.broker.client.hset(world.operator.loop.keys.operator, "repaired", "an earlier process")
    await world.looks(3)
    assert world.operator.metrics.registry.get_sample_value("rolloutfleet_operator_repairs_total") == 2
