"""A scale-down takes the pod that was chosen: pods that only look as if they were nothing survive it."""

import pytest

from tests.cluster.jobs import Job
from tests.cluster.kube import Json, is_ready, uid_of, until
from tests.cluster.ours import Ours
from tests.cluster.release import Release
from tests.cluster.test_gpus import ONE_EACH, gpus

pytestmark = pytest.mark.slow

NODE = "node0"


async def test_an_unready_busy_worker_and_two_pending_ones_survive_a_scale_down(
    release: Release, job: Job, ours: Ours
) -> None:
    async with gpus(3, NODE):
        await release.install({"worker": {"replicas": 5}} | ONE_EACH, wait=False)

        async def three_of_five() -> bool:
            pods = await release.live()
            return len(pods) == 5 and sum(map(is_ready, pods)) == 3

        await until(three_of_five, "three workers have a GPU, and two wait")
        await job.submit(1, tokens=1500)  # more than a minute
        (busy,) = await until(job.busy, "one worker holds the group")
        bystander, *idle = sorted(await _running(release), key=lambda pod: uid_of(pod) != busy)
        pending = {uid_of(pod) for pod in await release.live()} - {uid_of(pod) for pod in [bystander, *idle]}
        async with ours.unprobed(bystander):
            await until(lambda: _is_unready(release, busy), "the busy worker is not ready")
            await release.drain(idle[0])
            await release.scale(4)
            await until(lambda: _has_gone(release, uid_of(idle[0])), "the drained worker has gone")
            left = {uid_of(pod) for pod in await release.live()}
            assert {busy, *pending} <= left
            assert await release.replicas() == 4
        async with job.training():
            await job.finished()
    await job.assert_whole()


async def _running(release: Release) -> list[Json]:
    return [pod for pod in await release.live() if is_ready(pod)]


async def _is_unready(release: Release, uid: str) -> bool:
    return not any(is_ready(pod) for pod in await release.live() if uid_of(pod) == uid)


async def _has_gone(release: Release, uid: str) -> bool:
    return await release.replicas() == 4 and uid not in {uid_of(pod) for pod in await release.pods()}
