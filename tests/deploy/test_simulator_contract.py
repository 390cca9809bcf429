"""What a worker may rely on from an engine: the contract that the simulator and a real SGLang server both keep.

Runs against a simulator of this process, or against the server of ROLLOUTFLEET_CONTRACT_URL. A real server takes
other times, so these tests wait for facts only, and they name ids that the tiniest vocabulary has.
"""

import json
import math
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from deploy.simulator import Simulator, SimulatorSettings
from tests.engine.client import ENDLESS, LONG, PROMPT, QUICK, Client, Json, Spawn, beside, client_of, finish, span

REAL_URL = os.environ.get("ROLLOUTFLEET_CONTRACT_URL")

pytestmark = pytest.mark.timeout(120 if REAL_URL is None else 400)


@pytest.fixture
async def engine() -> AsyncIterator[Client]:
    if REAL_URL is None:
        settings = SimulatorSettings(speed=1000, half=0, health_seconds=0, health_timeout_seconds=0)
        async with Simulator(settings) as simulator, client_of(simulator.url) as client:
            yield client
        return
    async with client_of(REAL_URL) as client:
        await client.until_load(running=0)  # what the last test held, and left
        # An update while paused in place leaves the engine at odds with itself: naming the version mends it.
        await client.post("/update_weight_version", {"new_version": "first"})
        yield client
        await client.post("/slow_down", {"forward_sleep_time": None})
        await client.post("/abort_request", {"abort_all": True})
        await client.post("/continue_generation")
        if (await client.get("/ready"))[0] != 200:
            await client.get("/health")


@pytest.fixture
async def spawn() -> AsyncIterator[Spawn]:
    async with beside() as start:
        yield start


async def test_contract_tokens_log_probabilities_and_counts_agree(engine: Client) -> None:
    answer = await engine.generate(return_logprob=True, rid="a-1")
    meta = answer["meta_info"]
    assert [entry[1] for entry in meta["output_token_logprobs"]] == answer["output_ids"]
    assert all(entry[0] <= 0 for entry in meta["output_token_logprobs"])
    assert (meta["id"], meta["prompt_tokens"], meta["completion_tokens"]) == ("a-1", 4, 12)
    assert meta["finish_reason"] == {"type": "length", "length": 12}
    assert meta["cached_tokens"] >= 0


async def test_contract_a_sampling_mask_holds_each_token_among_those_that_were_left(engine: Client) -> None:
    answer = await engine.generate(QUICK | {"top_k": 5}, return_logprob=True, return_sampling_mask=True)
    meta, ids = answer["meta_info"], answer["output_ids"]
    places, numbers = meta["output_token_sampling_mask"], meta["output_token_sampling_logprobs"]
    assert len(places) == len(numbers) == meta["output_token_sampling_mask_length"] == len(ids) == 12
    assert all(token in place and len(place) == len(set(place)) <= 5 for token, place in zip(ids, places, strict=True))
    whole = [entry[0] for entry in meta["output_token_logprobs"]]
    assert all(of_all - 1e-4 <= of_left <= 1e-4 for of_all, of_left in zip(whole, numbers, strict=True))


async def test_contract_greedy_leaves_one_token(engine: Client) -> None:
    answer = await engine.generate(QUICK | {"temperature": 0}, return_logprob=True, return_sampling_mask=True)
    assert answer["meta_info"]["output_token_sampling_mask"] == [[token] for token in answer["output_ids"]]
    assert set(answer["meta_info"]["output_token_sampling_logprobs"]) == {0}


@pytest.mark.parametrize("sampling", [{"top_p": 0.5}, {"top_k": 5000}])
async def test_contract_a_sampling_mask_needs_a_top_k(engine: Client, sampling: Json) -> None:
    answer = await engine.refused(input_ids=PROMPT, sampling_params=sampling, return_sampling_mask=True)
    assert "return_sampling_mask requires" in answer["error"]["message"]


