"""Workers that die in the middle of their work: what they held is free at once, and nothing is lost or made twice."""

import os
import signal
import statistics
import time
from collections.abc import Awaitable, Callable, Collection

import pytest

from tests.cluster.jobs import Job
from tests.cluster.kube import Json, command, kubectl, name_of, uid_of, until
from tests.cluster.measured import note
from tests.cluster.ours import Ours, nodes
from tests.cluster.release import Release

KILLS = 10
OF_RELEASES = ("--delete-emptydir-data", "--pod-selector=app.kubernetes.io/name=rolloutfleet")
LEASE_SECONDS = 60  # of these runs: what is free long before was freed by the operator, and not by time


async def busy_worker(release: Release, job: Job, among: Collection[str] = ()) -> Json:
    """A worker that nobody has deleted, and that holds groups; `among`: only of these uids."""

    async def found() -> Json | None:
        for pod in await release.live():
            if (not among or uid_of(pod) in among) and await job.held_by(pod):
                return pod
        return None

    return await until(found, "a worker holds groups")


async def seconds_until(fact: Callable[[], Awaitable[bool]], what: str) -> float:
    began = time.monotonic()
    await until(fact, what, pause=0.02)
    return time.monotonic() - began


async def test_the_groups_of_a_force_deleted_worker_are_free_at_once_and_nothing_is_lost(
    release: Release, job: Job
) -> None:
    await release.install({"worker": {"replicas": 3}})
    await job.submit(150)
    freed: list[float] = []
    async with job.training():
        for _ in range(KILLS):
            pod = await busy_worker(release, job)
            await release.kill(pod)

            async def holds_nothing(pod: Json = pod) -> bool:
                return not await job.held_by(pod)

            freed.append(await seconds_until(holds_nothing, f"what {name_of(pod)} held is free"))
        await job.finished()
    note("recovery-of-a-force-deleted-pod", freed)
    assert statistics.median(freed) < LEASE_SECONDS / 3
    await job.assert_whole()


async def test_a_worker_process_that_is_killed_in_place_gives_its_groups_back(
    release: Release, job: Job, ours: Ours
) -> None:
    await release.install()
    await job.submit(40)
    freed: list[float] = []
    async with job.training():
        for _ in range(3):
            pod = await busy_worker(release, job)
            before = {worker for worker in await job.held() if worker.startswith(pod["metadata"]["uid"])}
            for pid in ours.processes(pod, "worker"):
                os.kill(pid, signal.SIGKILL)

            async def hold_nothing(before: set[str] = before) -> bool:
                return not before & (await job.held()).keys()

            freed.append(await seconds_until(hold_nothing, f"what {before} held is free"))
        await job.finished()
    note("recovery-of-a-killed-process", freed)
    assert max(freed) < LEASE_SECONDS / 3
    await job.assert_whole()


@pytest.mark.slow
async def test_a_node_that_is_drained_gives_its_work_to_the_other(release: Release, job: Job) -> None:
    await release.install({"worker": {"replicas": 4}, "drain": {"seconds": 5}})
    node = (await release.workers_ready())[0]["spec"]["nodeName"]
    await job.submit(60)
    async with job.training():
        await busy_worker(release, job)
        try:
            await kubectl("drain", node, *OF_RELEASES, "--timeout=150s")
            await job.finished()
            assert {pod["spec"].get("nodeName") for pod in await release.live()} <= set(await nodes()) - {node}
        finally:
            await command("kubectl", "uncordon", node)
    await job.assert_whole()


@pytest.mark.slow
async def test_draining_a_node_without_spare_capacity_ends_within_the_drain_and_ninety_seconds(
    release: Release, job: Job
) -> None:
    drain_seconds = 10
    there = (await nodes())[-1]
    pinned = {"pod": {"nodeSelector": {"kubernetes.io/hostname": there}}}
    await release.install({"worker": {"replicas": 4} | pinned, "drain": {"seconds": drain_seconds}})
    await job.submit(24, tokens=400)  # twenty seconds each: longer than the drain
    async with job.training():

        async def all_busy() -> bool:
            return len(await job.busy()) == 4

        await until(all_busy, "four workers hold groups")
        try:
            began = time.monotonic()
            await kubectl("drain", there, *OF_RELEASES, f"--timeout={drain_seconds + 90}s")
            note("drain-of-a-node-with-four-busy-workers", [time.monotonic() - began])
        finally:
            await command("kubectl", "uncordon", there)
        await job.finished()
    await job.assert_whole()
