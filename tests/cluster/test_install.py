"""From `helm install` to a trainer that is served, and back to an empty namespace."""

import pytest

from tests.cluster.broker import valkey_image
from tests.cluster.jobs import Job, connected
from tests.cluster.kube import CommandFailed, Json, get, kubectl, name_of, until
from tests.cluster.reach import reached
from tests.cluster.release import Release, make_secret

GROUPS = 300
PASSWORD = "only4tests"
# What is in every namespace, and what these tests put there.
NOT_OURS = {("ServiceAccount", "default"), ("ConfigMap", "kube-root-ca.crt"), ("Secret", "broker"), ("Secret", "redis")}


def bundled(run: str) -> Json:
    repository, _, tag = valkey_image().rpartition(":")
    return {
        "redis": {
            "image": {"repository": repository, "tag": tag},
            "mode": "bundled",
            "existingSecret": "redis",
            "memory": "256Mi",
            "cpu": "50m",
            "persistence": {"type": "emptyDir", "size": "1Gi"},
        },
        "run": {"name": run, "configure": "missing", "config": {"n": 4}},
        "api": {"enabled": True},
    }


async def test_an_installed_fleet_serves_300_groups_to_a_trainer_outside_of_it(release: Release) -> None:
    await make_secret(release.namespace, "redis", password=PASSWORD)
    await release.install(bundled(release.run))
    with reached(release.namespace, f"service/{release.base}-redis", 6379) as address:
        async with connected(f"redis://:{PASSWORD}@{address}/0", release.run) as job:
            await job.submit(GROUPS, tokens=10)
            async with job.training():
                await job.finished()
            await job.assert_whole()
    await release.helm("test", release.name, "--timeout=6m")


@pytest.mark.slow
async def test_upgrade_rollback_and_uninstall_leave_nothing_behind(release: Release, job: Job) -> None:
    await release.install({"worker": {"replicas": 1, "pdb": {"enabled": True}}, "api": {"enabled": True}})
    await release.upgrade({"api": {"enabled": False}})
    await release.rollback(1)
    await release.uninstall()

    async def nothing_is_left() -> bool:
        if left := await what_is_left(release.namespace):
            raise CommandFailed(f"there are still {left}")
        return True

    await until(nothing_is_left, "nothing of the release is left")


async def what_is_left(namespace: str) -> list[tuple[str, str]]:
    """Kinds and names of what a release left in its namespace."""
    kinds = (await kubectl("api-resources", "--namespaced", "--verbs=list", "-o", "name")).split()
    found = await get(",".join(kind for kind in kinds if not kind.startswith("events")), "-n", namespace)
    return [each for each in ((thing["kind"], name_of(thing)) for thing in found) if each not in NOT_OURS]
