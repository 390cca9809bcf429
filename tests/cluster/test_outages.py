"""The API server, the broker, a watch, a kubelet or a cable is away for a while: work goes on, nothing is lost."""

import asyncio
import time

import pytest

from tests.cluster.jobs import Job, connected
from tests.cluster.kube import Json, apply, is_ready, kubectl, name_of, uid_of, until
from tests.cluster.measured import note
from tests.cluster.ours import Ours, node_ready
from tests.cluster.reach import reached
from tests.cluster.release import Release, make_secret
from tests.cluster.test_deaths import busy_worker
from tests.cluster.test_install import PASSWORD, bundled

pytestmark = pytest.mark.slow

FIRST_NODE = {"pod": {"nodeSelector": {"kubernetes.io/hostname": "node0"}}}
SECOND_NODE = {"pod": {"nodeSelector": {"kubernetes.io/hostname": "node1"}}}
RELIST_SECONDS = 30


async def test_half_a_minute_without_the_api_server_costs_nothing(release: Release, job: Job, ours: Ours) -> None:
    await release.install()
    await job.submit(100)
    async with job.training():
        await until(job.busy, "somebody works")
        async with ours.without_api_server():
            before = len(job.trained)
            await asyncio.sleep(30)
            assert len(job.trained) > before
        await job.finished()
    assert await job.members("barred") == set()
    await job.assert_whole()


async def test_a_pod_that_goes_while_the_watch_is_cut_is_found_by_the_next_list(
    release: Release, job: Job, ours: Ours
) -> None:
    await release.install({"worker": {"replicas": 3}})
    await job.submit(60, tokens=100)
    async with job.training():
        pod = await busy_worker(release, job)
        (operator,) = await release.live("operator")
        async with ours.refused_by_api_server(operator["status"]["podIP"]):
            await asyncio.sleep(1)
            await release.kill(pod)
        began = time.monotonic()

        async def holds_nothing() -> bool:
            return not await job.held_by(pod)

        await until(holds_nothing, f"what {name_of(pod)} held is free", pause=0.02)
        note("recovery-after-a-cut-watch", [time.monotonic() - began])
        await job.finished()
    await job.assert_whole()


async def test_a_pod_that_a_frozen_kubelet_never_stopped_gets_no_group(release: Release, job: Job, ours: Ours) -> None:
    await release.install({"worker": {"replicas": 2} | SECOND_NODE, "operator": FIRST_NODE})
    await job.submit(80)
    async with job.training():
        pod = await busy_worker(release, job)
        async with ours.frozen_kubelet("node1"):
            await release.kill(pod)

            async def is_barred() -> bool:
                return uid_of(pod) in await job.members("barred")

            await until(is_barred, "the zombie is barred")
            await until(lambda: _holds_nothing(job, pod), "the zombie holds nothing")
            trained = len(job.trained)

            async def others_went_on() -> bool:
                assert not await job.held_by(pod)
                return len(job.trained) > trained + 8

            await until(others_went_on, "the other worker goes on")
        await job.finished()
    await job.assert_whole(zombies=True)


async def _holds_nothing(job: Job, pod: Json) -> bool:
    return not await job.held_by(pod)


async def test_a_redis_pod_that_is_deleted_comes_back_with_everything(release: Release, ours: Ours) -> None:
    folder = ours.make_volume(f"redis-{release.namespace}", owner=999)
    await make_secret(release.namespace, "redis", password=PASSWORD)
    await apply(_volume(release.namespace, folder))
    claim = {"type": "pvc", "storageClass": "-", "size": "1Gi"}
    values = bundled(release.run)
    values["redis"] |= {"persistence": claim, "pod": FIRST_NODE["pod"]}
    try:
        await release.install(values)
        with reached(release.namespace, f"service/{release.base}-redis", 6379) as address:
            async with connected(f"redis://:{PASSWORD}@{address}/0", release.run) as job:
                await job.submit(80)
                async with job.training():
                    await until(job.busy, "somebody works")
                    (redis,) = await release.live("redis")
                    await kubectl("delete", "pod", name_of(redis), "-n", release.namespace, "--wait=false")
                    await until(lambda: _replaced(release, redis), "Redis is back")
                    await job.finished()
                await job.assert_whole()
    finally:
        await kubectl("delete", "pv", release.namespace, "--wait=false", "--ignore-not-found")


async def _replaced(release: Release, old: Json) -> bool:
    return any(uid_of(pod) != uid_of(old) and is_ready(pod) for pod in await release.live("redis"))


def _volume(name: str, folder: str) -> Json:
    spec: Json = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "persistentVolumeReclaimPolicy": "Retain",
        "hostPath": {"path": folder, "type": "Directory"},
        "claimRef": {"namespace": name, "name": "data-fleet-rolloutfleet-redis-0"},
        "storageClassName": "",
    }
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec}


async def test_a_node_that_was_cut_off_for_two_minutes_loses_and_doubles_nothing(
    release: Release, job: Job, ours: Ours
) -> None:
    await release.install({"worker": {"replicas": 4}, "operator": FIRST_NODE})
    there = {uid_of(pod) for pod in await release.live() if pod["spec"]["nodeName"] == "node1"}
    assert there, "no worker runs on the node that is to be cut off"
    await job.submit(250, tokens=100)
    async with job.training():
        zombie = await busy_worker(release, job, there)
        async with ours.cut_off("node1"):
            await release.kill(zombie)  # nobody can tell it
            await asyncio.sleep(120)
            assert not await node_ready("node1")
            assert uid_of(zombie) in await job.members("barred")
        trained = len(job.trained)

        async def others_went_on() -> bool:
            assert not await job.held_by(zombie)
            return len(job.trained) > trained + 20

        await until(others_went_on, "the others go on")
        await job.finished()
    await job.assert_whole(zombies=True)
