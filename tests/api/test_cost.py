"""What Redis is asked: the same each second, however many watch and however long the queues are."""

import asyncio
from collections import Counter

from api.connection import connect_plain
from api.routes.events import stream
from api.sampler import Sampler
from rolloutfleet.redis import Client
from tests.api.served import Served
from tests.fakes.broker import Fleet, group

VIEWERS = 50
RARE = frozenset({"info", "scan", "client|setinfo", "client|setname", "hello", "config|resetstat", "config|get"})


async def calls(client: Client) -> Counter[str]:
    """Calls of each command since the server began, but for those that are made now and then."""
    told = await client.info("commandstats")
    named = {name.removeprefix("cmdstat_"): one["calls"] for name, one in told.items()}
    return Counter({name: number for name, number in named.items() if name not in RARE})


async def calls_of_a_look(sampler: Sampler, client: Client) -> Counter[str]:
    before = await calls(client)
    await sampler.look()
    return await calls(client) - before


async def test_a_look_costs_the_same_however_long_the_queues_are(redis_url: str, fleet: Fleet, run: str):
    await fleet.run_through("done")
    await fleet.submit("head")
    async with connect_plain(redis_url) as client:
        sampler = Sampler(client, stuck_seconds=600)
        await sampler.look()
        short = await calls_of_a_look(sampler, client)
        await fleet.broker.submit([group(f"g{number}") for number in range(2000)])
        long = await calls_of_a_look(sampler, client)
    assert sum(short.values()) < 30
    assert long == short
    await fleet.take_and_ack()
    await fleet.delete()


async def test_discovery_looks_at_a_bounded_piece_of_the_keys_in_each_look(redis_url: str, fleet: Fleet, run: str):
    await fleet.broker.submit([group(f"g{number}") for number in range(2000)])
    async with connect_plain(redis_url) as client:
        before = await scans(client)
        await Sampler(client, stuck_seconds=600).look()
        after = await scans(client)
    assert after - before <= 20  # once; then it rests
    await fleet.delete()


async def scans(client: Client) -> int:
    told = await client.info("commandstats")
    return told.get("cmdstat_scan", {"calls": 0})["calls"]


async def test_viewers_cost_redis_nothing(served: Served, redis_url: str, fleet: Fleet, run: str):
    await fleet.submit("head")
    async with connect_plain(redis_url) as client:
        each = await calls_of_a_look(served.service.sampler, client)
        before = await calls(client)
        await asyncio.gather(*(watch(served, run) for _ in range(VIEWERS)))
        made = await calls(client) - before
    looks = made["time"] + 1  # one may be under way
    assert {name: number for name, number in made.items() if number > each[name] * looks} == {}
    await fleet.finish_all()


async def watch(served: Served, run: str) -> None:
    """Three events, and the pages that are shown from the snapshot."""
    parts = stream(served.service.publisher, None)
    for _ in range(4):
        await anext(parts)
    await parts.aclose()
    for path in ("/status", f"/status/{run}", f"/status/{run}/workers", f"/status/{run}/history", "/metrics"):
        assert (await served.http.get(path)).status_code == 200
