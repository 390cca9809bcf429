"""Pods that ask for GPUs, on nodes whose status says that they have some."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from tests.cluster.jobs import Job
from tests.cluster.kube import Json, get, is_ready, kubectl, uid_of, until
from tests.cluster.ours import Ours
from tests.cluster.release import Release

pytestmark = pytest.mark.slow

GPU = "nvidia.com/gpu"
NODE = "node1"
ONE_EACH = {"engine": {"simulated": {"resources": {"limits": {GPU: 1}}}}}


@asynccontextmanager
async def gpus(count: int, node: str = NODE) -> AsyncGenerator[None]:
    path = f"/status/capacity/{GPU.replace('/', '~1')}"
    await _patch(node, {"op": "add", "path": path, "value": str(count)})
    try:
        await until(lambda: _allocatable(node), f"{node} offers GPUs")
        yield
    finally:
        await _patch(node, {"op": "remove", "path": path})


async def _patch(node: str, change: Json) -> None:
    await kubectl("patch", "node", node, "--subresource=status", "--type=json", "--patch", json.dumps([change]))


async def _allocatable(node: str) -> bool:
    (found,) = await get("node", node)
    return GPU in found["status"]["allocatable"]


async def test_a_rollout_ends_where_every_gpu_is_taken_and_who_has_none_waits(
    release: Release, job: Job, ours: Ours
) -> None:
    async with gpus(2):
        await release.install({"worker": {"replicas": 3}} | ONE_EACH, wait=False)

        async def two_of_three() -> bool:
            pods = await release.live()
            return len(pods) == 3 and sum(map(is_ready, pods)) == 2

        await until(two_of_three, "two workers have a GPU, and one waits")
        await until(lambda: _says(job, release, "gpu"), "the operator's report names the GPU")
        await release.scale(2)  # a rollout would wait for who finds no GPU
        old = {uid_of(pod) for pod in await release.workers_ready(2)}
        await release.upgrade({"worker": {"extraEnv": [{"name": "CHANGED", "value": "1"}]}})
        assert not old & {uid_of(pod) for pod in await release.workers_ready(2)}


async def _says(job: Job, release: Release, word: str) -> bool:
    """Whether what the operator wrote of a pod names this word."""
    reports = await release.reports(job)
    return any(word in f"{pod.sentence} {pod.advice}".lower() for report in reports for pod in report.pods)
