"""generate: the results of exactly these prompt groups, in the order in which they were asked for."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest
import redis.asyncio

from rolloutfleet import CompletedGroup, Trainer
from rolloutfleet.broker import Broker
from rolloutfleet.reading import LostGroup, Outcome
from tests.fakes.broker import group
from tests.fakes.worker import InstantWorker, complete, make_run, until, working


@pytest.fixture
async def broker(client: redis.asyncio.Redis, run: str) -> Broker:
    return await make_run(client, run)


@pytest.fixture
async def trainer(broker: Broker, redis_url: str, run: str) -> AsyncIterator[Trainer]:
    async with Trainer.connect(redis_url, run, "rank-0", retry_seconds=5) as connected:
        yield connected


def ids(outcomes: Sequence[Outcome]) -> list[str]:
    return [outcome.id for outcome in outcomes]


async def test_results_come_in_the_order_asked_whatever_the_order_of_completion(trainer: Trainer, broker: Broker):
    await complete(broker, "c", "a", "b")
    results = await trainer.generate([group("a"), group("b"), group("c")], timeout=60)
    assert ids(results) == ["a", "b", "c"]
    assert all(isinstance(result, CompletedGroup) for result in results)


async def test_results_are_acked(trainer: Trainer, broker: Broker):
    await complete(broker, "a")
    await trainer.generate([group("a")], timeout=60)
    assert (await trainer.status()).stat("acked") == 1


async def test_results_of_a_fleet_at_work_are_complete(trainer: Trainer, redis_url: str, run: str):
    asked = [group(f"g{index}") for index in range(40)]
    async with working(redis_url, run):
        assert ids(await trainer.generate(asked, timeout=60)) == ids_of(asked)


def ids_of(groups: Sequence[object]) -> list[str]:
    return [f"g{index}" for index in range(len(groups))]


async def test_a_dead_letter_and_a_dropped_group_are_results_with_their_reasons(
    trainer: Trainer, redis_url: str, run: str
):
    async with working(redis_url, run, rejects={"bad": "too long for the engine"}, drops={"easy": "all correct"}):
        bad, good, easy = await trainer.generate([group("bad"), group("good"), group("easy")], timeout=60)
    assert bad == LostGroup("bad", "too long for the engine")
    assert isinstance(good, CompletedGroup)
    assert isinstance(easy, LostGroup)
    assert "dropped by the group filter" in easy.reason


async def test_a_group_that_was_over_before_it_was_asked_for_is_a_result(trainer: Trainer, broker: Broker):
    await complete(broker, "a")
    await trainer.ack(await trainer.take(1))
    (result,) = await trainer.generate([group("a")], timeout=60)
    assert isinstance(result, LostGroup)
    assert "trained on before" in result.reason


async def test_groups_that_were_not_asked_for_are_left_to_the_next_batch(trainer: Trainer, broker: Broker):
    await complete(broker, "other", "mine", "another")
    assert ids(await trainer.generate([group("mine")], timeout=60)) == ["mine"]
    async with trainer.batch(2, timeout=60) as batch:
        assert sorted(ids(batch.groups)) == ["another", "other"]


async def test_groups_that_were_not_asked_for_do_not_keep_it_from_looking_for_its_own(trainer: Trainer, broker: Broker):
    await complete(broker, "other")
    generating = asyncio.create_task(trainer.generate([group("mine")], timeout=60))
    await until(lambda: _taken(trainer, 1))
    assert await InstantWorker(broker).step() == ["mine"]
    assert ids(await generating) == ["mine"]
    await trainer.ack(await trainer.take(1))


async def test_without_results_in_time_it_says_what_holds_the_fleet_back(trainer: Trainer, broker: Broker):
    await broker.pause()
    with pytest.raises(TimeoutError, match=r"^0 of 1 results within the time given; the run is paused$"):
        await trainer.generate([group("a")], timeout=0.05)
    await broker.resume()
    await InstantWorker(broker).step()
    await trainer.ack(await trainer.take(1))


async def test_results_that_came_in_time_are_there_when_the_same_is_asked_again(trainer: Trainer, broker: Broker):
    await complete(broker, "a")
    with pytest.raises(TimeoutError, match="1 of 2 results"):
        await trainer.generate([group("a"), group("b")], timeout=0.05)
    await InstantWorker(broker).step()
    assert ids(await trainer.generate([group("a"), group("b")], timeout=60)) == ["a", "b"]


async def test_results_of_a_call_that_was_cancelled_are_kept(trainer: Trainer, broker: Broker):
    await complete(broker, "a")
    generating = asyncio.create_task(trainer.generate([group("a"), group("b")]))
    await until(lambda: _taken(trainer, 1))
    generating.cancel()
    await asyncio.wait([generating])
    await InstantWorker(broker).step()
    assert ids(await trainer.generate([group("a"), group("b")], timeout=60)) == ["a", "b"]


async def test_the_same_group_asked_for_twice_has_the_same_result_twice(trainer: Trainer, broker: Broker):
    await complete(broker, "a")
    first, second = await trainer.generate([group("a"), group("a")], timeout=60)
    assert first is second


async def test_nothing_asked_is_nothing_given(trainer: Trainer):
    assert await trainer.generate([]) == []


async def _taken(trainer: Trainer, number: int) -> bool:
    return (await trainer.status()).taken == number
