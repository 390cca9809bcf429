"""Two operators: when the leader is killed or frozen in the middle of a step, the other ends it, exactly once."""

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from tests.cluster import audit
from tests.cluster.jobs import Job
from tests.cluster.kube import Json, get, is_going, name_of, uid_of, until
from tests.cluster.ours import Ours
from tests.cluster.release import Release

pytestmark = pytest.mark.slow

FROZEN_SECONDS = 30  # twice a Lease


async def leader(release: Release) -> Json:
    """The operator's pod that holds the Lease."""

    async def found() -> Json | None:
        (lease,) = await get("lease", f"{release.base}-operator", "-n", release.namespace)
        holder = lease["spec"].get("holderIdentity", "")
        return next((pod for pod in await release.live("operator") if name_of(pod) == holder.split("_")[0]), None)

    return await until(found, "an operator leads")


@asynccontextmanager
async def frozen(ours: Ours, pod: Json) -> AsyncGenerator[None]:
    pids = ours.processes(pod, "deploy")
    assert pids
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def drains(release: Release, job: Job) -> Callable[[], Awaitable[bool]]:
    """A worker has been told to drain, and no pod has gone yet."""

    async def fact() -> bool:
        return bool(await job.members("draining"))

    return fact


def deletes(release: Release, job: Job) -> Callable[[], Awaitable[bool]]:
    """A pod goes, and the Deployment may not know it yet."""

    async def fact() -> bool:
        return any(is_going(pod) for pod in await release.pods())

    return fact


@pytest.mark.parametrize("step", [drains, deletes], ids=["while it drains", "while a pod goes"])
@pytest.mark.parametrize("how", ["killed", "frozen"])
async def test_the_second_operator_ends_what_the_first_began(
    release: Release,
    job: Job,
    ours: Ours,
    step: Callable[[Release, Job], Callable[[], Awaitable[bool]]],
    how: str,
) -> None:
    await release.install({"worker": {"replicas": 4}, "operator": {"replicas": 2}, "drain": {"seconds": 60}})
    first = await leader(release)
    before = {uid_of(pod) for pod in await release.live()}
    await job.submit(40, tokens=300)
    async with job.training():
        await until(job.busy, "somebody works")
        await release.scale(2)
        await until(step(release, job), f"the operator {step.__name__}", pause=0.05)
        if how == "killed":
            await release.kill(first)
        else:
            async with frozen(ours, first):
                await asyncio.sleep(FROZEN_SECONDS)
        left = await release.workers_ready(2)
        await job.finished()
    assert {uid_of(pod) for pod in left} <= before
    assert await release.replicas() == 2
    told = audit.calls(ours.ground, release.namespace)
    account = f"{release.base}-operator"
    assert len({call.address for call in told if call.account == account and call.resource == "leases"}) > 1
    assert audit.late_writes(told, account) == []
    await job.assert_whole()
