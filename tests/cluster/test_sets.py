"""Engines over two pods each, under LeaderWorkerSet's own controller: orders, rollouts and deaths lose nothing."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.cluster import sets
from tests.cluster.conftest import Shared
from tests.cluster.jobs import Job
from tests.cluster.kube import Json, apply, image, name_of, uid_of, until
from tests.cluster.ours import Ours
from tests.cluster.release import SLOTS, Release
from tests.cluster.test_commands import asked
from tests.cluster.test_deaths import busy_worker

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("acted_on")]

SGLANG = "sglang"


@pytest.fixture
async def acted_on(ours: Ours) -> AsyncIterator[None]:
    async with sets.acting(ours.ground):
        yield


def over_two_pods(replicas: int) -> Json:
    """A release whose engines are parts of SGLang as far as its command line goes."""
    repository, _, tag = image().rpartition(":")
    small = {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": "1Gi", "nvidia.com/gpu": None}}
    return {
        "worker": {"replicas": replicas, "extraVolumes": [{"name": SGLANG, "configMap": {"name": SGLANG}}]},
        "engine": {
            "mode": "sidecar",
            "nodes": 2,
            "model": "any/model",
            "image": {"repository": repository, "tag": tag},
            "args": [f"--slots={SLOTS}", "--speed=20", "--half=0"],
            "resources": small,
            "shmSize": "16Mi",
            "extraEnv": [{"name": "PYTHONPATH", "value": "/fake:/app"}],
            "extraVolumeMounts": [{"name": SGLANG, "mountPath": "/fake/sglang"}],
        },
    }


async def install(release: Release, replicas: int) -> None:
    program = Path(__file__).with_name("fake_sglang.py").read_text()
    metadata = {"name": SGLANG, "namespace": release.namespace}
    data = {"launch_server.py": program}
    await apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
    await release.install(over_two_pods(replicas))


def named(release: Release, count: int) -> list[str]:
    """The first pods of the groups 0 to `count` - 1."""
    return [f"{release.deployment}-{index}" for index in range(count)]


async def test_the_highest_index_is_drained_and_goes_and_comes_again(
    release: Release, job: Job, shared: Shared
) -> None:
    await install(release, 3)
    last = named(release, 3)[-1]
    await job.submit(60)
    async with job.training():
        await until(lambda: holds(release, job, last), f"{last} works")
        told = await asked(release, "scale", "2", "--redis-url", shared.url)
        left = await release.workers_ready(2)
        assert (told["would_go"], sorted(map(name_of, left))) == ([last], named(release, 2))
        told = await asked(release, "status", "--redis-url", shared.url)
        assert [(pool["name"], pool["replicas"]) for pool in told["pools"]] == [(release.deployment, 2)]
        await asked(release, "scale", "3", "--redis-url", shared.url)
        assert sorted(map(name_of, await release.workers_ready(3))) == named(release, 3)
        await job.finished()
    await job.assert_whole()
    assert (await job.stats()).get("evicted", 0) == 0


async def holds(release: Release, job: Job, name: str) -> bool:
    found = [pod for pod in await release.live() if name_of(pod) == name]
    return bool(found) and await job.held_by(found[0]) > 0


async def test_a_part_that_is_gone_takes_its_engine_with_it_and_nothing_is_lost(release: Release, job: Job) -> None:
    await install(release, 2)
    await job.submit(40)
    async with job.training():
        leader = await busy_worker(release, job)
        (part,) = [pod for pod in await release.pods("engine") if name_of(pod).startswith(f"{name_of(leader)}-")]
        await release.kill(part)

        async def is_made_again() -> bool:
            return uid_of(leader) not in {uid_of(pod) for pod in await release.pods()}

        await until(is_made_again, f"{name_of(leader)} is another pod")
        await release.workers_ready(2)
        await job.finished()
    await job.assert_whole()


async def test_a_first_pod_that_is_killed_gives_its_groups_back(release: Release, job: Job) -> None:
    await install(release, 2)
    await job.submit(40)
    async with job.training():
        leader = await busy_worker(release, job)
        await release.kill(leader)
        await release.workers_ready(2)
        await job.finished()
    await job.assert_whole()


async def test_a_rolling_upgrade_of_sets_loses_nothing(release: Release, job: Job) -> None:
    await install(release, 2)
    old = {uid_of(pod) for pod in await release.live()}
    await job.submit(60)
    async with job.training():
        await until(job.busy, "somebody works")
        changed = [*over_two_pods(2)["engine"]["extraEnv"], {"name": "CHANGED", "value": "1"}]
        await release.upgrade({"engine": {"extraEnv": changed}})

        async def all_new() -> bool:
            return not old & {uid_of(pod) for pod in await release.pods()}

        await until(all_new, "all pods are of the new template")
        await release.workers_ready(2)
        await job.finished()
    await job.assert_whole()
