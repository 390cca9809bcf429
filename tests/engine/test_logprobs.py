"""The numbers that a trainer is handed, against a forward pass of transformers on the same weights."""

import asyncio
import json
import os
import random
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rolloutfleet.messages import CompletedGroup, PromptGroup
from rolloutfleet.settings import RunConfig
from rolloutfleet.trainer import Trainer
from tests.engine.client import Client, client_of, until
from tests.engine.model import make_model
from tests.engine.servers import Servers
from worker.engine import EngineClient
from worker.health import Fitness
from worker.scale import Scale
from worker.settings import WorkerSettings
from worker.start import serve
from worker.worker import Stop

URLS = os.environ.get("ROLLOUTFLEET_ENGINE_URLS", "").split()
PYTHON = os.environ.get("ROLLOUTFLEET_ENGINE_PYTHON", "")
FORWARD = Path(__file__).with_name("forward.py")
GROUPS, N, TOKENS = 6, 4, 80
LIMIT = 1e-4
PATIENCE_SECONDS = 300

pytestmark = [
    pytest.mark.skipif(not URLS, reason="needs real engines: make test-engine starts them"),
    pytest.mark.timeout(2 * PATIENCE_SECONDS + 60),
]


@dataclass(frozen=True, slots=True)
class Case:
    """Tokens `start` to `end` of a sample that the weights at `model` made."""

    model: str
    prompt: list[int]
    ids: list[int]
    logprobs: Sequence[float]
    start: int
    end: int
    temperature: float

    def line(self) -> bytes:
        wanted = {"model": self.model, "prompt": self.prompt, "ids": self.ids, "temperature": self.temperature}
        return json.dumps(wanted).encode() + b"\n"


@pytest.fixture
def prompts() -> list[PromptGroup]:
    draw = random.Random(5)
    return [
        PromptGroup(id=f"g{at}", input_ids=[draw.randrange(3, 500) for _ in range(draw.randrange(4, 40))])
        for at in range(GROUPS)
    ]


@asynccontextmanager
async def working(redis_url: str, run: str, temperature: float) -> AsyncGenerator[Trainer]:
    """A run, a worker on the first engine, and the trainer."""
    config = RunConfig(n=N, sample_concurrency=GROUPS * N, reward="trainer")
    settings = WorkerSettings(
        redis_url=redis_url,
        run=run,
        engine_url=URLS[0],
        temperature=temperature,
        max_new_tokens=TOKENS,
        probe_host="127.0.0.1",
    )
    stop = Stop()
    async with Trainer.connect(redis_url, run, config=config) as trainer:
        worker = asyncio.create_task(serve(settings, stop))
        try:
            yield trainer
        finally:
            stop.ask()
            await worker


async def forward(cases: Sequence[Case]) -> list[list[float]]:
    """What transformers says to each."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    process = await asyncio.create_subprocess_exec(
        PYTHON, str(FORWARD), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, env=environment
    )
    async with asyncio.timeout(PATIENCE_SECONDS):
        out, _ = await process.communicate(b"".join(case.line() for case in cases))
    return [json.loads(line) for line in out.splitlines()]


async def errors(cases: Sequence[Case]) -> list[float]:
    """The largest difference in each case."""
    said = await forward(cases)
    assert len(said) == len(cases)
    return [
        float(np.abs(np.asarray(case.logprobs) - numbers)[case.start : case.end].max())
        for case, numbers in zip(cases, said, strict=True)
    ]


def cases_of(groups: Sequence[CompletedGroup], models: dict[int, str], temperature: float) -> list[Case]:
    """One for each version of each sample."""
    cases: list[Case] = []
    for group in groups:
        for sample in group.samples:
            (row,) = sample.rows
            assert sample.sampling == {"temperature": temperature}
            prompt, ids, numbers = group.prompt.input_ids or [], row.ids.tolist(), row.logprobs.tolist()
            cases += [Case(models[v], prompt, ids, numbers, start, end, temperature) for v, start, end in row.spans]
    return cases


async def model_path(client: Client) -> str:
    _, info = await client.get("/model_info")
    return info["model_path"]


async def load(client: Client, path: str, version: str) -> None:
    """New weights, as a fleet does it: running requests go on under them."""
    await client.post("/pause_generation", {"mode": "retract"})
    answer = await client.post("/update_weights_from_disk", {"model_path": path, "weight_version": version})
    await client.post("/continue_generation")
    assert answer[0] == 200, answer


@pytest.mark.parametrize("temperature", [1.0, 0.7])
async def test_log_probabilities_are_those_of_a_forward_pass(
    redis_url: str, run: str, prompts: list[PromptGroup], temperature: float
) -> None:
    async with client_of(URLS[0]) as client, working(redis_url, run, temperature) as trainer:
        await load(client, await model_path(client), "1")
        await trainer.submit(prompts)
        async with trainer.batch(GROUPS, timeout=PATIENCE_SECONDS) as batch:
            cases = cases_of(batch.groups, {1: await model_path(client)}, temperature)
    assert len(cases) == GROUPS * N
    assert max(await errors(cases)) < LIMIT


async def test_after_an_update_new_tokens_have_the_new_weights_log_probabilities(
    redis_url: str, run: str, prompts: list[PromptGroup], tmp_path: Path
) -> None:
    other: Any = str(make_model(tmp_path / "other", seed=1))
    async with client_of(URLS[0]) as client, working(redis_url, run, 0.7) as trainer:
        first = await model_path(client)
        await load(client, first, "1")
        await client.post("/slow_down", {"forward_sleep_time": 0.1})
        await trainer.submit(prompts)
        await until(lambda: _is_busy(client))
        await load(client, other, "2")
        await client.post("/slow_down", {"forward_sleep_time": None})
        try:
            async with trainer.batch(GROUPS, timeout=PATIENCE_SECONDS) as batch:
                cases = cases_of(batch.groups, {1: first, 2: other}, 0.7)
        finally:
            await load(client, first, "3")
    assert {case.model for case in cases if case.start > 0} == {other}
    assert max(await errors(cases)) < LIMIT


async def test_an_engine_that_does_not_scale_by_the_temperature_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SGLANG_RETURN_ORIGINAL_LOGPROB", "1")
    with Servers(Path(PYTHON), make_model(tmp_path / "model"), tmp_path) as servers:
        unscaled = await asyncio.to_thread(servers.start)
        await asyncio.to_thread(servers.wait, unscaled)
        found = [await _scale_of(url) for url in (URLS[0], unscaled.url)]
    assert found[0] == ""
    assert "don't follow the temperature (by 1.00" in found[1]


async def _scale_of(url: str) -> str:
    async with EngineClient(url) as engine:
        return await Scale(engine, Fitness(), 1).check()


async def _is_busy(client: Client) -> bool:
    return (await client.load())[0] >= N
