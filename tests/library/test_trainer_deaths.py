"""What a trainer holds when it dies, blocks or is gone for good: handed out again, once, and to whom it belongs."""

import asyncio
import time
from collections.abc import Sequence

import pytest
import redis.asyncio

from rolloutfleet import CompletedGroup, Trainer
from rolloutfleet.broker import Broker
from tests.fakes.worker import complete, make_run, until

IDLE = 0.4  # seconds; a consumer touches what it holds four times in it


@pytest.fixture
async def broker(client: redis.asyncio.Redis, run: str) -> Broker:
    return await make_run(client, run)


def ids(groups: Sequence[CompletedGroup]) -> list[str]:
    return [each.id for each in groups]


async def die_with(url: str, run: str, consumer: str, *expected: str) -> None:
    """A trainer that takes these and ends without an ack."""
    async with Trainer.connect(url, run, consumer) as trainer:
        assert ids(await trainer.take(len(expected))) == list(expected)


async def test_a_consumer_that_comes_again_is_first_given_what_it_held(broker: Broker, redis_url: str, run: str):
    await complete(broker, "a", "b", "c")
    await die_with(redis_url, run, "rank-0", "a", "b")
    async with Trainer.connect(redis_url, run, "rank-0") as again, again.batch(3, timeout=60) as batch:
        assert ids(batch.groups) == ["a", "b", "c"]


async def test_what_a_consumer_held_is_given_again_over_many_pages(broker: Broker, redis_url: str, run: str):
    await complete(broker, *(f"g{index}" for index in range(99)))
    await complete_more(broker, redis_url, run, 450)
    async with Trainer.connect(redis_url, run, "rank-0") as again, again.batch(450, timeout=60) as batch:
        assert len(set(ids(batch.groups))) == 450


async def complete_more(broker: Broker, url: str, run: str, number: int) -> None:
    """`number` completed groups are pending at rank-0, of a process that is gone."""
    async with Trainer.connect(url, run, "rank-0") as gone:
        held = len(await gone.take(99))
        while held < number:
            some = [f"h{held + index}" for index in range(min(50, number - held))]
            await complete(broker, *some)
            held += len(await gone.take(len(some)))


async def test_a_gap_in_what_a_consumer_held_hides_nothing_behind_it(
    broker: Broker, redis_url: str, run: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("rolloutfleet.trainer._PENDING_PAGE", 2)
    await complete(broker, "a", "b", "c", "d", "e")
    await die_with(redis_url, run, "rank-0", "a", "b", "c", "d", "e")
    first = (await broker.take("rank-0", 1, "0"))[1][0]
    await broker.client.xdel(broker.keys.named("completed"), first.entry)
    async with Trainer.connect(redis_url, run, "rank-0") as again, again.batch(4, timeout=60) as batch:
        assert ids(batch.groups) == ["b", "c", "d", "e"]
    await broker.client.unlink(broker.keys.group("a"), broker.keys.samples("a", first.born))


async def test_a_consumer_that_comes_again_leaves_alone_what_another_one_holds(
    broker: Broker, redis_url: str, run: str
):
    await complete(broker, "a", "b")
    async with Trainer.connect(redis_url, run, "rank-1") as other:
        held = await other.take(1)
        async with Trainer.connect(redis_url, run, "rank-0") as trainer:
            groups = await trainer.take(2)
            assert ids(groups) == ["b"]
            await trainer.ack(groups)
        await other.ack(held)


async def test_a_step_that_blocks_the_event_loop_loses_nothing_to_another_rank(
    broker: Broker, redis_url: str, run: str
):
    await complete(broker, "a")
    async with (
        Trainer.connect(redis_url, run, "rank-0", idle_seconds=IDLE) as trainer,
        Trainer.connect(redis_url, run, "rank-1", idle_seconds=IDLE) as other,
        trainer.batch(1),
    ):
        stolen = asyncio.create_task(other.take(1, timeout=2 * IDLE))
        await asyncio.sleep(0)
        time.sleep(3 * IDLE)  # noqa: ASYNC251 - a training step that never gives the loop a turn
        assert await stolen == []


async def test_what_a_consumer_held_that_is_gone_is_taken_over_after_its_time(broker: Broker, redis_url: str, run: str):
    await complete(broker, "a")
    await die_with(redis_url, run, "rank-0", "a")
    other = Trainer.connect(redis_url, run, "rank-1", idle_seconds=IDLE)
    async with other, other.batch(1, timeout=60) as batch:
        assert ids(batch.groups) == ["a"]


async def test_what_a_consumer_held_that_is_gone_is_found_behind_much_that_a_living_one_holds(
    broker: Broker, redis_url: str, run: str
):
    await complete(broker, *(f"g{index}" for index in range(50)), "a")
    async with (
        Trainer.connect(redis_url, run, "rank-0", idle_seconds=IDLE) as trainer,
        trainer.batch(50, timeout=60),
        Trainer.connect(redis_url, run, "rank-1", idle_seconds=IDLE) as other,
    ):
        await die_with(redis_url, run, "rank-2", "a")
        async with other.batch(1, timeout=60) as batch:
            assert ids(batch.groups) == ["a"]


async def test_what_a_consumer_that_somebody_deleted_held_is_adopted_at_the_next_start(
    broker: Broker, redis_url: str, run: str
):
    await complete(broker, "a", "b")
    await die_with(redis_url, run, "rank-0", "a", "b")
    await broker.client.xgroup_delconsumer(broker.keys.named("completed"), "trainer", "rank-0")
    async with Trainer.connect(redis_url, run, "rank-1") as trainer, trainer.batch(2, timeout=60) as batch:
        assert ids(batch.groups) == ["a", "b"]


async def test_a_trainer_goes_on_after_somebody_deleted_the_stream(broker: Broker, redis_url: str, run: str):
    async with Trainer.connect(redis_url, run, "rank-0") as trainer:
        taking = asyncio.create_task(trainer.take(1, timeout=60))
        await broker.client.unlink(broker.keys.named("completed"))
        await complete(broker, "a")
        groups = await taking
        assert ids(groups) == ["a"]
        await trainer.ack(groups)


async def test_a_group_that_another_consumer_took_over_is_not_handed_out_a_second_time(
    broker: Broker, redis_url: str, run: str, caplog: pytest.LogCaptureFixture
):
    async def is_told() -> bool:
        return "1 entries are another consumer's now" in caplog.text

    async def roll_back(trainer: Trainer) -> None:
        async with trainer.batch(1):
            await take_over(broker, "rank-1")
            await until(is_told)
            raise RuntimeError("rollback")

    await complete(broker, "a")
    async with Trainer.connect(redis_url, run, "rank-0", idle_seconds=IDLE) as trainer:
        with pytest.raises(RuntimeError, match="rollback"):
            await roll_back(trainer)
        assert await trainer.take(1, timeout=0) == []
    await broker.ack([entry.entry for entry in (await broker.take("rank-1", 1, "0"))[1]])


async def take_over(broker: Broker, consumer: str) -> None:
    assert len(await broker.take_over(consumer, 0, 10)) == 1
