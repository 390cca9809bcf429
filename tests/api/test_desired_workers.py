"""The number for an autoscaler over HTTP: with its age, summed over the runs, and never made up."""

import time

from tests.api.served import Served, serving
from tests.fakes.broker import Fleet


async def test_the_desired_number_has_a_reason_and_an_age(served: Served, fleet: Fleet, run: str):
    await served.run(run)
    found = await served.get("/desired_workers", run=run)
    assert found["desired_workers"] == 1
    assert found["reason"]
    assert 0 <= found["age_seconds"] < 5


async def test_without_a_run_it_is_the_sum_over_all(served: Served, fleet: Fleet, run: str):
    other = await Fleet.make(fleet.client, f"{run}-too")
    await served.service.run(f"{run}-too")
    each = [
        (await served.get("/desired_workers", run=name))["desired_workers"] for name in served.service.sampler.books
    ]
    assert (await served.get("/desired_workers"))["desired_workers"] == sum(each) >= 2
    await other.delete()


async def test_data_older_than_30_seconds_is_503_and_no_number(served: Served, fleet: Fleet, run: str):
    await served.run(run)
    served.service.sampler.books[run].at = time.monotonic() - 31
    for query in ({"run": run}, {}):
        answer = await served.http.get("/desired_workers", params=query)
        assert (answer.status_code, "desired_workers" in answer.json()) == (503, False)


async def test_no_run_at_all_is_503():
    async with serving("redis://127.0.0.1:1") as served:
        answer = await served.http.get("/desired_workers")
    assert answer.status_code == 503


async def test_a_wrong_run_is_404(served: Served):
    assert (await served.http.get("/desired_workers", params={"run": "nothing-of-this-name"})).status_code == 404
