"""Start, leases, drain and end of a worker."""

import asyncio
import logging
from typing import Any

import pytest

from deploy.embedded import EmbeddedServer
from rolloutfleet.answers import as_dict
from rolloutfleet.broker import Broker
from rolloutfleet.redis import connect
from rolloutfleet.settings import RunConfig
from tests.fakes.engine import FakeEngine, never, said
from tests.worker import hooks
from tests.worker.fleet import Fleet, until
from worker.settings import WrongSetting

HOOKS = "tests.worker.hooks"


@pytest.fixture(autouse=True)
def quick_config(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worker.watches.CONFIG_SECONDS", 0.1)


async def test_a_worker_waits_for_redis_and_works_when_it_comes(
    engine: FakeEngine, caplog: pytest.LogCaptureFixture
) -> None:
    server = EmbeddedServer(durability="off")
    server.start()
    server.kill()
    async with connect(server.url) as client:
        fleet = Fleet(Broker(client, "late"), server.url, engine)
        async with fleet.worker():
            await until(lambda: "waits for the broker" in caplog.text)
            server.start()
            await fleet.configure(n=1)
            await fleet.submit("g")
            (entry,) = await fleet.completed(1)
    server.close()
    assert entry.id == "g"


async def test_a_worker_goes_on_when_redis_was_away(engine: FakeEngine) -> None:
    with EmbeddedServer(durability="always") as server:
        async with connect(server.url) as client:
            fleet = Fleet(Broker(client, "away"), server.url, engine)
            await fleet.configure(n=1)
            go = asyncio.Event()
            engine.script = lambda _: after(go)
            await fleet.submit("g", "h")
            async with fleet.worker(slots=1):
                await until(lambda: engine.running == 1)
                server.kill()
                go.set()
                server.start()
                entries = await fleet.completed(2)
    assert [entry.fields["attempts"] for entry in entries] == [b"1", b"1"]
    assert len(engine.requests) == 2


async def after(event: asyncio.Event) -> dict[str, Any]:
    await event.wait()
    return said([1])


async def test_a_worker_that_is_told_to_stop_while_redis_is_away_ends(
    engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("worker.worker.RELEASE_SECONDS", 0.1)
    engine.script = never
    with EmbeddedServer(durability="off") as server:
        async with connect(server.url) as client:
            fleet = Fleet(Broker(client, "stop"), server.url, engine)
            await fleet.configure(n=1)
            await fleet.submit("g")
            async with fleet.worker(drain_seconds=0) as worked:
                await until(lambda: engine.running == 1)
                server.kill()
                worked.stop.ask()
                code = await worked.ended()
    assert code == 0


async def test_a_worker_waits_for_the_config_of_its_run(fleet: Fleet, caplog: pytest.LogCaptureFixture) -> None:
    async with fleet.worker():
        await until(lambda: "waits for the run" in caplog.text)
        await fleet.configure(n=1)
        await fleet.submit("g")
        (entry,) = await fleet.completed(1)
    assert entry.id == "g"


async def test_a_worker_says_that_the_server_evicts_keys(engine: FakeEngine, caplog: pytest.LogCaptureFixture) -> None:
    with EmbeddedServer(durability="off", arguments=["--maxmemory-policy", "allkeys-lru"]) as server:
        async with connect(server.url) as client:
            fleet = Fleet(Broker(client, "evicts"), server.url, engine)
            await fleet.configure()
            async with fleet.worker():
                await until(lambda: "maxmemory-policy is allkeys-lru" in caplog.text)
    assert caplog.text.count("maxmemory-policy is allkeys-lru") == 1


async def test_heartbeats_follow_a_lease_that_becomes_shorter(fleet: Fleet) -> None:
    await fleet.configure(n=1)
    go = asyncio.Event()
    fleet.engine.script = lambda _: after(go)
    await fleet.submit("g")
    deadlines: set[float] = set()

    async def is_extended_often() -> bool:
        (deadline,) = await fleet.broker.calls.read([["ZSCORE", fleet.broker.keys.named("leases"), "g"]])
        deadlines.add(float(deadline))
        return len(deadlines) > 8

    async with fleet.worker(heartbeat_seconds=None):
        await until(lambda: fleet.engine.running == 1)
        await fleet.configure(n=1, lease_seconds=1)
        await until(is_extended_often)
        go.set()
        await fleet.completed(1)
    assert await fleet.stat("reaped") == 0


async def test_a_lease_must_outlast_three_heartbeats(fleet: Fleet) -> None:
    await fleet.configure(lease_seconds=1)
    with pytest.raises(WrongSetting, match="a lease must outlast three heartbeats"):
        async with fleet.worker(heartbeat_seconds=0.4) as worked:
            await worked.ended()


@pytest.mark.usefixtures("impatient")
async def test_a_worker_evicts_earlier_processes_of_its_pod_and_does_their_work(fleet: Fleet) -> None:
    await fleet.configure(n=1, max_attempts=3)
    await fleet.submit("g")
    await fleet.broker.claim("pod/1", "pod/1/0", 1)
    async with fleet.worker(pod="pod"):
        (entry,) = await fleet.completed(1)
    assert entry.fields["attempts"] == b"2"
    assert (await fleet.broker.claim("pod/1", "pod/1/1", 1)).reason == "gone"


async def test_a_worker_tells_its_pod_its_node_and_its_fleet_before_it_claims(fleet: Fleet) -> None:
    await fleet.configure(n=1)
    async with fleet.worker(pod="uid-1", pod_name="rollouts-0", node="gpu-7", fleet="ml/rollouts"):
        await until(lambda: fleet.facts('"pod":"uid-1","pod_name":"rollouts-0","node":"gpu-7","fleet":"ml/rollouts"'))


async def test_auto_concurrency_counts_the_slots_of_a_worker_before_it_claims(fleet: Fleet) -> None:
    await fleet.configure(n=4, sample_concurrency="auto")
    await fleet.submit("g")
    async with fleet.worker(slots=4):
        (entry,) = await fleet.completed(1)
    assert entry.id == "g"


async def test_a_stopping_worker_finishes_what_it_holds_and_claims_no_more(
    fleet: Fleet, engine: FakeEngine, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    await fleet.configure(n=1)
    go = asyncio.Event()
    engine.script = lambda _: after(go)
    await fleet.submit("g", "h")
    async with fleet.worker(slots=1) as worked:
        await until(lambda: engine.running == 1)
        worked.stop.ask()
        await until(lambda: "stopping" in caplog.text)
        await until(lambda: fleet.facts('"draining"'))
        go.set()
        code = await worked.ended()
    assert (code, len(await fleet.completed(1)), await fleet.broker.queued()) == (0, 1, 1)
    await finish(fleet, engine, 1)


async def finish(fleet: Fleet, engine: FakeEngine, count: int) -> None:
    """Another worker does what is left."""
    engine.script = lambda _: said([1])
    async with fleet.worker(pod="another"):
        await fleet.completed(count)


async def test_what_is_not_finished_in_time_is_given_back_and_its_samples_are_kept(
    fleet: Fleet, engine: FakeEngine
) -> None:
    await fleet.configure(n=2)
    engine.script = lambda request: said([1]) if len(engine.requests) == 1 else never(request)
    await fleet.submit("g")
    async with fleet.worker(drain_seconds=0.1) as worked:
        await until(lambda: fleet.stat("samples"))
        worked.stop.ask()
        code = await worked.ended()
    assert (code, await fleet.active(), await fleet.stat("released:free")) == (0, 0, 1)
    requests = len(engine.requests)
    await finish(fleet, engine, 1)
    assert len(engine.requests) == requests + 1


async def test_a_second_signal_gives_back_at_once(fleet: Fleet, engine: FakeEngine) -> None:
    await fleet.configure(n=1)
    engine.script = never
    await fleet.submit("g")
    async with fleet.worker(drain_seconds=1000) as worked:
        await until(lambda: engine.running == 1)
        worked.stop.ask()
        worked.stop.ask()
        code = await worked.ended()
    assert (code, await fleet.active()) == (0, 0)
    await finish(fleet, engine, 1)


@pytest.mark.usefixtures("patient")
async def test_an_idle_worker_stops_without_waiting_for_its_hint(fleet: Fleet) -> None:
    await fleet.configure()
    async with fleet.worker() as worked:
        await until(lambda: fleet.facts('"ready"'))
        worked.stop.ask()
        assert await worked.ended() == 0


async def test_a_stopped_worker_reports_no_slots(fleet: Fleet) -> None:
    await fleet.configure()
    async with fleet.worker():
        await until(lambda: fleet.facts('"ready"'))
    (slots,) = await fleet.broker.calls.read([["HGET", fleet.broker.keys.named("state"), "slots"]])
    assert slots == b"0"


async def test_a_worker_that_is_told_to_drain_claims_no_more_until_it_is_told_otherwise(
    fleet: Fleet, engine: FakeEngine
) -> None:
    await fleet.configure(n=1)
    async with fleet.worker():
        await until(lambda: fleet.facts('"ready"'))
        (names,) = await fleet.broker.calls.read([["ZRANGE", fleet.broker.keys.named("workers"), 0, -1]])
        await fleet.broker.drain([names[0].decode()])
        await until(lambda: fleet.facts('"draining"'))
        await fleet.submit("g")
        claimed = await fleet.stat("claimed")
        await fleet.broker.undrain([names[0].decode()])
        await fleet.completed(1)
    assert claimed == 0


async def test_an_evicted_worker_drops_everything_and_exits_with_3(fleet: Fleet, engine: FakeEngine) -> None:
    await fleet.configure(n=1)
    engine.script = never
    await fleet.submit("g")
    async with fleet.worker() as worked:
        await until(lambda: engine.running == 1)
        (names,) = await fleet.broker.calls.read([["ZRANGE", fleet.broker.keys.named("workers"), 0, -1]])
        await fleet.broker.evict(names[0].decode(), counts=False)
        code = await worked.ended()
    assert code == 3
    await finish(fleet, engine, 1)


async def test_a_lost_lease_ends_the_work_on_its_group_alone(fleet: Fleet, engine: FakeEngine) -> None:
    await fleet.configure(n=1)
    go = asyncio.Event()
    engine.script = lambda _: after(go)
    await fleet.submit("g", "h")
    async with fleet.worker(slots=2):
        await until(lambda: engine.running == 2)
        grants: Any = await fleet.broker.calls.read([["HGETALL", fleet.broker.keys.named("grants")]])
        token = next(token for token, name in as_dict(grants[0]).items() if name == b"g")
        await fleet.broker.release(token.decode(), "free")
        await until(lambda: engine.aborted)
        go.set()
        entries = await fleet.completed(2)
    assert sorted(entry.id for entry in entries) == ["g", "h"]
    assert len(engine.aborted) == 1


async def test_a_main_loop_that_is_blocked_for_longer_than_a_lease_loses_none(fleet: Fleet) -> None:
    await fleet.configure(n=1, lease_seconds=0.8)
    hooks.switches.clear()
    hooks.switches["seconds"] = 1.8
    await fleet.submit("g")
    async with fleet.worker(group_filter=f"{HOOKS}:filter_that_blocks_the_loop", heartbeat_seconds=0.05):
        (entry,) = await fleet.completed(1)
    assert (entry.fields["attempts"], await fleet.stat("reaped")) == (b"1", 0)


async def test_groups_deleted_with_their_run_are_dropped_and_the_new_run_is_worked_on(
    fleet: Fleet, engine: FakeEngine
) -> None:
    await fleet.configure(n=1)
    go = asyncio.Event()
    engine.script = lambda _: after(go)
    await fleet.submit("g")
    async with fleet.worker():
        await until(lambda: engine.running == 1)
        await fleet.broker.client.unlink(*await keys(fleet))
        await until(lambda: engine.running == 0)
        await fleet.configure(n=1)
        await fleet.submit("h")
        go.set()
        (entry,) = await fleet.completed(1)
    assert entry.id == "h"


async def keys(fleet: Fleet) -> list[bytes]:
    (found,) = await fleet.broker.calls.read([["KEYS", f"{fleet.broker.keys.prefix}*"]])
    return found


async def test_a_changed_config_holds_without_a_restart(fleet: Fleet, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    await fleet.configure(n=1)
    async with fleet.worker():
        await until(lambda: fleet.facts('"ready"'))
        await fleet.broker.configure(RunConfig(reward="trainer"))
        await until(lambda: "config changed" in caplog.text)
        await fleet.submit("g")
        (entry,) = await fleet.completed(1)
    assert entry.fields["rewards"] == b"null"


@pytest.mark.usefixtures("impatient")
async def test_a_group_that_may_kill_its_process_runs_alone(fleet: Fleet, engine: FakeEngine) -> None:
    await fleet.configure(n=1)
    beside: list[int] = []

    async def script(request: dict[str, Any]) -> Any:
        if request["input_ids"] == [66]:
            beside.append(engine.running)
        await asyncio.sleep(0.02)
        return said([1])

    engine.script = script
    await fleet.submit("suspect", input_ids=[66])
    for crash in range(2):
        await claim_one(fleet, f"dead/{crash}")
        await fleet.broker.evict(f"dead/{crash}", counts=True)
    await fleet.submit(*(f"g{i}" for i in range(20)))
    async with fleet.worker(slots=4):
        await fleet.completed(21)
    assert beside == [1]


async def claim_one(fleet: Fleet, worker: str) -> None:
    """As another worker; waits until the delay of a group is over."""

    async def is_granted() -> bool:
        return bool((await fleet.broker.claim(worker, f"{worker}/0", 1)).grants)

    await until(is_granted)


@pytest.mark.usefixtures("impatient")
async def test_of_two_such_groups_only_one_is_held_at_a_time(fleet: Fleet, engine: FakeEngine) -> None:
    await fleet.configure(n=1)
    await fleet.submit("one", "two")
    for crash in range(2):
        for place in range(2):
            await claim_one(fleet, f"dead/{crash}{place}")
        for place in range(2):
            await fleet.broker.evict(f"dead/{crash}{place}", counts=True)
    held: list[int] = []

    async def script(_: dict[str, Any]) -> Any:
        held.append(await fleet.active())
        return said([1])

    engine.script = script
    async with fleet.worker(slots=4):
        entries = await fleet.completed(2)
    assert held == [1, 1]
    assert [entry.fields["attempts"] for entry in entries] == [b"3", b"3"]


@pytest.mark.usefixtures("impatient")
async def test_a_group_that_failed_by_our_own_word_needs_not_run_alone(fleet: Fleet, engine: FakeEngine) -> None:
    await fleet.configure(n=1)
    await fleet.submit("g", "h")
    for attempt in range(2):
        for name in ("a", "b"):
            await claim_one(fleet, f"{name}/{attempt}")
        for name in ("a", "b"):
            await fleet.broker.release(f"{name}/{attempt}/0/0", "fail", "sample 0: unlucky")
        for name in ("a", "b"):
            await claim_one(fleet, f"{name}/drained/{attempt}")
            await fleet.broker.release(f"{name}/drained/{attempt}/0/0", "free")
    go = asyncio.Event()
    engine.script = lambda _: after(go)
    async with fleet.worker(slots=2):
        await until(lambda: engine.running == 2)
        go.set()
        entries = await fleet.completed(2)
    assert [entry.fields["attempts"] for entry in entries] == [b"3", b"3"]
