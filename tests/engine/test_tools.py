"""Turns and tools on the real engine: the calculator of examples/, called by a model whose words a grammar decides."""

import itertools
import os
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest

from examples.calculator import CALL, END, MOST_CALLS, calculate
from rolloutfleet.broker import Broker
from rolloutfleet.messages import CompletedGroup, Row
from rolloutfleet.reading import fetch
from rolloutfleet.redis import connect
from tests.engine.client import Client, client_of
from tests.engine.hooks import Watched
from tests.fakes.engine import FakeEngine
from tests.worker.fleet import Fleet, until

URLS = os.environ.get("ROLLOUTFLEET_ENGINE_URLS", "").split()
QUESTION = "What is 3 times 4?"
GRAMMAR = r"[a-z ]{0,5}<calc>[1-9] [*+-] [1-9]</calc>"
N = 4
NEAR = 1e-3
PATIENCE_SECONDS = 200

pytestmark = [
    pytest.mark.skipif(not URLS, reason="needs real engines: make test-engine starts them"),
    pytest.mark.timeout(2 * PATIENCE_SECONDS),
]


@pytest.fixture
async def fleet(run: str, redis_url: str) -> AsyncIterator[Fleet]:
    async with connect(redis_url) as client:
        yield Fleet(Broker(client, run), redis_url, FakeEngine())


@pytest.fixture
async def engine() -> AsyncIterator[Client]:
    async with client_of(URLS[0]) as client:
        yield client
        await client.post("/slow_down", {"forward_sleep_time": None})


@pytest.fixture(autouse=True)
def nobody_was_made() -> None:
    Watched.made.clear()


def settings(**more: Any) -> dict[str, Any]:
    return {"engine_url": URLS[0], "slots": 8, "reward": "tests.engine.hooks:length", **more}


async def submit(fleet: Fleet, **sampling: Any) -> None:
    await fleet.configure(n=N, bent_sampling="allow")
    await fleet.submit("g", prompt=QUESTION, input_ids=None, sampling_params={"temperature": 1.0, **sampling})


async def finished(fleet: Fleet) -> CompletedGroup:
    await until(lambda: fleet.stat("completed"), PATIENCE_SECONDS)
    _, entries = await fleet.broker.take("trainer", 1)
    (group,) = await fetch(fleet.broker, entries)
    await fleet.broker.ack([group.entry])
    return group


async def told(engine: Client, row: Row) -> list[tuple[int, str]]:
    """(mask, text) of each stretch of a row."""
    edges = [0, *(np.flatnonzero(np.diff(row.mask)) + 1).tolist(), len(row)]
    stretches = [row.ids[start:end].tolist() for start, end in itertools.pairwise(edges)]
    _, answer = await engine.post("/detokenize", {"tokens": stretches})
    return list(zip([int(row.mask[at]) for at in edges[:-1]], answer["text"], strict=True))


@pytest.mark.parametrize("tokenizer", ["", "nobody/has-it"])
async def test_a_model_that_calls_the_calculator_is_told_the_result_which_is_masked(
    fleet: Fleet, engine: Client, tokenizer: str
) -> None:
    await submit(fleet, regex=GRAMMAR, max_new_tokens=64)
    async with fleet.worker(**settings(generate="tests.engine.hooks:Watched", tokenizer=tokenizer)):
        group = await finished(fleet)
    assert len(group.samples) == N
    for sample in group.samples:
        (row,) = sample.rows
        calls = await told(engine, row)
        assert sample.metadata == {"calls": MOST_CALLS}
        assert [mask for mask, _ in calls] == [1, 0] * MOST_CALLS + [1]
        for (_, said), (_, result) in zip(calls[::2], calls[1::2], strict=False):
            assert result == f"<result>{calculate(said.rpartition(CALL)[2].removesuffix(END))}</result>"
        assert not row.logprobs[row.mask == 0].any()
    assert [environment.closed for environment in Watched.made] == [1] * N


async def test_what_was_appended_is_what_the_next_turn_went_on_from(fleet: Fleet, engine: Client) -> None:
    await submit(fleet, ignore_eos=True)
    async with fleet.worker(**settings(generate="tests.engine.hooks:scripted")):
        group = await finished(fleet)
    prompt = (await engine.post("/tokenize", {"prompt": QUESTION}))[1]["tokens"]
    for sample in group.samples:
        (row,) = sample.rows
        assert [mask for mask, _ in await told(engine, row)] == [1, 0, 1, 0, 1]
        body = {"input_ids": [*prompt, *row.ids.tolist()], "return_logprob": True, "logprob_start_len": 0}
        scored = (await engine.generate({"max_new_tokens": 1}, **body))["meta_info"]["input_token_logprobs"]
        whole = np.asarray([entry[0] for entry in scored[-len(row) :]])
        assert np.abs(row.logprobs - whole)[row.mask == 1].max() < NEAR


async def test_a_drained_worker_closes_its_environments_and_the_next_one_plays_anew(
    fleet: Fleet, engine: Client
) -> None:
    await engine.post("/slow_down", {"forward_sleep_time": 0.05})
    await submit(fleet, regex=GRAMMAR, max_new_tokens=64)
    playing = settings(generate="tests.engine.hooks:Watched", drain_seconds=0)
    async with fleet.worker(**playing) as first:
        await until(lambda: any(environment.calls for environment in Watched.made), PATIENCE_SECONDS)
        first.stop.ask()
        await first.ended()
    assert [environment.closed for environment in Watched.made] == [1] * N
    await engine.post("/slow_down", {"forward_sleep_time": None})
    made_before = await fleet.stat("samples")
    async with fleet.worker(**playing):
        group = await finished(fleet)
    assert [sample.metadata["calls"] for sample in group.samples] == [MOST_CALLS] * N
    assert len(Watched.made) == N + N - made_before
    assert [environment.closed for environment in Watched.made[N:]] == [1] * (N - made_before)
