"""The small parts: slots, store, health, settings, probes."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from rolloutfleet.broker import Broker, Finished, Put
from rolloutfleet.errors import BrokerUnavailable, EngineUnavailable
from rolloutfleet.metrics import WorkerMetrics
from rolloutfleet.settings import RunConfig
from rolloutfleet.window import Refill
from tests.fakes.engine import FakeEngine
from tests.worker.fleet import Fleet, until
from worker.engine import EngineClient
from worker.health import TRIES_UNTIL_DOWN, EngineHealth, Fitness
from worker.model import read_vocab_size
from worker.settings import WorkerSettings, WrongSetting
from worker.slots import Slots, room
from worker.store import SampleStore


@pytest.mark.parametrize("refill", ["group", "sample"])
@pytest.mark.parametrize(("unmade", "held", "places"), [(0, 0, 4), (31, 4, 1), (32, 4, 0), (24, 3, 1), (35, 5, 0)])
def test_a_pod_claims_what_its_free_slots_have_samples_for(refill: Refill, unmade: int, held: int, places: int) -> None:
    assert room(32, unmade, held, RunConfig(n=8, refill=refill)) == places


@pytest.mark.parametrize(("refill", "shares"), [("group", 2), ("sample", 4)])
def test_a_pod_whose_rewards_are_slow_holds_a_few_shares_of_the_window_at_the_most(refill: Refill, shares: int) -> None:
    config = RunConfig(n=8, refill=refill, overcommit=1000)
    assert room(32, 0, 4 * shares - 1, config) == 1
    assert room(32, 0, 4 * shares, config) == 0


def test_a_pod_of_few_slots_has_room_for_one_group() -> None:
    assert room(2, 0, 0, RunConfig(n=8)) == 1
    assert room(2, 8, 1, RunConfig(n=8)) == 0


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


async def test_busy_time_is_summed_over_the_slots_that_are_held() -> None:
    clock = Clock()
    slots = Slots(4, clock)
    async with slots.hold(), slots.hold():
        clock.now = 1.5
    clock.now = 2.0
    assert slots.take_times() == (3000, 8000)
    assert slots.take_times() == (0, 0)


async def test_while_no_slots_are_offered_only_busy_ones_count() -> None:
    clock = Clock()
    slots = Slots(4, clock)
    slots.offer(0)
    async with slots.hold():
        clock.now = 1.0
    clock.now = 2.0
    assert slots.take_times() == (1000, 1000)


async def test_what_is_less_than_a_millisecond_is_kept_for_the_next_time() -> None:
    clock = Clock()
    slots = Slots(1, clock)
    for _ in range(4):
        clock.now += 0.0005
        slots.take_times()
    clock.now += 0.0005
    assert slots.take_times() == (0, 0)
    clock.now += 0.0006
    assert slots.take_times() == (0, 1)


class SlowBroker(Broker):
    """Only `put`, which waits for `go` and notes what came together."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.batches: list[list[int]] = []
        self.failures = 0

    async def put(self, samples: Sequence[Finished]) -> list[Put]:
        self.batches.append([sample.index for sample in samples])
        await self.go.wait()
        if self.failures:
            self.failures -= 1
            raise BrokerUnavailable("away")
        return ["had" if sample.index % 2 else "stored" for sample in samples]


def finished(index: int) -> Finished:
    return Finished("g", "born", index, b"data")


async def test_samples_that_finish_while_a_put_is_under_way_go_together_in_the_next() -> None:
    broker = SlowBroker()
    store = SampleStore(broker, WorkerMetrics())
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(store.run())
        puts = [tasks.create_task(store.put(finished(0)))]
        await until(lambda: broker.batches)
        puts += [tasks.create_task(store.put(finished(index))) for index in (1, 2, 3)]
        await asyncio.sleep(0)
        broker.go.set()
        words = [await put for put in puts]
        store.close()
    assert broker.batches == [[0], [1, 2, 3]]
    assert words == ["stored", "had", "stored", "had"]


