"""The pods of a fleet: what the operator reported, with its age; without an operator nothing is made up."""

from collections.abc import AsyncIterator

import pytest

from rolloutfleet.pods import FLEETS, FleetKeys, FleetReport, PodReport, PoolReport, read_reports, write_report
from tests.api.served import Served
from tests.fakes.broker import WORKER, Fleet

NAME = "ml/rollouts-of-the-api"


@pytest.fixture
async def now_ms(fleet: Fleet) -> AsyncIterator[int]:
    """Server time; the fleet's report is deleted in the end."""
    now, _ = await read_reports(fleet.broker.calls)
    yield now
    await fleet.broker.client.delete(FleetKeys(NAME).pods)
    await fleet.broker.client.zrem(FLEETS, NAME)


def report(run: str, at_ms: int) -> FleetReport:
    uid = WORKER.rsplit("/", 1)[0]
    working = PodReport(name="pod-a", uid=uid, pool="worker", reason="ready", sentence="it works", is_ready=True)
    waits = PodReport(
        name="pod-b",
        uid="u-b",
        pool="worker",
        phase="Pending",
        reason="needs_gpu",
        sentence="it needs a GPU",
        advice="add GPU nodes",
        since_ms=at_ms - 5000,
    )
    pool = PoolReport(name="worker", replicas=2, ready=1, wanted=2)
    return FleetReport(
        fleet=NAME,
        run=run,
        at_ms=at_ms,
        operator="operator-0",
        owner="fixed",
        sentence="fixed, worker: 2",
        pools=(pool,),
        pods=(working, waits),
    )


async def test_a_pod_without_a_worker_is_shown_first_with_what_to_do(
    served: Served, fleet: Fleet, run: str, now_ms: int
):
    await write_report(fleet.broker.calls, report(run, now_ms))
    await served.run(run)
    (found,) = (await served.get(f"/status/{run}/pods"))["fleets"]
    assert [(pod["name"], pod["reason"], pod["advice"]) for pod in found["pods"]] == [
        ("pod-b", "needs_gpu", "add GPU nodes"),
        ("pod-a", "ready", ""),
    ]
    assert found["pods"][0]["since_seconds"] >= 5
    assert not found["is_old"]


async def test_a_worker_carries_the_reason_of_its_pod(served: Served, fleet: Fleet, run: str, now_ms: int):
    await fleet.beat(slots=4)
    await write_report(fleet.broker.calls, report(run, now_ms))
    (worker,) = (await served.run(run))["workers"]
    assert worker["pod_reason"] == "ready"


async def test_a_report_that_has_grown_old_says_so(served: Served, fleet: Fleet, run: str, now_ms: int):
    await write_report(fleet.broker.calls, report(run, now_ms - 60_000))
    await served.run(run)
    (found,) = (await served.get(f"/status/{run}/pods"))["fleets"]
    assert found["is_old"]
    assert found["age_seconds"] >= 60


async def test_without_an_operator_it_says_so_and_no_pod_is_known(served: Served, fleet: Fleet, run: str):
    await fleet.beat(slots=4)
    (worker,) = (await served.run(run))["workers"]
    told = await served.get(f"/status/{run}/pods")
    assert (told["has_operator"], told["fleets"], worker["pod_reason"]) == (False, [], None)


async def test_the_fleet_of_another_run_is_not_shown(served: Served, fleet: Fleet, run: str, now_ms: int):
    await write_report(fleet.broker.calls, report("another-run", now_ms))
    assert (await served.run(run))["fleets"] == []
