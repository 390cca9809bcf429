"""Redis away, killed, or losing replies while a trainer works: it waits, goes on, or says what is wrong."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence

import pytest
import redis.asyncio

from deploy.embedded import EmbeddedServer
from rolloutfleet import BrokerUnavailable, CompletedGroup, Trainer
from rolloutfleet.broker import Broker
from rolloutfleet.lua import scripts
from rolloutfleet.redis import connect
from tests.fakes.broker import group
from tests.fakes.proxy import Proxy
from tests.fakes.worker import InstantWorker, complete, make_run, until

RUN = "outage"


@pytest.fixture
async def broker(client: redis.asyncio.Redis, run: str) -> Broker:
    return await make_run(client, run)


@pytest.fixture
async def proxy(valkey: EmbeddedServer) -> AsyncIterator[Proxy]:
    async with Proxy("127.0.0.1", valkey.port) as between:
        yield between


@pytest.fixture
def server() -> Iterator[EmbeddedServer]:
    """A server of this test's own, that loses nothing when it is killed."""
    with EmbeddedServer(durability="always") as own:
        yield own


@pytest.fixture
async def own_broker(server: EmbeddedServer) -> AsyncIterator[Broker]:
    async with connect(server.url) as client:
        yield await make_run(client, RUN)


def ids(groups: Sequence[CompletedGroup]) -> list[str]:
    return [each.id for each in groups]


def only(step: str) -> bytes:
    """What tells the requests of a step from others."""
    return scripts()[step].sha.encode()


# Lost replies


async def test_a_group_whose_take_was_executed_and_never_answered_is_handed_out_once(
    broker: Broker, proxy: Proxy, run: str
):
    async with Trainer.connect(proxy.url, run, "rank-0") as trainer:
        assert await trainer.take(1, timeout=0) == []
        await complete(broker, "a", "b")
        proxy.drop_replies(1, only=only("take"))
        async with trainer.batch(2, timeout=60) as batch:
            assert sorted(ids(batch.groups)) == ["a", "b"]
    assert proxy.dropped == 1


async def test_a_take_that_gave_up_is_made_good_by_the_next_one(broker: Broker, proxy: Proxy, run: str):
    async with Trainer.connect(proxy.url, run, "rank-0", retry_seconds=0.01) as trainer:
        assert await trainer.take(1, timeout=0) == []
        await complete(broker, "a")
        proxy.drop_replies(1, only=only("take"))
        with pytest.raises(BrokerUnavailable):
            await trainer.take(1)
        async with trainer.batch(1, timeout=60) as batch:
            assert ids(batch.groups) == ["a"]


async def test_a_group_whose_samples_never_arrived_is_handed_out_by_the_next_take(
    broker: Broker, proxy: Proxy, run: str
):
    async with Trainer.connect(proxy.url, run, "rank-0", retry_seconds=0.01) as trainer:
        assert await trainer.take(1, timeout=0) == []
        await complete(broker, "a")
        proxy.drop_replies(1, only=b"HGETALL")
        with pytest.raises(BrokerUnavailable):
            await trainer.take(1)
        async with trainer.batch(1, timeout=60) as batch:
            assert ids(batch.groups) == ["a"]


async def test_an_ack_that_was_executed_and_never_answered_is_not_trained_on_again(
    broker: Broker, proxy: Proxy, run: str
):
    async with Trainer.connect(proxy.url, run, "rank-0", retry_seconds=0.01) as trainer:
        await complete(broker, "a", "b")
        with pytest.raises(BrokerUnavailable):
            async with trainer.batch(1, timeout=60):
                proxy.drop_replies(1, only=only("ack"))
        async with trainer.batch(1, timeout=60) as batch:
            assert ids(batch.groups) == ["b"]


async def test_an_ack_that_did_not_get_through_is_made_good_by_the_next_take(broker: Broker, proxy: Proxy, run: str):
    async with Trainer.connect(proxy.url, run, "rank-0", retry_seconds=0.01) as trainer:
        await complete(broker, "a")
        with pytest.raises(BrokerUnavailable):
            async with trainer.batch(1, timeout=60):
                await proxy.refuse(True)
        await proxy.refuse(False)
        assert (await trainer.take(1, timeout=0), (await trainer.status()).stat("acked")) == ([], 1)


async def test_a_submit_that_was_executed_and_never_answered_queues_each_group_once(
    broker: Broker, proxy: Proxy, run: str
):
    async with Trainer.connect(proxy.url, run, "rank-0") as trainer:
        proxy.drop_replies(1, only=only("submit"))
        assert await trainer.submit([group("a")]) == ["known"]
        assert await InstantWorker(broker).step() == ["a"]
        await trainer.ack(await trainer.take(1))


