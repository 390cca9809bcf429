"""New weights on real engines while samples run: nothing is lost, and every token is labelled with what made it.

The labels are checked with the engines themselves: each answer is scored again by an engine that has the weights which
its spans name, and its log-probabilities must be the same.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from rolloutfleet.broker import Beat, Broker
from rolloutfleet.checkup import checkup
from rolloutfleet.messages import CompletedGroup, Row
from rolloutfleet.redis import connect
from rolloutfleet.settings import RunConfig
from rolloutfleet.trainer import Trainer
from tests.engine.client import Client, client_of
from tests.engine.model import make_model
from tests.fakes.engine import FakeEngine
from tests.worker.fleet import Fleet, until

URLS = os.environ.get("ROLLOUTFLEET_ENGINE_URLS", "").split()
PYTHON = os.environ.get("ROLLOUTFLEET_ENGINE_PYTHON", "")
SENDER = Path(__file__).with_name("sender.py")
GROUPS, N, LONGEST = 4, 2, 200
STEP_SECONDS = 0.02
NEAR = 1e-3

pytestmark = [
    pytest.mark.skipif(not URLS, reason="needs real engines: make test-engine starts them"),
    pytest.mark.timeout(400),
]


@pytest.fixture
async def clients() -> AsyncIterator[list[Client]]:
    """Of both engines; afterwards they have the weights and the speed that they were started with."""
    async with client_of(URLS[0]) as one, client_of(URLS[1]) as other:
        both = [one, other]
        started = [(await client.get("/server_info"))[1]["model_path"] for client in both]
        for client, path in zip(both, started, strict=True):
            await client.post("/update_weights_from_disk", {"model_path": path, "weight_version": "0"})
        yield both
        for client, path in zip(both, started, strict=True):
            await client.post("/slow_down", {"forward_sleep_time": None})
            await client.post("/abort_request", {"abort_all": True})
            await client.post("/continue_generation")
            await client.post("/update_weights_from_disk", {"model_path": path, "weight_version": "0"})


@pytest.fixture
async def fleet(run: str, redis_url: str) -> AsyncIterator[Fleet]:
    async with connect(redis_url) as client:
        yield Fleet(Broker(client, run), redis_url, FakeEngine())


def trainer_of(fleet: Fleet) -> Trainer:
    config = RunConfig(n=N, sample_concurrency=64, reward="trainer")
    return Trainer.connect(fleet.redis_url, fleet.broker.keys.run, config=config)


async def submit(fleet: Fleet) -> None:
    sampling = {"max_new_tokens": LONGEST, "ignore_eos": True, "temperature": 1.0}
    await fleet.submit(*(f"g{number}" for number in range(GROUPS)), sampling_params=sampling, input_ids=[5, 6, 7])


async def is_running(client: Client) -> bool:
    return (await client.load())[0] > 0


async def finished(trainer: Trainer) -> list[CompletedGroup]:
    async with trainer.batch(GROUPS, timeout=240) as batch:
        return list(batch.groups)


def rows(groups: Sequence[CompletedGroup]) -> list[Row]:
    return [sample.rows[0] for group in groups for sample in group.samples]


def versions(row: Row) -> list[int]:
    return [version for version, _, _ in row.spans]


async def assert_made_by(client: Client, row: Row, version: int) -> None:
    """The engine, which has this version now, gives the tokens of its spans the same log-probabilities."""
    body: dict[str, Any] = {"input_ids": [5, 6, 7, *row.ids.tolist()], "return_logprob": True, "logprob_start_len": 0}
    answer = await client.generate({"max_new_tokens": 1, "temperature": 1.0}, **body)
    scored = [entry[0] for entry in answer["meta_info"]["input_token_logprobs"]][-len(row.ids) :]
    for made_by, start, end in row.spans:
        if made_by == version:
            assert row.logprobs[start:end].tolist() == pytest.approx(scored[start:end], abs=NEAR)


@pytest.mark.parametrize("mode", ["retract", "abort", "drain"])
async def test_new_weights_while_samples_run(fleet: Fleet, clients: list[Client], tmp_path: Path, mode: Any) -> None:
    first, second = make_model(tmp_path / "1", seed=0), make_model(tmp_path / "2", seed=1)
    engine, other = clients
    async with trainer_of(fleet) as trainer:
        old = await trainer.publish_weights(first)
        async with fleet.worker(engine_url=URLS[0], reward="", slots=4):
            await engine.post("/slow_down", {"forward_sleep_time": STEP_SECONDS})
            await submit(fleet)
            await until(lambda: is_running(engine))
            new = await trainer.publish_weights(second, mode=mode)
            groups = await finished(trainer)
            await until(lambda: fleet.stat("updates_loaded"))
    await engine.post("/slow_down", {"forward_sleep_time": None})
    made = rows(groups)
    assert [len(row) for row in made] == [LONGEST] * GROUPS * N
    spans = {tuple(versions(row)) for row in made}
    assert spans == ({(old,), (new,)} if mode == "drain" else {(old, new), (new,)})
    await other.post("/update_weights_from_disk", {"model_path": str(first), "weight_version": str(old)})
    for row in made:
        await assert_made_by(engine, row, new)
        await assert_made_by(other, row, old)


async def test_weights_that_the_engine_can_t_read_leave_the_worker_out_until_good_ones_come(
    fleet: Fleet, clients: list[Client], tmp_path: Path
) -> None:
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "config.json").write_text("{}")
    async with trainer_of(fleet) as trainer:
        await trainer.publish_weights(tmp_path / "bad")
        async with fleet.worker(engine_url=URLS[0], reward=""):
            await until(lambda: fleet.facts('"weights_failed"'), 120)
            await submit(fleet)
            good = await trainer.publish_weights(make_model(tmp_path / "good", seed=2))
            groups = await finished(trainer)
    assert {tuple(versions(row)) for row in rows(groups)} == {(good,)}


async def send(folder: Path, version: int) -> None:
    """As a trainer that sends to all engines."""
    sender = await asyncio.create_subprocess_exec(PYTHON, str(SENDER), str(folder), str(version), *URLS)
    assert await sender.wait() == 0


async def test_a_trainer_that_sends_its_weights_over_gloo(fleet: Fleet, clients: list[Client], tmp_path: Path) -> None:
    second = make_model(tmp_path / "2", seed=1)
    engine, other = clients
    async with trainer_of(fleet) as trainer:
        await engine.post("/update_weight_version", {"new_version": "0"})
        async with fleet.worker(engine_url=URLS[0], reward=""):
            await engine.post("/slow_down", {"forward_sleep_time": 5 * STEP_SECONDS})
            await submit(fleet)
            await until(lambda: is_running(engine))
            new = await trainer.publish_weights(mode="external", label="over gloo")
            await send(second, new)
            await engine.post("/slow_down", {"forward_sleep_time": None})
            groups = await finished(trainer)
            await until(lambda: fleet.facts(f'"weight_version":"{new}"'))
    made = rows(groups)
    assert new in {version for row in made for version in versions(row)}
    for row in made:
        await assert_made_by(engine, row, new)
    _, sent = await engine.post("/weights_checker", {"action": "checksum"})
    await other.post("/update_weights_from_disk", {"model_path": str(second), "weight_version": str(new)})
    _, read = await other.post("/weights_checker", {"action": "checksum"})
    assert sent["per_engine_checksum"] == read["per_engine_checksum"]


async def test_doctor_finds_an_engine_that_has_other_weights_under_the_same_version(
    fleet: Fleet, clients: list[Client], tmp_path: Path
) -> None:
    async with trainer_of(fleet):
        for number, url in enumerate(URLS):
            await fleet.broker.heartbeat(Beat(f"pod-{number}/1", (), 8, {"state": "ready", "engine": url}))
        before = await checkup(fleet.broker)
        path = str(make_model(tmp_path / "2", seed=2))
        await clients[1].post("/update_weights_from_disk", {"model_path": path, "weight_version": "0"})
        after = await checkup(fleet.broker)
    assert [finding.ok for finding in before if finding.what == "weights of version 0"] == [True]
    assert [finding.ok for finding in after if finding.what == "weights of version 0"] == [False]