async def test_contract_the_likeliest_tokens_are_of_the_distribution_at_the_temperature(engine: Client) -> None:
    found: list[dict[int, float]] = []
    for temperature in (1.0, 2.0):
        sampling = {"max_new_tokens": 1, "ignore_eos": True, "temperature": temperature, "sampling_seed": 1}
        answer = await engine.generate(sampling, return_logprob=True, top_logprobs_num=8)
        (place,) = answer["meta_info"]["output_top_logprobs"]
        found.append({entry[1]: entry[0] for entry in place})
        assert [entry[0] for entry in place] == sorted((entry[0] for entry in place), reverse=True)
        assert sum(math.exp(entry[0]) for entry in place) <= 1.0001
    cold, hot = found
    assert len(cold) == 8
    first, *rest = cold
    assert [hot[first] - hot[it] for it in rest] == [
        pytest.approx((cold[first] - cold[it]) / 2, abs=1e-3) for it in rest
    ]


async def test_contract_versions_cover_the_output_tokens(engine: Client) -> None:
    meta = (await engine.generate())["meta_info"]
    assert meta["weight_versions"] == [span(meta["weight_version"], 12)]


async def test_contract_without_return_logprob_there_are_none(engine: Client) -> None:
    assert "output_token_logprobs" not in (await engine.generate())["meta_info"]


async def test_contract_the_default_budget_is_128_tokens(engine: Client) -> None:
    answer = await engine.generate({"ignore_eos": True})
    assert answer["meta_info"]["completion_tokens"] == 128


async def test_contract_the_stop_token_is_in_the_output(engine: Client) -> None:
    stops = list(range(50, 250))
    answer = await engine.generate({"max_new_tokens": 4000, "stop_token_ids": stops})
    reason = answer["meta_info"]["finish_reason"]
    assert reason == {"type": "stop", "matched": answer["output_ids"][-1]}
    assert [token in stops for token in answer["output_ids"]].index(True) == len(answer["output_ids"]) - 1


@pytest.mark.parametrize("keeps", [False, True])
async def test_contract_a_stop_string_ends_the_answer_and_is_trimmed_unless_told(engine: Client, keeps: bool) -> None:
    sampling = {"max_new_tokens": 2000, "ignore_eos": True, "stop": ["~~~~~", " "], "no_stop_trim": keeps}
    answer = await engine.generate(sampling, return_logprob=True)
    meta = answer["meta_info"]
    assert meta["finish_reason"] == {"type": "stop", "matched": " "}
    assert (" " in answer["text"]) == keeps
    assert 0 < len(answer["output_ids"]) == len(meta["output_token_logprobs"]) == meta["completion_tokens"] < 2000


async def test_contract_a_stop_string_does_not_wait_for_min_new_tokens(engine: Client) -> None:
    answer = await engine.generate({"max_new_tokens": 40, "min_new_tokens": 30, "stop": ""})
    assert answer["meta_info"]["finish_reason"] == {"type": "stop", "matched": ""}
    assert len(answer["output_ids"]) == 1


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


@pytest.mark.parametrize(
    "sampling",
    [{"stop": 5}, {"stop": [5]}, {"stop_token_ids": 5}, {"stop_token_ids": ["a"]}, {"ignore_eos": "x"}, {"top_p": "a"}],
)
async def test_contract_a_sampling_parameter_of_a_wrong_type_is_refused_in_one_sentence(
    engine: Client, sampling: Json
) -> None:
    answer = await engine.refused(input_ids=PROMPT, sampling_params=sampling)
    assert answer["error"].startswith("invalid type")


async def test_contract_more_than_the_context_is_refused(engine: Client) -> None:
    _, info = await engine.get("/server_info")
    answer = await engine.refused(input_ids=PROMPT, sampling_params={"max_new_tokens": info["max_req_input_len"] + 10})
    assert "context length" in answer["error"]["message"]


async def test_contract_a_body_that_is_not_json_is_refused(engine: Client) -> None:
    for path in ("/generate", "/pause_generation", "/abort_request"):
        status, answer = await engine.post(path, b"{")
        assert (status, answer["object"]) == (400, "error")


@pytest.mark.parametrize(
    "wrong",
    [
        {"input_ids": [5, 6.5]},
        {"input_ids": ["a"]},
        {"rid": 7},
        {"stream": "x"},
        {"return_logprob": "x"},
        {"sampling_params": 5},
    ],
)
async def test_contract_a_field_of_a_wrong_type_is_refused(engine: Client, wrong: Json) -> None:
    assert (await engine.refused(**{"input_ids": PROMPT, **wrong}))["object"] == "error"


async def test_contract_without_budget_there_are_no_tokens(engine: Client) -> None:
    answer = await engine.generate({"max_new_tokens": 0}, return_logprob=True)
    meta = answer["meta_info"]
    assert (answer["output_ids"], meta["finish_reason"]) == ([], {"type": "length", "length": 0})
    assert [(span["start"], span["end"]) for span in meta["weight_versions"]] == [(0, 0)]


