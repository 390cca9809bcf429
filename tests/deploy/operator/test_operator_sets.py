"""Engines over several pods: a LeaderWorkerSet drops its highest index, so that one is drained before that."""

from collections.abc import AsyncIterator

import pytest

from deploy.operator.objects import REPLICAS, RESTART, Deployment, Kind, deployment_of, pod_of
from deploy.operator.reconcile import Unit
from deploy.operator.wanted import spread
from tests.deploy.operator.world import POOL, World, made_world

pytestmark = pytest.mark.leaves_keys("groups that nobody finishes")


@pytest.fixture
async def world(redis_url: str, run: str) -> AsyncIterator[World]:
    async with made_world(redis_url, run, worker_replicas=(2,), leader_worker_sets=(POOL,)) as made:
        made.cluster.deployment(POOL, 4, Kind.SET)
        await made.beat_all()
        yield made


async def test_a_set_shrinks_from_its_end_and_deletes_no_pod_itself(world: World) -> None:
    await world.looks(4)
    assert (world.cluster.replicas(POOL), sorted(world.cluster.names())) == (2, ["worker-0", "worker-1"])
    assert world.cluster.calls["delete", "pods"] == 0
    assert world.cluster.calls["patch", "leaderworkersets/scale"] > 0


async def test_the_highest_index_drains_first_though_others_are_idle(world: World) -> None:
    claim = await world.claim("worker-3")
    await world.looks(4)
    assert (world.cluster.replicas(POOL), await world.draining()) == (4, {"worker-2", "worker-3"})
    await world.release(claim)
    await world.looks(3)
    assert (world.cluster.replicas(POOL), world.cluster.dropped) == (2, ["worker-2", "worker-3"])


async def test_the_number_falls_as_far_as_those_at_the_end_are_done(world: World) -> None:
    await world.claim("worker-2")
    await world.looks(4)
    assert (world.cluster.replicas(POOL), world.cluster.dropped) == (3, ["worker-3"])


async def test_over_its_time_the_end_goes_busy(world: World) -> None:
    await world.claim("worker-3")
    await world.looks(4, world.another("operator-0", drain_seconds=0))
    assert world.cluster.replicas(POOL) == 2


async def test_growing_takes_back_who_was_told_to_go(world: World) -> None:
    await world.claim("worker-3")
    await world.looks(2)
    world.cluster.annotate(POOL, **{REPLICAS: "5 instead of 2"})
    await world.looks(2)
    assert (world.cluster.replicas(POOL), await world.draining()) == (5, set())


async def test_a_restart_makes_each_group_again_one_at_a_time(world: World) -> None:
    operator = world.another("operator-0", worker_replicas=(4,))
    old = {pod["metadata"]["uid"] for pod in world.cluster.pods.values()}
    world.cluster.annotate(
        POOL, **{RESTART: max(p["metadata"]["creationTimestamp"] for p in world.cluster.pods.values())}
    )
    world.cluster.now += 60
    for _ in range(16):
        await world.looks(1, operator)
        assert len(set(world.cluster.names()) - await world.draining()) >= 3
    assert not old & {pod["metadata"]["uid"] for pod in world.cluster.pods.values()}
    assert world.cluster.replicas(POOL) == 4


@pytest.mark.parametrize(("groups", "loses"), [(5, "set"), (0, "plain")])
def test_of_several_pools_the_one_loses_whose_next_worker_holds_least(groups: int, loses: str) -> None:
    """Of a set that is the one at its end: an idle one before it does not count."""
    units = [
        Unit("s0", "set-0", "set", 0),
        Unit("s1", "set-1", "set", 1, groups=1, samples=1),
        Unit("p0", "plain-1", "plain", groups=groups, samples=groups),
    ]
    pools = [Deployment("set", "s", "1", 2, Kind.SET), Deployment("plain", "p", "1", 1)]
    before = {"set": 2, "plain": 1}
    assert spread(2, "", pools, units).replicas == before | {loses: before[loses] - 1}


SET = {
    "apiVersion": "leaderworkerset.x-k8s.io/v1",
    "kind": "LeaderWorkerSet",
    "metadata": {"name": "w", "uid": "s1", "generation": 3, "resourceVersion": "9"},
    "spec": {"replicas": 3, "leaderWorkerTemplate": {"size": 2}},
    "status": {"replicas": 3, "updatedReplicas": 3, "readyReplicas": 3, "hpaPodSelector": "a=b"},
}


@pytest.mark.parametrize(
    ("status", "is_rolling"),
    [
        ({}, False),  # older sets don't say which generation they have seen
        ({"observedGeneration": 3}, False),
        ({"observedGeneration": 2}, True),
        ({"updatedReplicas": 1}, True),
        ({"conditions": [{"type": "UpdateInProgress", "status": "True", "reason": "GroupsAreUpgrading"}]}, True),
        ({"conditions": [{"type": "Progressing", "status": "True", "reason": "GroupsProgressing"}]}, False),
    ],
)
def test_whether_a_set_rolls_stands_in_its_status(status: dict[str, object], is_rolling: bool) -> None:
    found = deployment_of(SET | {"status": SET["status"] | status})  # pyright: ignore[reportOperatorIssue, reportUnknownArgumentType]
    assert (found.kind, found.is_rolling) == (Kind.SET, is_rolling)


def test_a_pod_of_a_set_says_which_one_it_is() -> None:
    labels = {"leaderworkerset.sigs.k8s.io/name": "a-1", "leaderworkerset.sigs.k8s.io/group-index": "12"}
    found = pod_of({"metadata": {"name": "a-1-12", "labels": labels}})
    assert (found.pool, found.index) == ("a-1", 12)
