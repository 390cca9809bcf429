"""Calls to a server that forgot the scripts, is full, is a replica, does not know a flag, or isn't there."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
import redis.asyncio
from redis.exceptions import ResponseError

from deploy.embedded import EmbeddedServer
from rolloutfleet.broker import Broker
from rolloutfleet.errors import BrokerUnavailable
from rolloutfleet.lua import STEPS, compose, scripts
from rolloutfleet.redis import connect
from tests.fakes.broker import Fleet, group

QUICK = 0.2  # seconds for which a call is repeated where it is to fail


@pytest.fixture(scope="module")
def own_server() -> Iterator[EmbeddedServer]:
    """A server whose settings a test may change."""
    with EmbeddedServer(durability="off") as server:
        yield server


@pytest.fixture
async def own_client(own_server: EmbeddedServer) -> AsyncIterator[redis.asyncio.Redis]:
    async with redis.asyncio.Redis.from_url(own_server.url, protocol=2) as client:
        yield client
        await client.execute_command("REPLICAOF", "NO", "ONE")
        await client.execute_command("CONFIG", "SET", "maxmemory", "0")
        await client.execute_command("FLUSHALL")


@pytest.fixture
async def own_fleet(own_client: redis.asyncio.Redis) -> Fleet:
    return await Fleet.make(own_client, "own", retry_seconds=QUICK)


async def fill_memory(fleet: Fleet) -> None:
    await fleet.do("CONFIG", "SET", "maxmemory", "1")


async def free_memory(fleet: Fleet) -> None:
    await fleet.do("CONFIG", "SET", "maxmemory", "0")


# Full memory


async def test_steps_that_end_work_succeed_when_memory_is_full(own_fleet: Fleet):
    fleet = own_fleet
    await fleet.configure(sample_concurrency=20)
    await fleet.submit(*"abcdef")
    a, b, c, d, e, expired = await fleet.hold(6)
    await fleet.expire(expired)
    await fill_memory(fleet)
    assert await fleet.broker.reap() == 1
    assert await fleet.put(a, 0, 1) == ["stored", "stored"]
    assert await fleet.put(a, 1) == ["had"]
    assert await fleet.complete(a) == "ok"
    assert await fleet.broker.release(b.token, "fail", "engine") == "ok"
    assert await fleet.broker.release(c.token, "reject", "too long") == "dead"
    assert await fleet.broker.drop(d.token, "dull") == "ok"
    assert await fleet.beat(e.token, slots=4) == ("ok", [])
    (entry,) = await fleet.take()
    assert await fleet.broker.touch("rank-0", [entry.entry]) == []
    assert await fleet.broker.ack([entry.entry]) == ["ok"]
    assert await fleet.broker.evict("pod/1", counts=True) == 0
    assert await fleet.broker.drain(["pod/2"]) == 1
    await fleet.broker.pause()
    assert (await fleet.claim()).reason == "paused"


async def test_waiting_groups_are_worked_off_while_memory_is_full(own_fleet: Fleet):
    await own_fleet.submit("a", "b")
    await fill_memory(own_fleet)
    await own_fleet.finish(*await own_fleet.hold(2))
    assert await own_fleet.take_and_ack() == ["a", "b"]
    await free_memory(own_fleet)
    assert await own_fleet.submit("a", "b") == ["done", "done"]


async def test_a_recycle_succeeds_when_memory_is_full(own_fleet: Fleet):
    await own_fleet.run_through("a")
    (entry,) = await own_fleet.take()
    await fill_memory(own_fleet)
    assert await own_fleet.broker.recycle(entry.entry) == "ok"


async def test_a_sample_of_a_group_that_is_over_is_gone_when_memory_is_full(own_fleet: Fleet):
    (grant,) = await own_fleet.run_through("a")
    await own_fleet.take_and_ack()
    await fill_memory(own_fleet)
    assert await own_fleet.put(grant, 0) == ["gone"]
    assert await own_fleet.do("EXISTS", own_fleet.broker.keys.samples("a", grant.born)) == 0


async def test_steps_that_bring_work_in_fail_when_memory_is_full_and_nothing_is_lost(own_fleet: Fleet):
    await own_fleet.submit("a")
    (grant,) = await own_fleet.hold()
    await own_fleet.broker.release(grant.token, "reject", "bad")
    letter = (await own_fleet.letters())[0]["entry"].decode()
    await fill_memory(own_fleet)
    with pytest.raises(BrokerUnavailable, match="Redis does not serve"):
        await own_fleet.submit("b")
    with pytest.raises(BrokerUnavailable):
        await own_fleet.broker.requeue_dead([letter])
    await free_memory(own_fleet)
    assert await own_fleet.submit("b") == ["queued"]
    assert await own_fleet.broker.requeue_dead([letter]) == ["ok"]


async def test_a_submit_waits_until_there_is_memory_again(own_fleet: Fleet):
    await fill_memory(own_fleet)
    own_fleet.broker.calls.retry_seconds = 20
    submitting = asyncio.create_task(own_fleet.submit("a"))
    while "errorstat_OOM" not in await own_fleet.client.info("errorstats"):
        pass
    assert not submitting.done()
    await free_memory(own_fleet)
    assert await submitting == ["queued"]


# Scripts


async def test_every_step_comes_back_when_the_server_forgot_the_scripts(own_fleet: Fleet):
    await own_fleet.run_through("a")
    await own_fleet.do("SCRIPT", "FLUSH")
    assert await own_fleet.submit("b") == ["queued"]
    await own_fleet.do("SCRIPT", "FLUSH")
    (grant,) = await own_fleet.hold()
    await own_fleet.do("SCRIPT", "FLUSH")
    await own_fleet.put(grant, 0, 1)
    await own_fleet.do("SCRIPT", "FLUSH")
    assert await own_fleet.complete(grant) == "ok"
    assert await own_fleet.outstanding() == 0


async def test_a_put_whose_scripts_were_forgotten_counts_right_and_keeps_all(own_fleet: Fleet):
    await own_fleet.configure(sample_concurrency=8, n=4)
    await own_fleet.submit("a")
    (grant,) = await own_fleet.hold()
    await own_fleet.do("SCRIPT", "FLUSH")
    await own_fleet.put(grant, 0, 1)
    assert await own_fleet.outstanding() == 2
    assert set((await own_fleet.broker.samples("a", grant.born))[0]) == {0, 1}


async def test_a_put_of_a_group_that_is_over_leaves_nothing_when_the_scripts_were_forgotten(own_fleet: Fleet):
    (grant,) = await own_fleet.run_through("a")
    await own_fleet.take_and_ack()
    await own_fleet.do("SCRIPT", "FLUSH")
    assert await own_fleet.put(grant, 0) == ["gone"]
    assert await own_fleet.do("EXISTS", own_fleet.broker.keys.samples("a", grant.born)) == 0


async def test_a_put_in_full_memory_tells_whose_sample_was_first(own_fleet: Fleet):
    """A HSETNX without its script (a MULTI whose caller died), then memory is full."""
    await own_fleet.submit("a")
    (grant,) = await own_fleet.hold()
    await own_fleet.do("HSET", own_fleet.broker.keys.samples("a", grant.born), 0, b"another's")
    await fill_memory(own_fleet)
    assert await own_fleet.put(grant, 0, data=b"mine") == ["had"]
    assert await own_fleet.outstanding() == 1


async def test_a_real_server_is_told_what_a_step_may_do_when_it_is_full(own_fleet: Fleet):
    loaded = {name: script.sha for name, script in scripts(flags=True).items()}
    exist = await own_fleet.do("SCRIPT", "EXISTS", *loaded.values())
    assert all(exist)


async def test_a_server_that_knows_no_flags_gets_the_scripts_without_them(fleet: Fleet):
    with pytest.raises(ResponseError):
        await fleet.do("EVAL", scripts(flags=True)["submit"].text, 0)
    loaded = await fleet.do("SCRIPT", "EXISTS", *[script.sha for script in scripts(flags=False).values()])
    assert all(loaded)
    assert await fleet.submit("a") == ["queued"]


@pytest.mark.parametrize("step", STEPS)
def test_a_step_s_first_line_says_what_it_may_do_and_its_header_what_it_answers(step: str):
    text = compose(step, flags=True)
    brings_work_in = step in ("submit", "requeue_dead", "keep")
    assert text.startswith("#!lua\n" if brings_work_in else "#!lua flags=allow-oom\n")
    assert f"-- {step}: " in text
    assert "#!lua" not in compose(step, flags=False)


# Servers that do not serve


async def test_a_replica_is_not_used_and_becomes_usable_when_it_is_promoted(own_fleet: Fleet):
    await own_fleet.submit("a")
    (grant,) = await own_fleet.hold()
    await own_fleet.do("REPLICAOF", "127.0.0.1", "1")
    with pytest.raises(BrokerUnavailable, match="read only"):
        await own_fleet.submit("b")
    with pytest.raises(BrokerUnavailable, match="read only"):
        await own_fleet.put(grant, 0)
    own_fleet.broker.calls.retry_seconds = 20
    submitting = asyncio.create_task(own_fleet.submit("b"))
    await asyncio.sleep(0)
    await own_fleet.do("REPLICAOF", "NO", "ONE")
    assert await submitting == ["queued"]


async def test_a_server_that_is_not_there_is_unavailable():
    client = connect("redis://127.0.0.1:1")
    with pytest.raises(BrokerUnavailable, match="is it running"):
        await Broker(client, "nowhere", retry_seconds=0.1).submit([group("a")])
    await client.aclose()


async def test_a_server_that_comes_late_is_waited_for():
    with EmbeddedServer(durability="off") as server:
        client = connect(server.url)
        server.stop()
        waiting = asyncio.create_task(Broker(client, "late", retry_seconds=20).queued())
        await asyncio.sleep(0)
        server.start()
        assert await waiting == 0
        await client.aclose()


async def test_a_fault_of_the_caller_is_not_repeated(own_fleet: Fleet):
    await own_fleet.do("SET", own_fleet.key("prompts"), "no list")
    with pytest.raises(ResponseError, match="WRONGTYPE"):
        await own_fleet.submit("a")


async def test_more_calls_at_once_than_connections_wait_for_one(own_server: EmbeddedServer, own_fleet: Fleet):
    async with connect(own_server.url, connections=2) as client:
        broker = Broker(client, own_fleet.broker.keys.run, retry_seconds=0)

        assert await asyncio.gather(*(broker.queued() for _ in range(40))) == [0] * 40