async def test_a_broker_that_is_away_loses_no_sample() -> None:
    broker = SlowBroker()
    broker.go.set()
    broker.failures = 2
    store = SampleStore(broker, WorkerMetrics())
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(store.run())
        word = await store.put(finished(0))
        store.close()
    assert (word, broker.batches) == ("stored", [[0], [0], [0]])


def test_an_engine_is_down_after_a_few_failures_in_a_row_without_a_success() -> None:
    fitness = Fitness()
    health = EngineHealth(fitness)
    for tries in range(1, TRIES_UNTIL_DOWN):
        health.failed(EngineUnavailable("refused"), tries, 0.0)
    assert not health.is_down
    health.failed(EngineUnavailable("refused"), TRIES_UNTIL_DOWN, 0.0)
    assert health.is_down
    assert fitness.why("engine_down") == "refused"


def test_a_success_between_the_failures_of_one_request_keeps_the_engine_up() -> None:
    health = EngineHealth(Fitness())
    health.succeeded()
    health.failed(EngineUnavailable("500"), TRIES_UNTIL_DOWN, 0.0)
    assert not health.is_down


@pytest.mark.parametrize(
    ("config", "size"),
    [
        ('{"vocab_size": 1024}', 1024),
        ('{"text_config": {"vocab_size": 9}}', 9),
        ('{"vocab_size": "many"}', None),
        ("[]", None),
        ("{", None),
    ],
)
def test_the_vocabulary_is_read_from_the_models_own_config(tmp_path: Path, config: str, size: int | None) -> None:
    (tmp_path / "config.json").write_text(config)
    assert read_vocab_size(str(tmp_path)) == size


@pytest.mark.parametrize("path", ["", "/no/such/model", "nobody/no-such-model", "a b c"])
def test_a_model_that_is_not_on_this_machine_has_no_known_vocabulary(path: str) -> None:
    assert read_vocab_size(path) is None


@pytest.mark.parametrize(
    ("server", "context"),
    [
        ({"context_length": 300, "max_req_input_len": 290}, 300),
        ({"context_length": None, "max_req_input_len": 4090}, 4096),
    ],
)
async def test_the_context_is_taken_from_what_the_engine_tells(
    engine: FakeEngine, server: dict[str, Any], context: int
) -> None:
    engine.model_info = {"tokenizer_path": "t", "weight_version": "default"}
    engine.server_info = server | {"max_running_requests": 64}
    async with EngineClient(engine.url) as client:
        info = await client.info()
    assert (info.context_length, info.vocab_size, info.max_running_requests) == (context, None, 64)


def test_a_default_heartbeat_is_a_sixth_of_the_lease() -> None:
    settings = WorkerSettings(redis_url="redis://x", run="r")
    assert settings.heartbeat(60) == 10


def test_a_heartbeat_longer_than_a_third_of_the_lease_is_refused() -> None:
    settings = WorkerSettings(redis_url="redis://x", run="r", heartbeat_seconds=21)
    with pytest.raises(WrongSetting, match="heartbeat_seconds is 21 and the run's lease_seconds 60"):
        settings.heartbeat(60)


async def test_the_probes_tell_whether_the_worker_is_ready_and_what_it_did(
    fleet: Fleet, engine: FakeEngine, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    await fleet.configure(n=2)
    await fleet.submit("g")
    async with fleet.worker(), aiohttp.ClientSession() as http:
        await fleet.completed(1)
        address = next(record for record in caplog.messages if record.startswith("ready ")).rpartition("=")[2]

        async def get(path: str) -> tuple[int, str]:
            async with http.get(f"http://{address}{path}") as response:
                return response.status, await response.text()

        assert await get("/healthz") == (200, "ok\n")
        assert await get("/readyz") == (200, "ready\n")
        _, metrics = await get("/metrics")
        engine.is_ready = False
        await until(lambda: fleet.facts('"engine_down"'))
        status, reason = await get("/readyz")
    assert 'rolloutfleet_worker_groups_total{outcome="completed"} 1.0' in metrics
    assert "rolloutfleet_worker_samples_total 2.0" in metrics
    assert (status, reason.startswith("engine_down: the engine at")) == (503, True)
