"""Slots that follow what the real engine says of its cache: fewer while it throws requests out, then more again."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from rolloutfleet.answers import as_texts
from rolloutfleet.broker import Broker
from rolloutfleet.redis import connect
from tests.engine.client import client_of
from tests.engine.model import make_model
from tests.engine.servers import Servers
from tests.fakes.engine import FakeEngine
from tests.worker.fleet import Fleet, until

PYTHON = os.environ.get("ROLLOUTFLEET_ENGINE_PYTHON", "")
CACHE, SLOTS, N = 1024, 16, 4
LONG, SHORT = 240, 40  # of the long ones the cache holds four, of the short ones all
PATIENCE_SECONDS = 240

pytestmark = [
    pytest.mark.skipif(not PYTHON, reason="needs the real engine: make test-engine makes it"),
    pytest.mark.timeout(3 * PATIENCE_SECONDS),
]


@pytest.fixture
async def url(tmp_path: Path) -> AsyncIterator[str]:
    """An engine with room for a few samples."""
    with Servers(Path(PYTHON), make_model(tmp_path / "model"), tmp_path) as servers:
        server = await asyncio.to_thread(servers.start, "--max-total-tokens", str(CACHE), "--enable-metrics")
        await asyncio.to_thread(servers.wait, server)
        yield server.url


@pytest.fixture
async def fleet(run: str, redis_url: str) -> AsyncIterator[Fleet]:
    async with connect(redis_url) as client:
        yield Fleet(Broker(client, run), redis_url, FakeEngine())


async def submit(fleet: Fleet, tokens: int, *ids: str) -> None:
    # A least length, and not ignore_eos: the engine reckons with what is sure, and takes no more than fits.
    params: dict[str, Any] = {"max_new_tokens": tokens, "min_new_tokens": tokens, "temperature": 1.0}
    await fleet.submit(*ids, sampling_params=params)


async def slots_of(fleet: Fleet) -> int:
    """Of the only worker."""
    (flat,) = await fleet.broker.calls.read([["HGETALL", fleet.broker.keys.named("capacity")]])
    return next((json.loads(text)["slots"] for name, text in as_texts(flat).items() if name.endswith(":facts")), 0)


async def has_few(fleet: Fleet) -> bool:
    return 0 < await slots_of(fleet) < SLOTS


async def has_all_or_needs_more(fleet: Fleet) -> bool:
    return await slots_of(fleet) == SLOTS or not await fleet.broker.queued()


async def has_completed(fleet: Fleet, groups: int) -> bool:
    (waiting,) = await fleet.broker.calls.read([["XLEN", fleet.broker.keys.named("completed")]])
    return waiting >= groups


async def lengths(fleet: Fleet, groups: int) -> set[tuple[str, str]]:
    """(id, lengths) of so many groups, once all of them are completed."""
    await until(lambda: has_completed(fleet, groups), PATIENCE_SECONDS)
    return {(entry.id, entry.fields["lengths"].decode()) for entry in await fleet.completed(groups)}


async def test_a_full_cache_lowers_the_slots_room_raises_them_again_and_nothing_is_lost(fleet: Fleet, url: str) -> None:
    await fleet.configure(n=N, sample_concurrency=4096, bent_sampling="allow")
    settings: dict[str, Any] = {"slots": SLOTS, "adapt_slots": True, "adapt_seconds": 0.2, "vocab_size": 512}
    async with fleet.worker(engine_url=url, reward="tests.engine.hooks:length", **settings):
        await submit(fleet, LONG, *(f"long-{number}" for number in range(SLOTS // N)))
        await until(lambda: has_few(fleet), PATIENCE_SECONDS)
        made = await lengths(fleet, SLOTS // N)
        short: list[str] = []
        while await slots_of(fleet) < SLOTS:
            more = [f"short-{len(short) + number}" for number in range(10)]
            await submit(fleet, SHORT, *more)
            short += more
            await until(lambda: has_all_or_needs_more(fleet), PATIENCE_SECONDS)
        made |= await lengths(fleet, len(short))
    async with client_of(url) as client:
        assert "sglang:num_retracted_requests_total" in (await client.get("/metrics"))[1]
    expected = {(f"long-{number}", json.dumps([LONG] * N)) for number in range(SLOTS // N)}
    assert made == expected | {(name, json.dumps([SHORT] * N)) for name in short}
