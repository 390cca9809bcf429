"""What doctor finds: each thing that was looked at, as a fact, with the mend where it is not well."""

import threading
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
import redis.asyncio

from deploy.embedded import free_port
from deploy.simulator import Simulator, SimulatorSettings
from rolloutfleet.broker import Beat, Broker
from rolloutfleet.checkup import Finding, checkup
from tests.fakes.broker import WORKER, Fleet, group
from tests.fakes.worker import InstantWorker, make_run


@pytest.fixture
async def broker(client: redis.asyncio.Redis, run: str) -> Broker:
    return await make_run(client, run, sample_concurrency=64, n=8)


async def beat(broker: Broker, slots: int = 8, worker: str = WORKER, **facts: Any) -> None:
    await broker.heartbeat(Beat(worker, (), slots, {"state": "ready", **facts}))


async def find(broker: Broker, what: str, batch: int | None = None) -> Finding:
    (found,) = [finding for finding in await checkup(broker, batch) if finding.what == what]
    return found


async def test_a_server_with_a_problem_is_a_finding_for_each(broker: Broker):
    assert await find(broker, "server") == Finding(
        "server", False, "the append-only file is off: a restart of the server loses the run; set appendonly yes"
    )


async def test_a_run_that_is_not_there_ends_the_look_with_the_runs_that_are(
    client: redis.asyncio.Redis, broker: Broker, run: str
):
    found = await find(Broker(client, f"{run}-mistyped"), "run")
    assert not found.ok
    assert f"there is no run '{run}-mistyped'" in found.says


async def test_a_window_that_fits_is_told_with_its_size_and_its_reason(broker: Broker):
    await beat(broker)
    assert await find(broker, "window") == Finding("window", True, "W = 8 groups of 8: no prompt group waits")


async def test_a_window_without_places_needs_workers_or_a_number(client: redis.asyncio.Redis, run: str):
    broker = await make_run(client, run, sample_concurrency="auto")
    found = await find(broker, "window")
    assert (found.ok, found.says) == (False, "W is 0: start workers, or set sample_concurrency to a number")


async def test_a_window_smaller_than_the_slots_lets_some_idle(broker: Broker):
    await beat(broker, slots=100)
    found = await find(broker, "window")
    assert (found.ok, found.says.split(":")[0]) == (False, "sample_concurrency is 64, the workers have 100 slots")


@pytest.mark.parametrize(
    ("batch", "says"),
    [
        (15, "a batch of 15 groups fits into the 15 that can wait"),
        (16, "a batch of 16 groups is larger than the 15 that can wait: it fills only as the fleet generates"),
    ],
)
async def test_a_batch_is_held_against_what_can_wait(broker: Broker, batch: int, says: str):
    assert await find(broker, "batch", batch) == Finding("batch", True, says)


async def test_without_a_batch_there_is_nothing_to_say_of_it(broker: Broker):
    assert "batch" not in [finding.what for finding in await checkup(broker)]


async def test_no_worker_is_a_finding(broker: Broker):
    found = await find(broker, "workers")
    assert (found.ok, found.says) == (False, "no worker is alive: start some, and look at their logs")


async def test_workers_that_are_well_are_counted(broker: Broker):
    await beat(broker)
    await beat(broker, worker="other/1", state="draining")
    assert await find(broker, "workers") == Finding("workers", True, "2 alive")


async def test_a_worker_that_is_not_well_is_named_with_its_reason(broker: Broker):
    await beat(broker, state="unfit", reason="the engine does not answer")
    found = await find(broker, "workers")
    assert (found.ok, found.says) == (False, f"{WORKER} is unfit: the engine does not answer")


async def test_dead_letters_are_a_finding_that_says_where_to_read_why(broker: Broker):
    assert await find(broker, "dead letters") == Finding("dead letters", True, "none")
    await broker.submit([group("bad")])
    await InstantWorker(broker, rejects={"bad": "too long"}).step()
    found = await find(broker, "dead letters")
    assert (found.ok, found.says) == (False, "1 groups were given up: `rolloutfleet dead list` says why")


class ModelInfo(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/model_info" else 404)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Nothing on stderr."""


@pytest.fixture
def engine() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), ModelInfo) as server:
        serving = threading.Thread(target=server.serve_forever, args=(0.01,))
        serving.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        serving.join()


async def test_an_engine_that_answers_does(broker: Broker, engine: str):
    await beat(broker, engine=engine)
    assert await find(broker, f"engine {engine}") == Finding(f"engine {engine}", True, "answers")


async def test_engines_of_one_version_are_compared_by_their_weights(broker: Broker):
    same = [SimulatorSettings(weight_version="3", model_path="/w/3") for _ in range(2)]
    other, next_version = replace(same[0], model_path="/w/2"), replace(same[0], weight_version="4", model_path="/w/4")
    async with AsyncExitStack() as engines:
        for settings in (*same, next_version):
            engine = await engines.enter_async_context(Simulator(settings))
            await beat(broker, worker=f"{engine.port}/1", engine=engine.url)
        assert (await find(broker, "weights of version 3")).ok
        wrong = await engines.enter_async_context(Simulator(other))
        await beat(broker, worker=f"{wrong.port}/1", engine=wrong.url)
        found = await find(broker, "weights of version 3")
        assert (await find(broker, "weights of version 4")).ok
    assert (found.ok, found.says.split()[0]) == (False, wrong.url)


async def test_an_engine_that_cannot_be_seen_from_here_is_no_fault(broker: Broker):
    url = f"http://127.0.0.1:{free_port()}"
    await beat(broker, engine=url)
    found = await find(broker, f"engine {url}")
    assert found.ok
    assert "not reachable from here" in found.says


async def test_an_engine_address_that_is_none_is_no_crash(broker: Broker):
    await beat(broker, engine="nonsense")
    assert "not reachable from here" in (await find(broker, "engine nonsense")).says


async def test_an_engine_that_several_workers_name_is_asked_once(broker: Broker, engine: str):
    await beat(broker, engine=engine)
    await beat(broker, worker="other/1", engine=engine)
    assert len([finding for finding in await checkup(broker) if finding.what.startswith("engine")]) == 1


async def test_a_run_that_is_well_has_nothing_to_mend(broker: Broker, engine: str):
    await beat(broker, engine=engine)
    fleet = Fleet(broker)
    assert await fleet.claim() is not None
    assert [finding.what for finding in await checkup(broker, 4) if not finding.ok] == ["server"]
