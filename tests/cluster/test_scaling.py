"""The number of workers: more under pressure, fewer by choice, and never at the cost of work that is under way."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from tests.cluster.jobs import Job
from tests.cluster.kube import get, name_of, uid_of, until
from tests.cluster.measured import note
from tests.cluster.release import Release
from tests.cluster.test_deaths import seconds_until

pytestmark = pytest.mark.slow


@dataclass(slots=True)
class Seen:
    """What a Deployment was, look by look: (wanted replicas, whether pods of an older template were there)."""

    looks: list[tuple[int, bool]] = field(default_factory=list[tuple[int, bool]])

    @property
    def replicas(self) -> set[int]:
        return {replicas for replicas, _ in self.looks}


@asynccontextmanager
async def watched(release: Release) -> AsyncGenerator[Seen]:
    """Looks at the Deployment all the time during the block."""
    seen = Seen()

    async def look() -> None:
        while True:
            (found,) = await get("deployment", "-n", release.namespace, release.deployment)
            status, replicas = found["status"], found["spec"]["replicas"]
            seen.looks.append((replicas, status.get("updatedReplicas", 0) < status.get("replicas", 0)))
            await asyncio.sleep(0.3)

    looking = asyncio.create_task(look())
    try:
        yield seen
    finally:
        looking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await looking


async def test_the_fleet_grows_under_pressure_and_shrinks_when_the_work_is_done(release: Release, job: Job) -> None:
    await release.install(
        {"worker": {"replicas": 1}, "scaling": {"owner": "operator", "minWorkers": 1, "maxWorkers": 3}}
    )
    await job.submit(90)
    async with job.training():
        note("scale-up-after-prompts-came", [await seconds_until(lambda: _has_grown(release), "more are wanted")])
        await release.workers_ready(3)
        await job.finished()
        await release.workers_ready(1)
    await job.assert_whole()
    assert (await job.stats()).get("evicted", 0) == 0


async def _has_grown(release: Release) -> bool:
    return await release.replicas() > 1


async def test_an_idle_worker_goes_before_a_busy_one(release: Release, job: Job) -> None:
    await release.install({"worker": {"replicas": 3}})
    await job.submit(1, tokens=500)
    (busy,) = await until(job.busy, "one worker holds the group")
    await release.scale(1)
    (left,) = await release.workers_ready(1)
    assert uid_of(left) == busy
    async with job.training():
        await job.finished()
    await job.assert_whole()


async def test_a_drained_worker_finishes_what_it_holds_and_claims_no_more(release: Release, job: Job) -> None:
    await release.install()
    await job.submit(40)
    async with job.training():
        await until(job.busy, "somebody works")
        pod = (await release.live())[0]
        await release.drain(pod)

        async def is_idle() -> bool:
            return uid_of(pod) in await job.members("draining") and not await job.held_by(pod)

        await until(is_idle, f"{name_of(pod)} holds nothing")
        await job.finished()
    await job.assert_whole()


async def test_nothing_is_scaled_down_in_the_middle_of_a_rollout(release: Release, job: Job) -> None:
    await release.install({"worker": {"replicas": 4}})
    await job.submit(60)
    async with job.training(), watched(release) as seen:
        changed = {"worker": {"replicas": 2, "extraEnv": [{"name": "CHANGED", "value": "1"}]}}
        await release.upgrade(changed, wait=False)
        await release.workers_ready(2)
        await job.finished()
    assert {replicas for replicas, is_rolling in seen.looks if is_rolling} == {4}
    wanted = [replicas for replicas, _ in seen.looks]
    assert wanted == sorted(wanted, reverse=True)
    assert seen.looks[-1] == (2, False)
    await job.assert_whole()


async def test_a_rolling_upgrade_under_load_loses_nothing(release: Release, job: Job) -> None:
    await release.install({"worker": {"replicas": 3}})
    old = {uid_of(pod) for pod in await release.live()}
    await job.submit(120)
    async with job.training():
        await until(job.busy, "somebody works")
        await release.upgrade({"worker": {"extraEnv": [{"name": "CHANGED", "value": "1"}]}})
        assert not old & {uid_of(pod) for pod in await release.workers_ready(3)}
        await job.finished()
    await job.assert_whole()