async def test_with_replies_lost_all_the_time_each_group_is_trained_on_once(broker: Broker, proxy: Proxy, run: str):
    wanted = [f"g{index}" for index in range(30)]
    await complete(broker, *wanted)
    trained: list[str] = []
    async with Trainer.connect(proxy.url, run, "rank-0", retry_seconds=10) as trainer:
        proxy.drop_replies(probability=0.2)
        for _ in range(10):
            async with trainer.batch(3, timeout=60) as batch:
                trained += ids(batch.groups)
    assert proxy.dropped > 1
    assert sorted(trained) == sorted(wanted)


async def test_connections_that_the_server_cuts_are_made_again(broker: Broker, redis_url: str, run: str):
    async with Trainer.connect(redis_url, run, "rank-0") as trainer:
        taking = asyncio.create_task(trainer.take(1, timeout=60))
        await broker.client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        await complete(broker, "a")
        groups = await taking
        assert ids(groups) == ["a"]
        await trainer.ack(groups)


# Redis away


@pytest.mark.usefixtures("broker")
async def test_a_trainer_that_starts_before_its_redis_waits_for_it(proxy: Proxy, run: str):
    async def has_tried_twice() -> bool:
        return proxy.refused >= 2

    await proxy.refuse(True)
    trainer = Trainer.connect(proxy.url, run, retry_seconds=20)
    connecting = asyncio.create_task(trainer.__aenter__())
    await until(has_tried_twice)
    await proxy.refuse(False)
    await connecting
    assert await trainer.take(1, timeout=0) == []
    await trainer.close()


async def test_a_trainer_whose_redis_stays_away_says_so(broker: Broker, proxy: Proxy, run: str):
    async with Trainer.connect(proxy.url, run, "rank-0", retry_seconds=0.2) as trainer:
        await proxy.refuse(True)
        with pytest.raises(
            BrokerUnavailable, match=r"^Redis does not serve \(.+\): is it running, is the URL right\?$"
        ):
            await trainer.take(1)
        with pytest.raises(BrokerUnavailable):
            await trainer.submit([group("a")])
        await proxy.refuse(False)
        assert await trainer.take(1, timeout=0) == []


async def test_a_trainer_waits_through_a_restart_of_its_server(server: EmbeddedServer, own_broker: Broker):
    async with Trainer.connect(server.url, RUN, "rank-0", retry_seconds=20) as trainer:
        taking = asyncio.create_task(trainer.take(1, timeout=30))
        await until(lambda: _has_blocked_clients(own_broker))
        server.kill()
        await asyncio.to_thread(server.start)
        await complete(own_broker, "a")
        groups = await taking
        assert ids(groups) == ["a"]
        assert await trainer.ack(groups) == ["ok"]


async def _has_blocked_clients(broker: Broker) -> bool:
    return (await broker.client.info("clients"))["blocked_clients"] > 0


async def test_what_a_trainer_holds_is_its_own_still_after_a_restart_of_the_server(
    server: EmbeddedServer, own_broker: Broker
):
    await complete(own_broker, "a", "b", "c")
    async with Trainer.connect(server.url, RUN, "rank-0", retry_seconds=20) as trainer:
        async with trainer.batch(2, timeout=60) as held:
            server.kill()
            await asyncio.to_thread(server.start)
        assert ids(held.groups) == ["a", "b"]
        async with trainer.batch(1, timeout=60) as batch:
            assert ids(batch.groups) == ["c"]
    assert await own_broker.queued() == 0


async def test_an_outage_longer_than_the_idle_time_takes_nothing_from_a_consumer_that_comes_back_a_little_later(
    broker: Broker, proxy: Proxy, valkey: EmbeddedServer, run: str
):
    idle = 0.8
    await complete(broker, "a")
    async with (
        Proxy("127.0.0.1", valkey.port) as farther,
        Trainer.connect(farther.url, run, "rank-0", idle_seconds=idle) as trainer,
        Trainer.connect(proxy.url, run, "rank-1", idle_seconds=idle) as other,
        trainer.batch(1, timeout=60),
    ):
        await proxy.refuse(True)
        await farther.refuse(True)
        await until(lambda: _is_idle_for(broker, idle))
        await proxy.refuse(False)
        assert await other.take(1, timeout=0) == []
        await farther.refuse(False)


async def _is_idle_for(broker: Broker, seconds: float) -> bool:
    (pending,) = await broker.client.xpending_range(broker.keys.named("completed"), "trainer", "-", "+", 1)
    return int(pending["time_since_delivered"]) > 1200 * seconds