async def test_contract_a_live_rid_is_refused(engine: Client, spawn: Spawn) -> None:
    spawn(engine.generate(ENDLESS, rid="twice"))
    await engine.until_load(running=1)
    await engine.refused(input_ids=PROMPT, rid="twice", sampling_params=QUICK)


async def test_contract_an_abort_brings_the_tokens_so_far(engine: Client, spawn: Spawn) -> None:
    request = spawn(engine.generate(ENDLESS, rid="ab-1", return_logprob=True))
    await engine.until_load(running=1)
    await engine.post("/abort_request", {"rid": "ab-1"})
    answer = await request
    assert finish(answer) == "abort"
    assert {"message", "status_code", "err_type"} <= answer["meta_info"]["finish_reason"].keys()
    assert len(answer["meta_info"]["output_token_logprobs"]) == len(answer["output_ids"]) < 4000


async def test_contract_an_abort_matches_by_prefix(engine: Client, spawn: Spawn) -> None:
    requests = [spawn(engine.generate(ENDLESS, rid=rid)) for rid in ("pre", "pre-2")]
    other = spawn(engine.generate(ENDLESS, rid="other"))
    await engine.until_load(running=3)
    await engine.post("/abort_request", {"rid": "pre"})
    assert [finish(await request) for request in requests] == ["abort", "abort"]
    assert not other.done()


async def test_contract_an_abort_of_nothing_is_200_and_empty(engine: Client) -> None:
    assert await engine.post("/abort_request", {"rid": "nobody"}) == (200, "")


async def test_contract_abort_all_ends_all(engine: Client, spawn: Spawn) -> None:
    requests = [spawn(engine.generate(ENDLESS)) for _ in range(3)]
    await engine.until_load(running=3)
    await engine.post("/abort_request", {"abort_all": True})
    assert {finish(await request) for request in requests} == {"abort"}


async def test_contract_a_client_that_leaves_aborts(engine: Client, spawn: Spawn) -> None:
    request = spawn(engine.generate(ENDLESS))
    await engine.until_load(running=1)
    request.cancel()
    await engine.until_load(running=0)


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
    await engine.until_load(running=1)
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
    await engine.until_load(running=1)
    await engine.post("/pause_generation", {"mode": "abort"})
    assert finish(await request) == "abort"


async def test_contract_an_update_waits_for_running_requests(engine: Client, spawn: Spawn, tmp_path: Path) -> None:
    _, info = await engine.get("/model_info")
    path = str(tmp_path) if REAL_URL is None else info["model_path"]
    request = spawn(engine.generate(LONG))
    await engine.until_load(running=1)
    update = spawn(engine.post("/update_weights_from_disk", {"model_path": path, "weight_version": "w2"}))
    assert (await engine.get("/model_info"))[1]["weight_version"] == info["weight_version"]
    assert not update.done()
    assert (await request)["meta_info"]["weight_versions"] == [span(info["weight_version"], LONG["max_new_tokens"])]
    assert (await update)[0] == 200
    assert (await engine.generate())["meta_info"]["weight_versions"] == [span("w2", QUICK["max_new_tokens"])]


async def test_contract_an_update_while_paused_in_place_contradicts_itself(
    engine: Client, spawn: Spawn, tmp_path: Path
) -> None:
    _, info = await engine.get("/model_info")
    path = str(tmp_path) if REAL_URL is None else info["model_path"]
    request = spawn(engine.generate(ENDLESS, rid="runs"))
    await engine.until_load(running=1)
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


@pytest.mark.parametrize("mode", ["retract", "abort"])
async def test_contract_paused_it_takes_weights_at_once_and_says_so(
    engine: Client, spawn: Spawn, tmp_path: Path, mode: str
) -> None:
    path = str(tmp_path) if REAL_URL is None else (await engine.get("/model_info"))[1]["model_path"]
    request = spawn(engine.generate(ENDLESS, rid="runs"))
    await engine.until_load(running=1)
    await engine.post("/pause_generation", {"mode": mode})
    status, answer = await engine.post("/update_weights_from_disk", {"model_path": path, "weight_version": "41"})
    _, info = await engine.get("/model_info")
    assert (status, answer["success"], info["weight_version"], info["model_path"]) == (200, True, "41", path)
    assert request.done() == (mode == "abort")
    await engine.post("/continue_generation")
    assert (await engine.generate())["meta_info"]["weight_versions"] == [span("41", QUICK["max_new_tokens"])]


