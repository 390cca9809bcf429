"""What a worker may rely on from an engine: the contract that the simulator and a real SGLang server both keep.

Runs against a simulator of this process, or against the server of ROLLOUTFLEET_CONTRACT_URL. A real server takes
other times, so these tests wait for facts only, and they name ids that the tiniest vocabulary has.
"""

import asyncio
import json
import os
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from deploy.simulator import Simulator, SimulatorSettings

REAL_URL = os.environ.get("ROLLOUTFLEET_CONTRACT_URL")
QUICK: dict[str, Any] = {"max_new_tokens": 12, "ignore_eos": True}
LONG: dict[str, Any] = {"max_new_tokens": 600, "ignore_eos": True}
ENDLESS = {"max_new_tokens": 4000, "ignore_eos": True}
PROMPT = [5, 6, 7, 8]

simulator_only = pytest.mark.skipif(REAL_URL is not None, reason="needs an engine started with settings of its own")

type Json = dict[str, Any]


class Client:
    """Speaks to one engine."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def post(self, path: str, body: Json | bytes | None = None) -> tuple[int, Any]:
        """(status, JSON or text)"""
        data = body if isinstance(body, bytes) else json.dumps(body or {}).encode()
        async with self._session.post(path, data=data, headers={"Content-Type": "application/json"}) as answer:
            return answer.status, _read(await answer.text())

    async def get(self, path: str) -> tuple[int, Any]:
        async with self._session.get(path) as answer:
            return answer.status, _read(await answer.text())

    async def generate(self, sampling: Json | None = None, **body: Any) -> Json:
        prompt = {} if "text" in body else {"input_ids": PROMPT}
        status, answer = await self.post("/generate", prompt | {"sampling_params": sampling or QUICK} | body)
        assert status == 200, answer
        return answer

    async def refused(self, **body: Any) -> Any:
        status, answer = await self.post("/generate", body)
        assert status == 400
        return answer

    async def events(self, body: Json) -> list[str]:
        async with self._session.post("/generate", json=body | {"stream": True}) as answer:
            assert answer.status == 200
            return [line[6:] for line in (await answer.text()).splitlines() if line.startswith("data: ")]

    async def load(self) -> tuple[int, int]:
        """(running, queued)"""
        _, answer = await self.get("/v1/loads")
        load = answer["loads"][0]
        return load["num_running_reqs"], load["num_waiting_reqs"]


def _read(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


async def until(fact: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(60):
        while not await fact():  # noqa: ASYNC110 - the fact is at the other end of a connection
            await asyncio.sleep(0.005)


@asynccontextmanager
async def client_of(url: str, **headers: str) -> AsyncGenerator[Client]:
    async with aiohttp.ClientSession(url, headers=headers) as session:
        yield Client(session)


@asynccontextmanager
async def engine_with(**settings: Any) -> AsyncGenerator[Client]:
    defaults: Json = {"speed": 1000, "half": 0, "health_seconds": 0, "health_timeout_seconds": 0}
    async with Simulator(SimulatorSettings(**defaults | settings)) as engine, client_of(engine.url) as client:
        yield client


@pytest.fixture
async def engine() -> AsyncIterator[Client]:
    if REAL_URL is None:
        async with engine_with() as client:
            yield client
        return
    async with client_of(REAL_URL) as client:
        # An update while paused in place leaves the engine at odds with itself: naming the version mends it.
        await client.post("/update_weight_version", {"new_version": "first"})
        yield client
        await client.post("/abort_request", {"abort_all": True})
        await client.post("/continue_generation")
        await client.get("/health")


@pytest.fixture
async def spawn() -> AsyncIterator[Callable[[Awaitable[Any]], asyncio.Task[Any]]]:
    """Runs requests beside the test; what is left at its end is cancelled."""
    tasks: list[asyncio.Task[Any]] = []

    def start(awaitable: Awaitable[Any]) -> asyncio.Task[Any]:
        tasks.append(asyncio.ensure_future(awaitable))  # pyright: ignore[reportArgumentType]
        return tasks[-1]

    yield start
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


type Spawn = Callable[[Awaitable[Any]], asyncio.Task[Any]]


def finish(answer: Json) -> str:
    return answer["meta_info"]["finish_reason"]["type"]


async def test_contract_tokens_log_probabilities_and_counts_agree(engine: Client) -> None:
    answer = await engine.generate(return_logprob=True, rid="a-1")
    meta = answer["meta_info"]
    assert [entry[1] for entry in meta["output_token_logprobs"]] == answer["output_ids"]
    assert all(entry[0] <= 0 for entry in meta["output_token_logprobs"])
    assert (meta["id"], meta["prompt_tokens"], meta["completion_tokens"]) == ("a-1", 4, 12)
    assert meta["finish_reason"] == {"type": "length", "length": 12}
    assert meta["cached_tokens"] >= 0


async def test_contract_versions_cover_the_output_tokens(engine: Client) -> None:
    meta = (await engine.generate())["meta_info"]
    assert meta["weight_versions"] == [_span(meta["weight_version"], 12)]


async def test_contract_without_return_logprob_there_are_none(engine: Client) -> None:
    assert "output_token_logprobs" not in (await engine.generate())["meta_info"]


async def test_contract_the_default_budget_is_128_tokens(engine: Client) -> None:
    answer = await engine.generate({"ignore_eos": True})
    assert answer["meta_info"]["completion_tokens"] == 128


@simulator_only
async def test_contract_the_stop_token_is_in_the_output() -> None:
    async with engine_with(mean_tokens=10, sigma=0.1) as engine:
        answer = await engine.generate({"max_new_tokens": 500, "stop_token_ids": [7]})
    assert answer["meta_info"]["finish_reason"] == {"type": "stop", "matched": 7}
    assert answer["output_ids"].index(7) == len(answer["output_ids"]) - 1


async def test_contract_text_is_an_input_too(engine: Client) -> None:
    answer = await engine.generate(text="What is 2 + 2?")
    assert answer["text"]
    assert answer["meta_info"]["prompt_tokens"] > 0


async def test_contract_a_prompt_is_needed_and_ids_go_before_text(engine: Client) -> None:
    assert "message" in (await engine.refused(sampling_params=QUICK))["error"]
    assert "message" in (await engine.refused(input_ids=[], sampling_params=QUICK))["error"]
    answer = await engine.generate(text="One and two and three and four and five.", input_ids=PROMPT)
    assert answer["meta_info"]["prompt_tokens"] == len(PROMPT)


async def test_contract_an_unknown_sampling_parameter_is_refused_and_an_unknown_key_ignored(engine: Client) -> None:
    for stream in (False, True):
        answer = await engine.refused(input_ids=PROMPT, sampling_params={"best_off": 1}, stream=stream)
        assert "best_off" in answer["error"]
    assert finish(await engine.generate(what_is_this=1)) == "length"


@pytest.mark.parametrize(
    "sampling",
    [
        {"temperature": -1},
        {"top_p": 0},
        {"top_p": 1.5},
        {"top_k": 0},
        {"max_new_tokens": -1},
        {"min_new_tokens": 9, "max_new_tokens": 3},
        {"min_p": 2},
        {"repetition_penalty": 0},
    ],
)
async def test_contract_a_sampling_parameter_out_of_range_is_refused(engine: Client, sampling: Json) -> None:
    await engine.refused(input_ids=PROMPT, sampling_params=sampling)


async def test_contract_more_than_the_context_is_refused(engine: Client) -> None:
    _, info = await engine.get("/server_info")
    answer = await engine.refused(input_ids=PROMPT, sampling_params={"max_new_tokens": info["max_req_input_len"] + 10})
    assert "context length" in answer["error"]["message"]


async def test_contract_a_body_that_is_not_json_is_refused(engine: Client) -> None:
    for path in ("/generate", "/pause_generation", "/abort_request"):
        status, answer = await engine.post(path, b"{")
        assert (status, answer["object"]) == (400, "error")


@pytest.mark.parametrize("wrong", [{"input_ids": [5, 6.5]}, {"input_ids": ["a"]}, {"rid": 7}])
async def test_contract_a_field_of_a_wrong_type_is_refused(engine: Client, wrong: Json) -> None:
    assert (await engine.refused(**{"input_ids": PROMPT, **wrong}))["object"] == "error"


async def test_contract_without_budget_there_are_no_tokens(engine: Client) -> None:
    answer = await engine.generate({"max_new_tokens": 0}, return_logprob=True)
    meta = answer["meta_info"]
    assert (answer["output_ids"], meta["finish_reason"]) == ([], {"type": "length", "length": 0})
    assert [(span["start"], span["end"]) for span in meta["weight_versions"]] == [(0, 0)]


async def test_contract_a_live_rid_is_refused(engine: Client, spawn: Spawn) -> None:
    spawn(engine.generate(ENDLESS, rid="twice"))
    await until(lambda: _is_load(engine, running=1))
    await engine.refused(input_ids=PROMPT, rid="twice", sampling_params=QUICK)


async def _is_load(engine: Client, running: int, queued: int = 0) -> bool:
    return await engine.load() == (running, queued)


async def test_contract_an_abort_brings_the_tokens_so_far(engine: Client, spawn: Spawn) -> None:
    request = spawn(engine.generate(ENDLESS, rid="ab-1", return_logprob=True))
    await until(lambda: _is_load(engine, running=1))
    await engine.post("/abort_request", {"rid": "ab-1"})
    answer = await request
    assert finish(answer) == "abort"
    assert {"message", "status_code", "err_type"} <= answer["meta_info"]["finish_reason"].keys()
    assert len(answer["meta_info"]["output_token_logprobs"]) == len(answer["output_ids"]) < 4000


async def test_contract_an_abort_matches_by_prefix(engine: Client, spawn: Spawn) -> None:
    requests = [spawn(engine.generate(ENDLESS, rid=rid)) for rid in ("pre", "pre-2")]
    other = spawn(engine.generate(ENDLESS, rid="other"))
    await until(lambda: _is_load(engine, running=3))
    await engine.post("/abort_request", {"rid": "pre"})
    assert [finish(await request) for request in requests] == ["abort", "abort"]
    assert not other.done()


async def test_contract_an_abort_of_nothing_is_200_and_empty(engine: Client) -> None:
    assert await engine.post("/abort_request", {"rid": "nobody"}) == (200, "")


async def test_contract_abort_all_ends_all(engine: Client, spawn: Spawn) -> None:
    requests = [spawn(engine.generate(ENDLESS)) for _ in range(3)]
    await until(lambda: _is_load(engine, running=3))
    await engine.post("/abort_request", {"abort_all": True})
    assert {finish(await request) for request in requests} == {"abort"}


@simulator_only
async def test_contract_a_queued_request_is_aborted_with_fewer_fields(spawn: Spawn) -> None:
    async with engine_with(slots=1) as engine:
        spawn(engine.generate(ENDLESS, rid="runs"))
        await until(lambda: _is_load(engine, running=1))
        waits = spawn(engine.generate(ENDLESS, rid="waits"))
        await until(lambda: _is_load(engine, running=1, queued=1))
        await engine.post("/abort_request", {"rid": "waits"})
        answer = await waits
    assert (finish(answer), answer["output_ids"]) == ("abort", [])
    assert "prompt_tokens" not in answer["meta_info"]


async def test_contract_a_client_that_leaves_aborts(engine: Client, spawn: Spawn) -> None:
    request = spawn(engine.generate(ENDLESS))
    await until(lambda: _is_load(engine, running=1))
    request.cancel()
    await until(lambda: _is_load(engine, running=0))


async def test_contract_a_stream_is_cumulative_and_ends_with_done(engine: Client) -> None:
    sampling = {"max_new_tokens": 400, "ignore_eos": True}
    *events, last = await engine.events({"input_ids": PROMPT, "sampling_params": sampling, "return_logprob": True})
    answers = [json.loads(event) for event in events]
    assert last == "[DONE]"
    assert finish(answers[-1]) == "length"
    whole = answers[-1]["output_ids"]
    assert len(whole) == 400
    for answer in answers:
        assert answer["output_ids"] == whole[: len(answer["output_ids"])]
        assert len(answer["meta_info"]["output_token_logprobs"]) == len(answer["output_ids"])


async def test_contract_an_error_in_a_stream_is_200(engine: Client) -> None:
    error, done = await engine.events({"input_ids": PROMPT, "sampling_params": {"temperature": -1}})
    assert json.loads(error)["error"]["code"] == 400
    assert done == "[DONE]"


async def test_contract_retracted_requests_go_on_under_the_new_weights(
    engine: Client, spawn: Spawn, tmp_path: Path
) -> None:
    _, info = await engine.get("/model_info")
    path = str(tmp_path) if REAL_URL is None else info["model_path"]
    request = spawn(engine.generate(LONG, rid="span", return_logprob=True))
    await until(lambda: _is_load(engine, running=1))
    await engine.post("/pause_generation", {"mode": "retract"})
    status, _ = await engine.post("/update_weights_from_disk", {"model_path": path, "weight_version": "next"})
    await engine.post("/continue_generation")
    meta = (await request)["meta_info"]
    assert (status, meta["weight_version"], len(meta["output_token_logprobs"])) == (200, "next", 600)
    assert [span["version"] for span in meta["weight_versions"]][-1] == "next"
    assert [span["end"] for span in meta["weight_versions"]][-1] == 600


async def test_contract_a_request_during_a_pause_is_held_and_its_abort_lost(engine: Client, spawn: Spawn) -> None:
    await engine.post("/pause_generation", {"mode": "retract"})
    request = spawn(engine.generate(rid="held"))
    assert (await engine.get("/ready"))[0] == 503
    await engine.post("/abort_request", {"rid": "held"})
    await engine.post("/continue_generation")
    assert finish(await request) == "length"
    assert (await engine.get("/ready"))[0] == 200


async def test_contract_pausing_by_abort_answers_what_runs(engine: Client, spawn: Spawn) -> None:
    request = spawn(engine.generate(ENDLESS))
    await until(lambda: _is_load(engine, running=1))
    await engine.post("/pause_generation", {"mode": "abort"})
    assert finish(await request) == "abort"


async def test_contract_an_update_waits_for_running_requests(engine: Client, spawn: Spawn, tmp_path: Path) -> None:
    _, info = await engine.get("/model_info")
    path = str(tmp_path) if REAL_URL is None else info["model_path"]
    request = spawn(engine.generate(LONG))
    await until(lambda: _is_load(engine, running=1))
    update = spawn(engine.post("/update_weights_from_disk", {"model_path": path, "weight_version": "w2"}))
    assert (await engine.get("/model_info"))[1]["weight_version"] == info["weight_version"]
    assert not update.done()
    assert (await request)["meta_info"]["weight_versions"] == [_span(info["weight_version"], LONG["max_new_tokens"])]
    assert (await update)[0] == 200
    assert (await engine.generate())["meta_info"]["weight_versions"] == [_span("w2", QUICK["max_new_tokens"])]


def _span(version: str, end: int) -> Json:
    return {"version": version, "start": 0, "end": end}


async def test_contract_an_update_while_paused_in_place_contradicts_itself(
    engine: Client, spawn: Spawn, tmp_path: Path
) -> None:
    _, info = await engine.get("/model_info")
    path = str(tmp_path) if REAL_URL is None else info["model_path"]
    request = spawn(engine.generate(ENDLESS, rid="runs"))
    await until(lambda: _is_load(engine, running=1))
    await engine.post("/pause_generation", {"mode": "in_place"})
    status, answer = await engine.post("/update_weights_from_disk", {"model_path": path, "weight_version": "odd"})
    assert (status, answer["success"]) == (400, False)
    assert (await engine.get("/model_info"))[1]["weight_version"] == info["weight_version"]
    await engine.post("/continue_generation")
    await engine.post("/abort_request", {"rid": "runs"})
    await request


async def test_contract_weights_at_a_bad_path_are_refused_and_it_goes_on(engine: Client) -> None:
    status, answer = await engine.post("/update_weights_from_disk", {"model_path": "/no/such/weights"})
    assert (status, answer["success"]) == (400, False)
    assert finish(await engine.generate()) == "length"


async def test_contract_the_version_alone_can_be_set(engine: Client) -> None:
    assert (await engine.post("/update_weight_version", {"new_version": "named"}))[0] == 200
    assert (await engine.generate())["meta_info"]["weight_version"] == "named"
    assert (await engine.get("/model_info"))[1]["weight_version"] == "named"


async def test_contract_the_cache_is_flushed_only_when_idle(engine: Client, spawn: Spawn) -> None:
    assert (await engine.post("/flush_cache"))[0] == 200
    spawn(engine.generate(ENDLESS))
    await until(lambda: _is_load(engine, running=1))
    assert (await engine.post("/flush_cache"))[0] == 400


async def test_contract_it_says_what_it_is(engine: Client) -> None:
    _, model = await engine.get("/model_info")
    _, server = await engine.get("/server_info")
    assert {"model_path", "tokenizer_path", "is_generation", "weight_version"} <= model.keys()
    assert {"tokenizer_path", "context_length", "max_running_requests", "max_total_num_tokens"} <= server.keys()


async def test_contract_a_healthy_engine_says_so(engine: Client) -> None:
    assert (await engine.get("/health"))[0] == 200
    assert (await engine.get("/ready"))[0] == 200


@simulator_only
async def test_contract_paused_in_place_it_is_unhealthy_until_the_next_good_check() -> None:
    async with engine_with() as engine:
        await engine.post("/pause_generation", {"mode": "in_place"})
        assert (await engine.get("/health"))[0] == 503
        await engine.post("/continue_generation")
        assert (await engine.get("/ready"))[0] == 503
        assert (await engine.get("/health"))[0] == 200
        assert (await engine.get("/ready"))[0] == 200


@simulator_only
async def test_contract_a_full_queue_is_503_and_in_a_stream_an_abort(spawn: Spawn) -> None:
    async with engine_with(slots=1, max_queued_requests=0) as engine:
        spawn(engine.generate(ENDLESS))
        await until(lambda: _is_load(engine, running=1))
        status, answer = await engine.post("/generate", {"input_ids": PROMPT})
        event, _ = await engine.events({"input_ids": PROMPT})
    assert (status, answer["message"]) == (503, "The request queue is full.")
    assert finish(json.loads(event)) == "abort"


@simulator_only
async def test_contract_only_a_bearer_key_opens() -> None:
    async with Simulator(SimulatorSettings(api_key="secret")) as engine:
        statuses: list[int] = []
        for header in ({"Authorization": "Bearer secret"}, {"Authorization": "secret"}, {"X-API-Key": "secret"}):
            async with client_of(engine.url, **header) as client:
                statuses.append((await client.get("/model_info"))[0])
        async with client_of(engine.url) as client:
            statuses.append((await client.get("/ready"))[0])
    assert statuses == [200, 401, 401, 200]


@simulator_only
@pytest.mark.parametrize("prompt", [{"input_ids": [1, -1]}, {"input_ids": [151_936]}, {"text": ""}])
async def test_contract_an_id_outside_the_vocabulary_and_an_empty_text_end_the_engine(
    spawn: Spawn, prompt: Json
) -> None:
    async with Simulator(SimulatorSettings(speed=100)) as engine, client_of(engine.url) as client:
        other = spawn(client.generate(ENDLESS))
        await until(lambda: _is_load(client, running=1))
        with pytest.raises(aiohttp.ClientError):
            await client.post("/generate", prompt)
        with pytest.raises(aiohttp.ClientError):
            await other
        with pytest.raises(aiohttp.ClientConnectorError):
            await client.get("/ready")
