"""Workers that are killed while new weights are on their way, as processes beside simulated engines."""

import asyncio
import signal
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from deploy.simulator import Simulator
from deploy.simulator.requests import GenerateRequest
from deploy.simulator.service import Plan
from rolloutfleet.messages import CompletedGroup, PromptGroup
from rolloutfleet.policy import Publication
from rolloutfleet.settings import RunConfig
from rolloutfleet.trainer import Trainer
from tests.chaos.processes import Worker
from tests.worker.fleet import until
from tests.worker.labels import SETTINGS, hurry, is_labelled_right, rows, versions

WORKERS, GROUPS, N, TOKENS = 3, 12, 2, 600
LEASE_SECONDS = 5  # a turn of a worker that is never heard of again ends after it
PATIENCE_SECONDS = 120

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(4 * PATIENCE_SECONDS)]

type Load = Callable[[str, str | None], Awaitable[None]]


class Engines:
    """The engines of one fleet. The first of them that is to load `stuck_at` never gets done with it."""

    def __init__(self, simulators: Sequence[Simulator], monkeypatch: pytest.MonkeyPatch) -> None:
        self.all = simulators
        self.stuck_at = ""
        self.stuck: Simulator | None = None
        self.asked: list[tuple[Simulator, str]] = []  # for samples: which engine, with which weights
        for engine in simulators:
            service = engine.service
            monkeypatch.setattr(service, "update_weights", partial(self._load, engine, service.update_weights))
            monkeypatch.setattr(service, "plan", partial(self._plan, engine, service.plan))

    async def _load(self, engine: Simulator, load: Load, path: str, version: str | None) -> None:
        if version == self.stuck_at and self.stuck is None:
            self.stuck = engine
            await asyncio.Event().wait()
        await load(path, version)

    def _plan(self, engine: Simulator, plan: Callable[[GenerateRequest], Plan], request: GenerateRequest) -> Plan:
        if request.max_new_tokens > 1:  # not a look at the engine
            self.asked.append((engine, engine.service.engine.version))
        return plan(request)

    def have(self, version: str, *, but: Simulator | None = None) -> bool:
        return {engine.service.weight_version for engine in self.all if engine is not but} == {version}

    def are_busy(self) -> bool:
        return all(engine.service.engine.running for engine in self.all)

    def asked_with(self, engine: Simulator) -> set[str]:
        return {version for asked, version in self.asked if asked is engine}


@pytest.fixture
async def engines(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Engines]:
    async with AsyncExitStack() as things:
        simulators = [await things.enter_async_context(Simulator(SETTINGS)) for _ in range(WORKERS)]
        yield Engines(simulators, monkeypatch)


@asynccontextmanager
async def workers_of(trainer: Trainer, redis_url: str, engines: Engines, logs: Path) -> AsyncGenerator[list[Worker]]:
    """A worker process for each engine."""
    common = {
        "REDIS_URL": redis_url,
        "ROLLOUTFLEET_RUN": trainer.broker.keys.run,
        "ROLLOUTFLEET_REWARD": "",
        "ROLLOUTFLEET_HEARTBEAT_SECONDS": "0.5",
        "ROLLOUTFLEET_ENGINE_PROBE_SECONDS": "1",
        "ROLLOUTFLEET_PROBE_HOST": "127.0.0.1",
    }
    workers = [
        Worker(f"pod-{at}", common | {"ROLLOUTFLEET_ENGINE_URL": engine.url}, logs)
        for at, engine in enumerate(engines.all)
    ]
    try:
        for worker in workers:
            await worker.start()
        yield workers
    finally:
        for worker in workers:
            await worker.end()


async def publish(trainer: Trainer, path: str, at_once: int = 0) -> None:
    await trainer.broker.publish(path, Publication(path, at_once=at_once))


async def submit(trainer: Trainer) -> None:
    sampling = {"max_new_tokens": TOKENS, "ignore_eos": True}
    groups = [PromptGroup(id=f"g{at}", input_ids=[5, 6], sampling_params=sampling) for at in range(GROUPS)]
    await trainer.submit(groups)


async def trained(trainer: Trainer) -> list[CompletedGroup]:
    async with trainer.batch(GROUPS, timeout=PATIENCE_SECONDS) as batch:
        return list(batch.groups)


@pytest.mark.parametrize("comes_back", ["at once", "when the others are done"])
async def test_a_worker_that_is_killed_in_its_turn_holds_up_nobody_and_begins_with_the_new_weights(
    redis_url: str, run: str, engines: Engines, tmp_path: Path, comes_back: str
) -> None:
    config = RunConfig(n=N, sample_concurrency=64, reward="trainer", lease_seconds=LEASE_SECONDS)
    async with Trainer.connect(redis_url, run, config=config) as trainer:
        await publish(trainer, "/w/1")
        async with workers_of(trainer, redis_url, engines, tmp_path) as workers:
            await until(lambda: engines.have("1"), PATIENCE_SECONDS)
            await submit(trainer)
            await until(engines.are_busy, PATIENCE_SECONDS)
            engines.stuck_at = "2"
            await publish(trainer, "/w/2", at_once=1)
            stuck: Simulator = await until(lambda: engines.stuck, PATIENCE_SECONDS)
            killed = workers[engines.all.index(stuck)]
            killed.signal(signal.SIGKILL)
            await killed.wait()
            engines.asked.clear()
            if comes_back == "at once":
                await killed.start()
            await until(lambda: engines.have("2", but=stuck), PATIENCE_SECONDS)
            if comes_back != "at once":
                await killed.start()
            await until(lambda: engines.asked_with(stuck), PATIENCE_SECONDS)
            hurry(*engines.all)
            groups = await trained(trainer)
    made = rows(groups)
    assert [len(row) for row in made] == [TOKENS] * GROUPS * N
    assert versions(groups) <= {(1,), (1, 2), (2,)}
    assert all(is_labelled_right(row, stuck, begins_anew=False) for row in made)
    assert engines.asked_with(stuck) == {"2"}