async def test_contract_paused_weights_at_a_bad_path_change_nothing(engine: Client, spawn: Spawn) -> None:
    _, before = await engine.get("/model_info")
    request = spawn(engine.generate(LONG))
    await engine.until_load(running=1)
    await engine.post("/pause_generation", {"mode": "retract"})
    weights = {"model_path": "/no/such/weights", "weight_version": "42"}
    status, answer = await engine.post("/update_weights_from_disk", weights)
    assert (status, answer["success"], bool(answer["message"])) == (400, False, True)
    assert (await engine.get("/model_info"))[1]["model_path"] == before["model_path"]
    await engine.post("/continue_generation")
    spans = (await request)["meta_info"]["weight_versions"]
    assert spans == [span(before["weight_version"], LONG["max_new_tokens"])]


async def test_contract_the_cache_is_flushed_where_a_pause_put_all_back(engine: Client, spawn: Spawn) -> None:
    spawn(engine.generate(ENDLESS))
    await engine.until_load(running=1)
    await engine.post("/pause_generation", {"mode": "retract"})
    assert (await engine.post("/flush_cache"))[0] == 200
    await engine.post("/continue_generation")
    await engine.until_load(running=1)


async def test_contract_to_go_on_without_a_pause_is_harmless(engine: Client) -> None:
    assert (await engine.post("/continue_generation"))[0] == 200
    assert finish(await engine.generate()) == "length"


async def test_contract_the_version_alone_can_be_set(engine: Client) -> None:
    assert (await engine.post("/update_weight_version", {"new_version": "named"}))[0] == 200
    assert (await engine.generate())["meta_info"]["weight_version"] == "named"
    assert (await engine.get("/model_info"))[1]["weight_version"] == "named"


async def test_contract_the_cache_is_flushed_only_when_idle(engine: Client, spawn: Spawn) -> None:
    assert (await engine.post("/flush_cache"))[0] == 200
    spawn(engine.generate(ENDLESS))
    await engine.until_load(running=1)
    assert (await engine.post("/flush_cache"))[0] == 400


async def test_contract_it_says_what_it_is(engine: Client) -> None:
    _, model = await engine.get("/model_info")
    _, server = await engine.get("/server_info")
    assert {"model_path", "tokenizer_path", "is_generation", "weight_version"} <= model.keys()
    assert {"tokenizer_path", "context_length", "max_running_requests", "max_total_num_tokens"} <= server.keys()


async def test_contract_a_healthy_engine_says_so(engine: Client) -> None:
    assert (await engine.get("/health"))[0] == 200
    assert (await engine.get("/ready"))[0] == 200


@pytest.mark.parametrize("mode", ["abort", "retract", "in_place"])
async def test_contract_paused_it_is_unhealthy_until_the_next_good_check(engine: Client, mode: str) -> None:
    await engine.post("/pause_generation", {"mode": mode})
    assert (await engine.get("/health"))[0] == 503
    await engine.post("/continue_generation")
    assert (await engine.get("/ready"))[0] == 503
    assert (await engine.get("/health"))[0] == 200
    assert (await engine.get("/ready"))[0] == 200


# Retracted requests are shown as running or as queued, whichever the scheduler said last: nobody may rely on it.
@pytest.mark.parametrize(("mode", "running"), [("abort", 0), ("in_place", 1)])
async def test_contract_paused_it_shows_the_load_of_its_last_step(
    engine: Client, spawn: Spawn, mode: str, running: int
) -> None:
    spawn(engine.generate(ENDLESS))
    await engine.until_load(running=1)
    await engine.post("/pause_generation", {"mode": mode})
    spawn(engine.generate())
    await engine.until_load(running)
    assert (await engine.get("/ready"))[0] == 503
    assert await engine.load() == (running, 0)


async def test_contract_slow_down_lengthens_each_step(engine: Client) -> None:
    await engine.post("/slow_down", {"forward_sleep_time": 0.1})
    began = time.monotonic()
    await engine.generate({"max_new_tokens": 11, "ignore_eos": True})
    assert time.monotonic() - began >= 1
    assert (await engine.post("/slow_down"))[0] == 400
