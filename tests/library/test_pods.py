"""What an operator writes of its pods is what the status service reads."""

from collections.abc import AsyncIterator

import pytest
import redis.asyncio

from rolloutfleet.calls import Calls
from rolloutfleet.keys import Keys
from rolloutfleet.pods import FLEETS, FleetKeys, FleetReport, PodReport, read_reports, write_report
from rolloutfleet.redis import connect

REPORT = FleetReport(
    fleet="ml/rollouts",
    run="math",
    at_ms=0,
    operator="operator-0",
    owner="fixed",
    sentence="2 workers are wanted",
    pods=(PodReport(name="worker-1", uid="u-1", pool="worker", reason="ready", sentence="ready"),),
)


@pytest.fixture
async def calls(redis_url: str) -> AsyncIterator[Calls]:
    async with connect(redis_url) as client:
        yield Calls(client, Keys("any"), retry_seconds=5)
        await client.delete(FLEETS, FleetKeys("ml/rollouts").pods)


async def test_what_was_written_is_read_with_its_time(calls: Calls) -> None:
    now, _ = await read_reports(calls)
    report = REPORT.model_copy(update={"at_ms": now})
    await write_report(calls, report)
    assert (await read_reports(calls))[1] == [report]


async def test_a_report_that_a_newer_operator_wrote_is_read(calls: Calls, client: redis.asyncio.Redis) -> None:
    await write_report(calls, REPORT.model_copy(update={"at_ms": 2**50}))
    text = REPORT.model_dump_json().replace('"at_ms":0', '"at_ms":5,"colour":"blue"')
    await client.set(FleetKeys("ml/rollouts").pods, text)
    assert [report.at_ms for report in (await read_reports(calls))[1]] == [5]


async def test_a_report_that_makes_no_sense_is_none(calls: Calls, client: redis.asyncio.Redis) -> None:
    await write_report(calls, REPORT.model_copy(update={"at_ms": 2**50}))
    await client.set(FleetKeys("ml/rollouts").pods, "[]")
    assert (await read_reports(calls))[1] == []


@pytest.mark.parametrize("fleet", ["", "ml", "ml/", "ML/x", "ml/a/b", "ml/a:b"])
def test_a_fleet_is_a_namespace_and_a_release(fleet: str) -> None:
    with pytest.raises(ValueError, match="namespace"):
        FleetKeys(fleet)
