"""What the operator asks of the API server, as that wrote it down."""

import asyncio
import time

import pytest

from tests.cluster import audit
from tests.cluster.jobs import Job
from tests.cluster.measured import note
from tests.cluster.ours import Ours
from tests.cluster.release import Release

pytestmark = pytest.mark.slow

LOOK_SECONDS = 60
PER_SECOND = 0.2  # for each hundred pods, besides the Lease


async def test_an_operator_whose_fleet_rests_asks_for_little(release: Release, job: Job, ours: Ours) -> None:
    await release.install({"worker": {"replicas": 3}})
    began = time.time()
    await asyncio.sleep(LOOK_SECONDS)
    told = [call for call in audit.calls(ours.ground, release.namespace) if call.at > began]
    made = [call for call in told if call.account == f"{release.base}-operator" and call.resource != "leases"]
    note("operator-calls-per-second-at-rest", [len(made) / LOOK_SECONDS], unit="calls")
    assert made, "the API server writes down no calls"
    assert len(made) < 3 * PER_SECOND * LOOK_SECONDS
    assert [call for call in made if call.is_write] == []
