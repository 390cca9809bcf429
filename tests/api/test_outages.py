"""Redis slow, away and back: the last data stays, with its age, and nobody waits for Redis."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from deploy.embedded import EmbeddedServer
from tests.api.served import BEARER, TOKEN, Served, serving
from tests.fakes.broker import Fleet
from tests.fakes.proxy import Proxy
from tests.fakes.worker import until


@pytest.fixture
async def proxy(valkey: EmbeddedServer) -> AsyncIterator[Proxy]:
    async with Proxy("127.0.0.1", valkey.port) as proxy:
        yield proxy


@pytest.fixture
async def behind(proxy: Proxy, fleet: Fleet) -> AsyncIterator[Served]:
    """The service behind the proxy, with a second's patience for pages and actions."""
    async with serving(proxy.url, token=TOKEN, redis_seconds=0.5) as served:
        yield served


async def status(served: Served) -> dict[str, Any]:
    return await served.get("/status")


async def is_away(served: Served) -> bool:
    return (await status(served))["redis"]["state"] == "away"


async def is_back(served: Served) -> bool:
    return (await status(served))["redis"]["state"] == "ok"


async def go_away(served: Served, proxy: Proxy) -> None:
    await proxy.refuse(True)
    await until(lambda: is_away(served), "the service sees that Redis is away")


async def test_away_is_said_with_a_reason_and_the_last_data_stays(behind: Served, proxy: Proxy, run: str):
    await go_away(behind, proxy)
    found = await status(behind)
    assert found["redis"]["reason"]
    assert run in [one["name"] for one in found["runs"]]


async def test_the_age_of_the_data_grows_while_redis_is_away(behind: Served, proxy: Proxy, run: str):
    async def age() -> float:
        return (await behind.get(f"/status/{run}"))["run"]["age_seconds"]

    await go_away(behind, proxy)
    first = await age()

    async def has_grown() -> bool:
        return await age() > first + 1

    await until(has_grown, "the age grows")


async def test_redis_that_comes_back_is_seen(behind: Served, proxy: Proxy):
    await go_away(behind, proxy)
    await proxy.refuse(False)
    await until(lambda: is_back(behind), "the service sees that Redis is back")


async def test_a_slow_redis_is_away_and_the_last_snapshot_comes_within_a_second(behind: Served, proxy: Proxy, run: str):
    proxy.delay(1.5)
    await until(lambda: is_away(behind), "the service sees that Redis is slow")
    found = await status(behind)
    assert "answer" in found["redis"]["reason"]
    assert run in [one["name"] for one in found["runs"]]
    proxy.delay(0)


async def test_a_service_that_starts_without_redis_says_so_and_serves():
    async with serving("redis://127.0.0.1:1") as served:
        await until(lambda: is_away(served), "the service sees that Redis is away")
        found = await status(served)
    assert (found["runs"], found["server"], found["redis"]["age_seconds"]) == ([], None, None)


async def test_ready_means_that_it_serves(behind: Served, proxy: Proxy):
    await go_away(behind, proxy)
    found = await behind.get("/readyz")
    assert (found["status"], found["redis"]["state"]) == ("ok", "away")


async def test_the_metrics_say_that_redis_is_away(behind: Served, proxy: Proxy):
    await go_away(behind, proxy)
    assert "rolloutfleet_redis_up 0.0" in (await behind.http.get("/metrics")).text


@pytest.mark.parametrize(
    "path", ["/status/{run}/groups", "/status/{run}/dead", "/status/{run}/groups/a", "/status/new"]
)
async def test_what_must_be_asked_now_is_503_with_a_sentence(behind: Served, proxy: Proxy, run: str, path: str):
    await go_away(behind, proxy)
    answer = await behind.http.get(path.format(run=run))
    assert answer.status_code == 503
    assert "Redis" in answer.json()["detail"]


async def test_an_action_that_redis_does_not_answer_is_503_and_recorded(behind: Served, proxy: Proxy, run: str):
    await go_away(behind, proxy)
    answer = await behind.http.post(f"/actions/{run}/pause", headers=BEARER)
    records = (await behind.http.get("/audit", headers=BEARER)).json()["records"]
    assert answer.status_code == 503
    assert records[0]["outcome"].startswith("failed: ")
