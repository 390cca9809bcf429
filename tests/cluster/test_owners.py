"""Who scales may change, and releases may be upgraded and rolled back: the number of workers stays what it is."""

import pytest

from tests.cluster.crds import apply_crd
from tests.cluster.jobs import Job
from tests.cluster.kube import Json
from tests.cluster.release import Release
from tests.cluster.test_scaling import watched

pytestmark = pytest.mark.slow

LIVE = 5
# Each ordered pair of owners once.
WAY = ("fixed", "operator", "keda", "operator", "fixed", "keda", "fixed")
NEVER_SHRINKS = {"owner": "fixed", "minWorkers": 1, "maxWorkers": 8, "cooldownSeconds": 3600}


def owned_by(owner: str) -> Json:
    return {"scaling": {"owner": owner}, "api": {"enabled": owner == "keda"}}


async def test_the_owner_changes_through_all_pairs_and_the_number_stays(release: Release, job: Job) -> None:
    await apply_crd("keda.sh", "v1alpha1", "ScaledObject", "scaledobjects")
    await release.install({"worker": {"replicas": LIVE}, "scaling": NEVER_SHRINKS})
    async with watched(release) as seen:
        for owner in WAY[1:]:
            await release.upgrade(owned_by(owner))
        await release.rollback(2)  # to the operator's
        await release.rollback(3)  # to KEDA's
        await release.rollback(1)  # to the fixed number
        await release.workers_ready(LIVE)
    assert seen.replicas == {LIVE}


async def test_neither_way_of_helm_to_apply_changes_the_number(release: Release, job: Job) -> None:
    await release.install({"worker": {"replicas": LIVE}, "scaling": NEVER_SHRINKS})
    async with watched(release) as seen:
        await release.upgrade(owned_by("operator"), "--server-side=false")
        await release.upgrade(owned_by("fixed"), "--server-side=true", "--force-conflicts")
        await release.upgrade(owned_by("operator"), "--server-side=false")
        await release.rollback(1, "--server-side=false")
        await release.workers_ready(LIVE)
    assert seen.replicas == {LIVE}


async def test_helm_3_changes_no_number_either(release: Release, job: Job) -> None:
    await release.install({"worker": {"replicas": LIVE}, "scaling": NEVER_SHRINKS}, generation=3)
    async with watched(release) as seen:
        await release.upgrade(owned_by("operator"), generation=3)
        await release.upgrade(owned_by("fixed"), generation=3)
        await release.rollback(2, generation=3)
        await release.workers_ready(LIVE)
    assert seen.replicas == {LIVE}
