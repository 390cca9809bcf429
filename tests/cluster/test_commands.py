"""`python -m deploy ...` as people call it, with their own kubeconfig."""

import json
import sys
from pathlib import Path

import pytest

from tests.cluster.conftest import Shared
from tests.cluster.jobs import Job
from tests.cluster.kube import CommandFailed, Json, command, name_of, uid_of, until
from tests.cluster.release import Release
from tests.cluster.test_rights import of_account


async def deploy(release: Release, *words: str) -> str:
    """What it says. Errors: CommandFailed where it exits with anything but 0."""
    return await command(sys.executable, "-m", "deploy", *words, "--namespace", release.namespace)


async def asked(release: Release, *words: str) -> Json:
    return json.loads(await deploy(release, *words, "--json"))


async def test_status_and_doctor_name_what_is_there_and_find_nothing_wrong(
    release: Release, job: Job, shared: Shared
) -> None:
    await release.install()
    told = await asked(release, "status", "--redis-url", shared.url)
    assert {pod["name"]: (pod["reason"], pod["held"]) for pod in told["pods"]} == {
        name_of(pod): ("ready", 0) for pod in await release.live()
    }
    assert [pool["replicas"] for pool in told["pools"]] == [2]
    found = await asked(release, "doctor", "--redis-url", shared.url)
    assert all(each["ok"] for each in found["findings"])


async def test_the_worker_that_a_dry_run_names_is_the_one_that_goes(release: Release, job: Job, shared: Shared) -> None:
    await release.install()
    await job.submit(1, tokens=500)
    (busy,) = await until(job.busy, "one worker holds the group")
    scale = ("scale", "1", "--redis-url", shared.url)
    (named,) = (await asked(release, *scale, "--dry-run"))["would_go"]
    assert await release.replicas() == 2
    assert (await asked(release, *scale))["would_go"] == [named]
    (left,) = await release.workers_ready(1)
    assert (uid_of(left) == busy, name_of(left) == named) == (True, False)
    async with job.training():
        await job.finished()
    await job.assert_whole()


async def test_a_worker_that_is_drained_by_command_is_given_back_by_command(release: Release, job: Job) -> None:
    await release.install({"worker": {"replicas": 1}})
    (pod,) = await release.live()

    async def drains() -> bool:
        return uid_of(pod) in await job.members("draining")

    async def claims_again() -> bool:
        return not await drains()

    await deploy(release, "drain", name_of(pod))
    await until(drains, "the worker was told to drain")
    await deploy(release, "undrain", name_of(pod))
    await until(claims_again, "the worker was told to go on")
    await job.submit(4)
    async with job.training():
        await job.finished()
    await job.assert_whole()


async def test_a_restart_replaces_every_worker_and_loses_nothing(release: Release, job: Job) -> None:
    await release.install()
    old = {uid_of(pod) for pod in await release.live()}
    await job.submit(40)
    async with job.training():
        await deploy(release, "restart")

        async def are_new() -> bool:
            return not old & {uid_of(pod) for pod in await release.pods()}

        await until(are_new, "no pod of before is left")
        await release.workers_ready(2)
        await job.finished()
    await job.assert_whole()


async def test_doctor_names_what_keeps_a_worker_from_starting(release: Release, job: Job) -> None:
    nowhere = {"pod": {"nodeSelector": {"kubernetes.io/hostname": "nowhere"}}}
    await release.install({"worker": {"replicas": 1} | nowhere}, wait=False)

    async def is_named() -> bool:
        with pytest.raises(CommandFailed) as failed:
            await deploy(release, "doctor")
        return "no node has room for it" in str(failed.value)

    await until(is_named, "the doctor says that the pod finds no node")


async def test_who_may_not_look_is_told_which_verb_is_missing(
    release: Release, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config").write_text(json.dumps(await of_account(release, "default")))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    with pytest.raises(CommandFailed, match="not permitted: list deployments in namespace"):
        await deploy(release, "status")


async def test_a_release_that_is_not_there_is_said_to_be_missing(release: Release) -> None:
    with pytest.raises(CommandFailed, match="no release"):
        await deploy(release, "status", "--release", "another")
