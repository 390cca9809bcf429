"""New weights while samples run, on simulated engines, whose log-probabilities say which weights made a token."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from deploy.simulator import Simulator
from rolloutfleet.messages import CompletedGroup
from rolloutfleet.policy import Publication
from rolloutfleet.settings import RunConfig
from rolloutfleet.trainer import Trainer
from tests.worker.fleet import PATIENCE, Fleet, until
from tests.worker.labels import SETTINGS, SLOTS, hurry, is_labelled_right, rows, versions

LONG = 600  # minutes, at the speed that the engines have at first
GROUPS, N = 3, 2


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worker.weights.POLICY_SECONDS", 0.05)
    monkeypatch.setattr("worker.watches.LEAST_PROBE_SECONDS", 0.05)
    monkeypatch.setattr("worker.watches.COUNT_SECONDS", 0.05)


@pytest.fixture
async def simulator() -> AsyncIterator[Simulator]:
    async with Simulator(SETTINGS) as engine:
        yield engine


async def publish(fleet: Fleet, path: str, **fields: Any) -> int:
    return await fleet.broker.publish(path, Publication(path, **fields))


async def submit(fleet: Fleet, *ids: str) -> None:
    await fleet.submit(*ids, sampling_params={"max_new_tokens": LONG, "ignore_eos": True})


def has_begun(simulator: Simulator) -> bool:
    """Whether every slot is busy with a request that has made some tokens, and is far from its end."""
    engine = simulator.service.engine
    engine.settle()
    return engine.running == SLOTS and all(engine.made(job) > 1 for job in engine.unfinished()[:SLOTS])


def trainer_of(fleet: Fleet) -> Trainer:
    config = RunConfig(n=N, sample_concurrency=64, reward="trainer")
    return Trainer.connect(fleet.redis_url, fleet.broker.keys.run, config=config)


async def trained(trainer: Trainer, count: int) -> list[CompletedGroup]:
    async with trainer.batch(count, timeout=PATIENCE) as batch:
        return list(batch.groups)


@pytest.mark.parametrize("mode", ["retract", "abort", "drain"])
async def test_an_update_loses_nothing_and_labels_every_token(fleet: Fleet, simulator: Simulator, mode: Any) -> None:
    async with trainer_of(fleet) as trainer:
        await publish(fleet, "/w/1")
        async with fleet.worker(engine_url=simulator.url, reward=""):
            await submit(fleet, *(f"g{number}" for number in range(GROUPS)))
            await until(lambda: has_begun(simulator))
            await publish(fleet, "/w/2", mode=mode)
            if mode == "drain":
                await until(lambda: fleet.facts('"updating"'))
                hurry(simulator)
            await until(lambda: simulator.service.weight_version == "2")
            hurry(simulator)
            groups = await trained(trainer, GROUPS)
    assert versions(groups) == ({(1,), (2,)} if mode == "drain" else {(1, 2), (2,)})
    assert [len(row) for row in rows(groups)] == [LONG] * GROUPS * N
    assert all(is_labelled_right(row, simulator, mode == "abort") for row in rows(groups))
    assert await fleet.stat("samples_made_again") == 0


async def test_a_dead_worker_s_turn_does_not_hold_up_the_others(fleet: Fleet, simulator: Simulator) -> None:
    await fleet.configure(n=1, lease_seconds=1)
    await publish(fleet, "/w/1")
    async with fleet.worker(engine_url=simulator.url):
        await until(lambda: simulator.service.weight_version == "1")
        await until(lambda: fleet.stat("updates_loaded"))
        await publish(fleet, "/w/2", at_once=1)
        # As one that was killed in the middle of its load: it took its turn, and is never heard of again.
        await fleet.broker.update("begin", "dead/1", 2, "its engine")
        await until(lambda: simulator.service.weight_version == "2")


async def test_a_rolling_update_reaches_every_engine_while_samples_run(fleet: Fleet) -> None:
    async with AsyncExitStack() as things, trainer_of(fleet) as trainer:
        await publish(fleet, "/w/1")
        engines = [await things.enter_async_context(Simulator(SETTINGS)) for _ in range(3)]
        for number, engine in enumerate(engines):
            await things.enter_async_context(fleet.worker(pod=f"pod{number}", engine_url=engine.url, reward=""))
        ids = [f"g{number}" for number in range(12)]
        await submit(fleet, *ids)
        await until(lambda: {engine.service.weight_version for engine in engines} == {"1"})
        await until(lambda: all(engine.service.engine.running for engine in engines))
        await publish(fleet, "/w/2", at_once=1)
        await until(lambda: {engine.service.weight_version for engine in engines} == {"2"})
        hurry(*engines)
        groups = await trained(trainer, len(ids))
        await submit(fleet, "last")
        last = await trained(trainer, 1)
    assert versions(groups) <= {(1,), (1, 2), (2,)}
    assert versions(last) == {(2,)}
    assert all(is_labelled_right(row, engines[0], begins_anew=False) for row in rows([*groups, *last]))


async def test_two_workers_beside_one_engine_load_once(fleet: Fleet, simulator: Simulator) -> None:
    async with trainer_of(fleet) as trainer:
        await publish(fleet, "/w/1")
        async with (
            fleet.worker(engine_url=simulator.url, slots=2, reward=""),
            fleet.worker(pod="other", engine_url=simulator.url, slots=2, reward=""),
        ):
            await submit(fleet, *(f"g{number}" for number in range(GROUPS)))
            await until(lambda: simulator.service.weight_version == "1" and simulator.service.engine.running)
            await publish(fleet, "/w/2")
            await until(lambda: simulator.service.weight_version == "2")
            hurry(simulator)
            groups = await trained(trainer, GROUPS)
            await until(lambda: fleet.facts('"weight_version":"2"'))
    assert await fleet.stat("updates_loaded") == 2
    assert all(is_labelled_right(row, simulator, begins_anew=False) for row in rows(groups))
