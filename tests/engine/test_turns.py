"""Samples that are broken off, against the real server: the next holder's tokens fit those of the one before."""

import os
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import numpy as np
import pytest

from rolloutfleet.broker import Broker
from rolloutfleet.messages import CompletedGroup, Sample
from rolloutfleet.reading import fetch
from rolloutfleet.redis import connect
from tests.engine.client import Client, client_of
from tests.fakes.engine import FakeEngine
from tests.worker.fleet import Fleet, until

URLS = os.environ.get("ROLLOUTFLEET_ENGINE_URLS", "").split()
PROMPT = [5, 6, 7, 8]
BUDGET = 300
NEAR = 1e-3

pytestmark = [
    pytest.mark.skipif(not URLS, reason="needs real engines: make test-engine starts them"),
    pytest.mark.timeout(300),
]


@pytest.fixture
async def fleet(run: str, redis_url: str) -> AsyncIterator[Fleet]:
    async with connect(redis_url) as client, FakeEngine() as nobody:
        yield Fleet(Broker(client, run), redis_url, nobody)


@pytest.fixture
async def slow() -> AsyncIterator[Client]:
    """An engine in the middle of whose answers something can happen."""
    async with client_of(URLS[0]) as client:
        await client.post("/slow_down", {"forward_sleep_time": 0.02})
        yield client
        await client.post("/slow_down", {"forward_sleep_time": None})


def settings(**more: Any) -> dict[str, Any]:
    return {"engine_url": URLS[0], "slots": 4, "vocab_size": 512, "reward": "tests.engine.hooks:length"} | more


async def submit(fleet: Fleet) -> None:
    await fleet.configure(n=2, lease_seconds=60)
    params = {"max_new_tokens": BUDGET, "ignore_eos": True, "temperature": 1.0}
    await fleet.submit("g", input_ids=PROMPT, sampling_params=params)


async def finished(fleet: Fleet) -> CompletedGroup:
    await until(lambda: fleet.stat("completed"), 200)
    _, entries = await fleet.broker.take("trainer", 1)
    (group,) = await fetch(fleet.broker, entries)
    await fleet.broker.ack([group.entry])
    return group


async def begun(fleet: Fleet) -> list[int]:
    """How many tokens are kept of each unfinished sample."""
    (born,) = await fleet.broker.calls.read([["HGET", fleet.broker.keys.group("g"), "born"]])
    return [Sample.decode(data).length for data in (await fleet.broker.partials("g", born.decode())).values()]


async def of_a_prefill(ids: list[int]) -> list[float]:
    """The log-probabilities of these tokens after the prompt, in one piece."""
    body: dict[str, Any] = {
        "input_ids": PROMPT + ids,
        "sampling_params": {"max_new_tokens": 1, "temperature": 1.0},
        "return_logprob": True,
        "logprob_start_len": len(PROMPT) - 1,
    }
    async with aiohttp.ClientSession() as session, session.post(f"{URLS[0]}/generate", json=body) as answer:
        told = (await answer.json())["meta_info"]["input_token_logprobs"]
    return [entry[0] for entry in told][-len(ids) :]


async def assert_whole(group: CompletedGroup) -> None:
    for sample in group.samples:
        (row,) = sample.rows
        assert (len(row), sample.finish, row.mask.all()) == (BUDGET, "length", True)
        assert np.abs(row.logprobs - np.asarray(await of_a_prefill(row.ids.tolist()))).max() < NEAR


async def test_the_next_holder_goes_on_from_what_a_drained_one_was_told(fleet: Fleet, slow: Client) -> None:
    await submit(fleet)
    async with fleet.worker(**settings(drain_seconds=0)) as first:
        await until(lambda: slow.load(), 60)
        await slow.until_load(running=2)
        first.stop.ask()
        await first.ended()
        assert len(await begun(fleet)) == 2
        async with fleet.worker(**settings()):
            group = await finished(fleet)
    await slow.post("/slow_down", {"forward_sleep_time": None})
    await assert_whole(group)
    assert await fleet.stat("tokens_continued") > 0


async def test_the_next_holder_goes_on_from_what_a_killed_one_had_streamed(fleet: Fleet, slow: Client) -> None:
    async def has_streamed() -> bool:
        return max(await begun(fleet), default=0) >= 16  # the engine sends the first token at once

    await submit(fleet)
    async with fleet.worker(**settings(partial_tokens=16)) as first:
        await until(has_streamed, 60)
        first.stop.ask()
        first.stop.ask()  # at once: nothing is asked of the engine any more
        await first.ended()
        async with fleet.worker(**settings(partial_tokens=16)):
            group = await finished(fleet)
    await slow.post("/slow_down", {"forward_sleep_time": None})
    await assert_whole(group)
    assert await fleet.stat("tokens_continued") > 0


async def test_an_abort_in_the_middle_joins_what_belongs_together(fleet: Fleet, slow: Client) -> None:
    await submit(fleet)
    async with fleet.worker(**settings()):
        await slow.until_load(running=2)
        await slow.post("/abort_request", {"abort_all": True})
        group = await finished(fleet)
        await until(lambda: fleet.stat("retries"))
    await slow.post("/slow_down", {"forward_sleep_time": None})
    await assert_whole(group)
