"""Faults of the simulated engine: each does what its name says, and the same seed brings the same ones."""

import asyncio
import json
import math
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from deploy.simulator import Faults, Simulator, SimulatorSettings

BODY: dict[str, Any] = {
    "input_ids": [1, 2, 3],
    "return_logprob": True,
    "sampling_params": {"max_new_tokens": 20, "ignore_eos": True},
}


@asynccontextmanager
async def engine_with(faults: Faults, **settings: Any) -> AsyncGenerator[tuple[Simulator, aiohttp.ClientSession]]:
    chosen = SimulatorSettings(speed=5000, half=0, faults=faults, **settings)
    async with Simulator(chosen) as engine, aiohttp.ClientSession(engine.url) as session:
        yield engine, session


async def until(fact: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not fact():  # noqa: ASYNC110 - the fact is in the middle of a server
            await asyncio.sleep(0.001)


async def generate(faults: Faults) -> tuple[int, str]:
    async with engine_with(faults) as (_, session), session.post("/generate", json=BODY) as answer:
        return answer.status, await answer.text()


async def spoiled(faults: Faults) -> dict[str, Any]:
    status, text = await generate(faults)
    assert status == 200
    return json.loads(text)


async def test_an_error_is_500() -> None:
    assert (await generate(Faults(error_rate=1)))[0] == 500


async def test_a_full_queue_is_503() -> None:
    status, text = await generate(Faults(queue_full_rate=1))
    assert (status, json.loads(text)["message"]) == (503, "The request queue is full.")


async def test_a_hung_request_is_never_answered() -> None:
    async with engine_with(Faults(hang_rate=1)) as (engine, session):
        request = asyncio.ensure_future(session.post("/generate", json=BODY))
        await until(lambda: engine.service.requests == 1)
        assert engine.service.engine.is_idle
        assert not request.done()
        request.cancel()
        await asyncio.wait({request})


async def test_an_abort_comes_with_fewer_tokens() -> None:
    answer = await spoiled(Faults(abort_rate=1))
    assert answer["meta_info"]["finish_reason"]["type"] == "abort"
    assert 0 < len(answer["output_ids"]) == len(answer["meta_info"]["output_token_logprobs"]) < 20


async def test_a_disconnect_ends_the_body_in_the_middle() -> None:
    with pytest.raises(aiohttp.ClientPayloadError):
        await generate(Faults(disconnect_rate=1))


async def test_output_ids_can_be_missing() -> None:
    assert "output_ids" not in await spoiled(Faults(missing_output_ids_rate=1))


async def test_log_probabilities_can_be_missing() -> None:
    assert "output_token_logprobs" not in (await spoiled(Faults(missing_logprobs_rate=1)))["meta_info"]


async def test_log_probabilities_can_be_one_short() -> None:
    answer = await spoiled(Faults(short_logprobs_rate=1))
    assert len(answer["meta_info"]["output_token_logprobs"]) == len(answer["output_ids"]) - 1 == 19


async def test_a_log_probability_can_be_nan() -> None:
    answer = await spoiled(Faults(nan_logprob_rate=1))
    assert sum(math.isnan(entry[0]) for entry in answer["meta_info"]["output_token_logprobs"]) == 1


async def test_a_finish_reason_can_be_unknown() -> None:
    answer = await spoiled(Faults(unknown_finish_rate=1))
    assert answer["meta_info"]["finish_reason"]["type"] not in ("stop", "length", "abort")


async def test_a_body_can_be_cut_off() -> None:
    status, text = await generate(Faults(truncated_body_rate=1))
    assert status == 200
    with pytest.raises(json.JSONDecodeError):
        json.loads(text)


async def test_a_body_can_be_html() -> None:
    status, text = await generate(Faults(html_body_rate=1))
    assert (status, text[:6]) == (200, "<html>")


async def test_faults_change_while_it_runs() -> None:
    async with engine_with(Faults()) as (_, session):
        async with session.post("/simulator/faults", json={"error_rate": 1, "slow_factor": 2}) as answer:
            assert (await answer.json())["error_rate"] == 1
        async with session.post("/generate", json=BODY) as answer:
            assert answer.status == 500
        async with session.post("/simulator/faults", json={"reset": True}) as answer:
            assert Faults(**await answer.json()) == Faults()
        async with session.post("/generate", json=BODY) as answer:
            assert answer.status == 200


@pytest.mark.parametrize(
    "changes", [{"eror_rate": 1}, {"error_rate": "1"}, {"error_rate": 2}, {"error_rate": 0.6, "hang_rate": 0.6}]
)
async def test_a_wrong_fault_is_refused_and_changes_nothing(changes: dict[str, Any]) -> None:
    async with engine_with(Faults(abort_rate=0.1)) as (engine, session):
        async with session.post("/simulator/faults", json=changes) as answer:
            assert answer.status == 400
        assert engine.service.faults == Faults(abort_rate=0.1)


@pytest.mark.parametrize("changes", [{"slow_factor": 8}, {"stalled": True}])
async def test_a_slow_or_stalled_engine_has_another_pace(changes: dict[str, Any]) -> None:
    async with engine_with(Faults()) as (engine, session):
        before = engine.service.engine.pace.of(1)
        async with session.post("/simulator/faults", json=changes):
            assert engine.service.engine.pace.of(1) <= before / 8


async def test_slow_down_lengthens_each_step() -> None:
    async with engine_with(Faults()) as (engine, session):
        async with session.post("/slow_down", json={"forward_sleep_time": 0.1}):
            assert engine.service.engine.pace.of(1) == pytest.approx(1 / (1 / 5000 + 0.1))
        async with session.post("/slow_down", json={"forward_sleep_time": None}):
            assert engine.service.engine.pace.of(1) == pytest.approx(5000)


async def test_it_dies_at_the_request_that_was_named() -> None:
    async with engine_with(Faults(die_after=2)) as (engine, session):
        async with session.post("/generate", json=BODY) as answer:
            assert answer.status == 200
        with pytest.raises(aiohttp.ClientError):
            await session.post("/generate", json=BODY)
        assert engine.dead.is_set()


async def test_it_dies_at_once() -> None:
    async with engine_with(Faults()) as (engine, session):
        with pytest.raises(aiohttp.ClientError):
            await session.post("/simulator/faults", json={"die": True})
        assert engine.dead.is_set()


def test_the_same_seed_draws_the_same_faults() -> None:
    faults = Faults(error_rate=0.3, hang_rate=0.2)
    first, second, other = ([faults.draw(seed, number) for number in range(200)] for seed in (1, 1, 2))
    assert first == second != other


def test_faults_are_as_frequent_as_asked_for() -> None:
    faults = Faults(error_rate=0.3, html_body_rate=0.1)
    drawn = [faults.draw(5, number) for number in range(5000)]
    assert drawn.count("error") / 5000 == pytest.approx(0.3, abs=0.03)
    assert drawn.count("html_body") / 5000 == pytest.approx(0.1, abs=0.02)
    assert drawn.count(None) / 5000 == pytest.approx(0.6, abs=0.03)
