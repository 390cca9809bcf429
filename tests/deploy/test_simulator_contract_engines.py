"""The contract of an engine, continued: where a test needs one of its own, since it starves, freezes or ends it.

Runs against simulators of this process, or where ROLLOUTFLEET_ENGINE_PYTHON names an interpreter that has SGLang,
against real servers that it starts.
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.engine.client import ENDLESS, LONG, PROMPT, QUICK, Client, Json, Spawn, beside, client_of, finish, until
from tests.engine.model import make_model
from tests.engine.own import OwnEngine, own_engine
from tests.engine.servers import Servers

REAL_PYTHON = os.environ.get("ROLLOUTFLEET_ENGINE_PYTHON")

pytestmark = pytest.mark.timeout(120 if REAL_PYTHON is None else 400)  # SGLang is imported within the first test

type Own = Callable[..., AbstractAsyncContextManager[OwnEngine]]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers | None]:
    if REAL_PYTHON is None:
        yield None
        return
    folder = tmp_path_factory.mktemp("servers")
    with Servers(Path(REAL_PYTHON), make_model(folder / "model"), folder) as started:
        yield started


@pytest.fixture
def own(servers: Servers | None, tmp_path: Path) -> Own:
    def start(**settings: Any) -> AbstractAsyncContextManager[OwnEngine]:
        return own_engine(servers, tmp_path, settings)

    return start


@pytest.fixture
async def spawn() -> AsyncIterator[Spawn]:
    async with beside() as start:
        yield start


async def is_refused(url: str) -> bool:
    """Whether nothing listens there any more."""
    try:
        # A connection that an ending server takes in its last moment may never be answered.
        async with asyncio.timeout(2), client_of(url) as client:
            await client.get("/ready")
    except aiohttp.ClientConnectorError:
        return True
    except (aiohttp.ClientError, TimeoutError):
        return False
    return False


async def test_contract_a_queued_request_is_aborted_with_fewer_fields(own: Own, spawn: Spawn) -> None:
    async with own(slots=1) as engine, client_of(engine.url) as client:
        spawn(client.generate(ENDLESS, rid="runs"))
        await client.until_load(running=1)
        waits = spawn(client.generate(ENDLESS, rid="waits"))
        await client.until_load(running=1, queued=1)
        await client.post("/abort_request", {"rid": "waits"})
        answer = await waits
    assert (finish(answer), answer["output_ids"]) == ("abort", [])
    assert "prompt_tokens" not in answer["meta_info"]


async def test_contract_a_full_queue_is_503_and_in_a_stream_an_abort(own: Own, spawn: Spawn) -> None:
    async with own(slots=1, max_queued_requests=1) as engine, client_of(engine.url) as client:
        spawn(client.generate(ENDLESS))
        await client.until_load(running=1)
        spawn(client.generate(ENDLESS))
        await client.until_load(running=1, queued=1)
        status, answer = await client.post("/generate", {"input_ids": PROMPT})
        event, _ = await client.events({"input_ids": PROMPT})
    assert (status, answer["message"]) == (503, "The request queue is full.")
    assert finish(json.loads(event)) == "abort"


async def test_contract_only_a_bearer_key_opens(own: Own) -> None:
    async with own(api_key="secret") as engine:
        statuses: list[int] = []
        for header in ({"Authorization": "Bearer secret"}, {"Authorization": "secret"}, {"X-API-Key": "secret"}):
            async with client_of(engine.url, **header) as client:
                statuses.append((await client.get("/model_info"))[0])
        async with client_of(engine.url) as client:
            statuses.append((await client.get("/ready"))[0])
    assert statuses == [200, 401, 401, 200]


@pytest.mark.parametrize("prompt", [{"input_ids": [1, -1]}, {"input_ids": [151_936]}, {"text": ""}])
async def test_contract_an_id_outside_the_vocabulary_and_an_empty_text_end_the_engine(
    own: Own, spawn: Spawn, prompt: Json
) -> None:
    async with own() as engine, client_of(engine.url) as client:
        other = spawn(client.generate(ENDLESS))
        await client.until_load(running=1)
        with pytest.raises(aiohttp.ClientError):
            await client.post("/generate", prompt)
        with pytest.raises(aiohttp.ClientError):
            await other
        await until(lambda: is_refused(engine.url))


async def test_contract_a_killed_scheduler_closes_connections_and_ends_the_engine(own: Own, spawn: Spawn) -> None:
    async with own() as engine, client_of(engine.url) as client:
        request = spawn(client.generate(ENDLESS))
        await client.until_load(running=1)
        await engine.die()
        with pytest.raises(aiohttp.ClientError):
            await request
        await until(lambda: is_refused(engine.url))


async def test_contract_a_frozen_engine_is_unhealthy_answers_loads_and_goes_on_when_thawed(
    own: Own, spawn: Spawn
) -> None:
    async with own() as engine, client_of(engine.url) as client:
        request = spawn(client.generate(LONG))
        await client.until_load(running=1)
        await engine.freeze()
        assert (await client.get("/health"))[0] == 503
        assert (await client.get("/v1/loads"))[0] == 200
        assert not request.done()
        await engine.thaw()
        assert (await request)["meta_info"]["completion_tokens"] == LONG["max_new_tokens"]
        assert (await client.get("/health"))[0] == 200


async def test_contract_a_terminated_engine_drains_still_takes_requests_and_ends_when_idle(
    own: Own, spawn: Spawn
) -> None:
    async with own() as engine, client_of(engine.url) as client:
        running = spawn(client.generate({"max_new_tokens": 3000, "ignore_eos": True}))
        await client.until_load(running=1)
        await engine.terminate()
        await until(lambda: _is_unhealthy(client))
        late = await client.generate(QUICK)
        assert [finish(answer) for answer in (late, await running)] == ["length", "length"]
        await engine.ended()
        await until(lambda: is_refused(engine.url))


async def _is_unhealthy(client: Client) -> bool:
    return (await client.get("/health"))[0] == 503


async def test_contract_after_a_retracting_update_a_cached_prefix_counts_under_the_new_weights(
    own: Own, spawn: Spawn
) -> None:
    body: Json = {"input_ids": list(range(5, 205)), "return_logprob": True}
    greedy: Json = {"max_new_tokens": 8, "ignore_eos": True, "temperature": 0, "sampling_seed": 1}
    async with own() as engine, client_of(engine.url) as client:
        before = await client.generate(greedy, **body)
        spawn(client.generate({"max_new_tokens": 3000, "ignore_eos": True}, **body))
        await client.until_load(running=1)
        await client.post("/pause_generation", {"mode": "retract"})
        weights = {"model_path": str(engine.weights()), "weight_version": "1"}
        assert (await client.post("/update_weights_from_disk", weights))[0] == 200
        await client.post("/continue_generation")
        after = await client.generate(greedy, **body)
        await client.post("/abort_request", {"abort_all": True})
        await until(lambda: _is_flushed(client))
        anew = await client.generate(greedy, **body)
    assert _said(after) == [pytest.approx(pair, abs=1e-4) for pair in _said(anew)]
    assert _said(after) != [pytest.approx(pair, abs=1e-4) for pair in _said(before)]


async def test_contract_an_update_changes_the_log_probabilities_of_a_running_request_from_there_on(
    own: Own, spawn: Spawn
) -> None:
    body: Json = {"input_ids": list(range(5, 105)), "return_logprob": True}
    greedy: Json = {"max_new_tokens": 400, "ignore_eos": True, "temperature": 0, "sampling_seed": 1}
    async with own() as engine, client_of(engine.url) as client:
        whole = await client.generate(greedy, **body)
        await client.post("/slow_down", {"forward_sleep_time": 0.2})
        request = spawn(client.generate(greedy, **body))
        await client.until_load(running=1)
        await client.post("/pause_generation", {"mode": "retract"})
        weights = {"model_path": str(engine.weights()), "weight_version": "1"}
        assert (await client.post("/update_weights_from_disk", weights))[0] == 200
        await client.post("/slow_down", {"forward_sleep_time": None})
        await client.post("/continue_generation")
        changed = await request
    (*_, span) = changed["meta_info"]["weight_versions"]
    start = span["start"]
    assert (span["version"], span["end"]) == ("1", 400)
    assert _said(changed)[:start] == [pytest.approx(pair, abs=1e-4) for pair in _said(whole)[:start]]
    assert _said(changed)[start:] != [pytest.approx(pair, abs=1e-4) for pair in _said(whole)[start:]]


async def test_contract_the_checksum_follows_the_weights_and_not_their_version(own: Own) -> None:
    async with own() as engine, client_of(engine.url) as client:
        first = await _checksum(client)
        await client.post("/update_weight_version", {"new_version": "7"})
        renamed = await _checksum(client)
        await client.post("/update_weights_from_disk", {"model_path": str(engine.weights()), "weight_version": "8"})
        other = await _checksum(client)
    assert first == renamed != other


async def _checksum(client: Client) -> str:
    status, answer = await client.post("/weights_checker", {"action": "checksum"})
    assert (status, answer["success"]) == (200, True)
    return answer["per_engine_checksum"]


async def _is_flushed(client: Client) -> bool:
    return (await client.post("/flush_cache"))[0] == 200


def _said(answer: Json) -> list[tuple[float, int]]:
    return [(entry[0], entry[1]) for entry in answer["meta_info"]["output_token_logprobs"]]
