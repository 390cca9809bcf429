"""A trainer submits prompt groups and trains on batches of completed ones: what it gets, and what is over then."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import redis.asyncio

from rolloutfleet import BrokerUnavailable, CompletedGroup, PromptGroup, RunConfig, Trainer
from rolloutfleet.broker import Broker
from rolloutfleet.errors import RunMissing
from tests.fakes.broker import Fleet, group
from tests.fakes.worker import InstantWorker, complete, make_run, until, working


@pytest.fixture
async def broker(client: redis.asyncio.Redis, run: str) -> Broker:
    return await make_run(client, run)


@pytest.fixture
async def trainer(broker: Broker, redis_url: str, run: str) -> AsyncIterator[Trainer]:
    async with Trainer.connect(redis_url, run, "rank-0", retry_seconds=5) as connected:
        yield connected


def ids(groups: "list[CompletedGroup]") -> list[str]:
    return [each.id for each in groups]


def ledger(number: int) -> list[PromptGroup]:
    return [group(f"g{index}") for index in range(number)]


async def train_on_all(trainer: Trainer) -> None:
    """Takes and acks until nothing is there."""
    while groups := await trainer.take(100, timeout=0):
        await trainer.ack(groups)


# Connecting


async def test_a_trainer_with_a_config_makes_the_run(redis_url: str, run: str):
    async with Trainer.connect(redis_url, run, config=RunConfig(sample_concurrency=512, n=8)) as trainer:
        assert (await trainer.status()).window.size == 64


async def test_a_trainer_with_a_config_changes_only_the_fields_it_was_given(broker: Broker, redis_url: str, run: str):
    async with Trainer.connect(redis_url, run, config=RunConfig(n=4)):
        config = await broker.config()
    assert (config.n, config.sample_concurrency) == (4, 200)


async def test_a_trainer_of_a_run_that_is_not_there_is_told_which_runs_are(redis_url: str, broker: Broker, run: str):
    with pytest.raises(RunMissing, match=run):
        async with Trainer.connect(redis_url, f"{run}-mistyped"):
            pass
    assert not await broker.client.exists(f"rf1:{{{run}-mistyped}}:completed")


async def test_a_status_is_the_one_of_the_run(trainer: Trainer, run: str):
    status = await trainer.status()
    assert (status.run, status.window.size) == (run, 100)


# Submitting


async def test_each_submitted_group_gets_its_word(trainer: Trainer, broker: Broker):
    await complete(broker, "done")
    await train_on_all(trainer)
    await trainer.submit([group("known")])
    assert await trainer.submit([group("done"), group("known"), group("new")]) == ["done", "known", "queued"]
    await InstantWorker(broker).step()
    await train_on_all(trainer)


async def test_a_ledger_that_is_submitted_twice_is_generated_once(trainer: Trainer, broker: Broker):
    await trainer.submit(ledger(5))
    assert await trainer.submit(ledger(5)) == ["known"] * 5
    assert len(await InstantWorker(broker).step(10)) == 5
    await train_on_all(trainer)
    assert await trainer.submit(ledger(5)) == ["done"] * 5


async def test_no_groups_are_no_words(trainer: Trainer):
    assert await trainer.submit([]) == []


async def test_submit_waits_while_too_many_are_queued_and_goes_on_as_they_are_claimed(trainer: Trainer, broker: Broker):
    submitting = asyncio.create_task(trainer.submit(ledger(7), max_queued=3))
    queued: list[int] = []

    async def worked() -> bool:
        queued.append(await broker.queued())
        await InstantWorker(broker).step()
        return submitting.done()

    await until(worked)
    assert await submitting == ["queued"] * 7
    assert max(queued) == 3
    await InstantWorker(broker).step()
    await train_on_all(trainer)


async def test_a_bound_under_which_nothing_could_be_submitted_is_refused(trainer: Trainer):
    with pytest.raises(ValueError, match="max_queued is 0"):
        await trainer.submit([group("a")], max_queued=0)


async def test_no_groups_cannot_be_taken(trainer: Trainer):
    with pytest.raises(ValueError, match="most is 0"):
        await trainer.take(0)


# Taking


async def test_a_taken_group_has_its_prompt_its_samples_in_order_and_their_rewards(trainer: Trainer, broker: Broker):
    await complete(broker, "a", version=3)
    (taken,) = await trainer.take(1)
    assert (taken.id, taken.prompt, taken.rewards, taken.group_reward) == ("a", group("a"), (0.0, 1.0), None)
    assert [sample.index for sample in taken.samples] == [0, 1]
    assert (taken.worker, taken.attempts, taken.recycled, taken.versions) == ("pod/1000", 1, 0, (3, 3))
    assert taken.submitted_ms <= taken.claimed_ms <= taken.completed_ms
    await trainer.ack([taken])


async def test_keys_that_the_library_does_not_know_come_back_with_the_group(trainer: Trainer, broker: Broker):
    await trainer.submit([PromptGroup.make({"prompt": "p", "source": "book 7", "metadata": {"a": []}})])
    await InstantWorker(broker).step()
    (taken,) = await trainer.take(1)
    assert taken.prompt.model_extra == {"source": "book 7"}
    assert taken.prompt.metadata == {"a": []}
    await trainer.ack([taken])


async def test_take_gives_what_is_there_and_no_more_than_asked(trainer: Trainer, broker: Broker):
    await complete(broker, "a", "b", "c")
    assert ids(await trainer.take(2)) == ["a", "b"]
    assert ids(await trainer.take(2)) == ["c"]
    await broker.ack([entry.entry for entry in (await broker.take("rank-0", 10, "0"))[1]])


async def test_take_gives_nothing_once_its_time_is_up(trainer: Trainer):
    assert await trainer.take(1, timeout=0.05) == []


async def test_take_waits_for_the_next_group(trainer: Trainer, broker: Broker):
    taking = asyncio.create_task(trainer.take(1, timeout=60))
    await complete(broker, "a")
    assert ids(await taking) == ["a"]
    await train_on_all(trainer)
    await broker.ack([entry.entry for entry in (await broker.take("rank-0", 10, "0"))[1]])


async def test_a_group_that_is_acked_is_over_and_a_second_ack_changes_nothing(trainer: Trainer, broker: Broker):
    await complete(broker, "a")
    groups = await trainer.take(1)
    assert await trainer.ack(groups) == ["ok"]
    assert await trainer.ack(groups) == ["gone"]
    assert (await trainer.status()).stat("acked") == 1


# Batches


async def test_a_batch_is_exactly_as_large_as_asked_and_leaves_the_surplus_to_others(
    trainer: Trainer, broker: Broker, redis_url: str, run: str
):
    await complete(broker, "a", "b", "c", "d", "e")
    async with trainer.batch(3) as batch:
        assert ids(list(batch)) == ["a", "b", "c"]
    async with Trainer.connect(redis_url, run, "rank-1") as other, other.batch(2) as rest:
        assert ids(list(rest)) == ["d", "e"]


async def test_a_batch_is_filled_as_groups_complete(trainer: Trainer, redis_url: str, run: str):
    async with working(redis_url, run):
        await trainer.submit(ledger(30))
        async with trainer.batch(30, timeout=60) as batch:
            assert len(batch) == 30


async def test_a_batch_larger_than_the_window_is_filled(trainer: Trainer, broker: Broker, redis_url: str, run: str):
    await broker.configure(RunConfig(sample_concurrency=4))
    async with working(redis_url, run):
        await trainer.submit(ledger(20))
        async with trainer.batch(20, timeout=60) as batch:
            assert sorted(ids(list(batch))) == sorted(each.id for each in ledger(20))


async def test_a_batch_whose_block_ends_well_is_over(trainer: Trainer, broker: Broker):
    await complete(broker, "a", "b")
    async with trainer.batch(2):
        assert (await trainer.status()).taken == 2
    assert (await trainer.status()).taken == 0


async def test_a_batch_whose_block_raises_is_handed_out_again_first_of_all(trainer: Trainer, broker: Broker):
    await complete(broker, "a", "b", "c")
    with pytest.raises(RuntimeError, match="out of memory"):
        async with trainer.batch(2):
            raise RuntimeError("out of memory")
    async with trainer.batch(3) as batch:
        assert ids(list(batch)) == ["a", "b", "c"]


async def test_a_batch_that_comes_again_is_without_what_its_block_acked(trainer: Trainer, broker: Broker):
    async def train_on_half() -> None:
        async with trainer.batch(2) as batch:
            await trainer.ack(batch.groups[:1])
            raise RuntimeError("halfway")

    await complete(broker, "a", "b")
    with pytest.raises(RuntimeError, match="halfway"):
        await train_on_half()
    assert ids(await trainer.take(2)) == ["b"]
    await broker.ack([entry.entry for entry in (await broker.take("rank-0", 10, "0"))[1]])


async def test_a_batch_that_is_not_filled_in_time_says_what_holds_the_fleet_back(trainer: Trainer, broker: Broker):
    await complete(broker, "a")
    with pytest.raises(TimeoutError, match=r"^1 of 2 groups within the time given; no prompt group waits$"):
        async with trainer.batch(2, timeout=0.05):
            pass
    async with trainer.batch(1) as batch:
        assert ids(list(batch)) == ["a"]


async def test_a_batch_whose_filling_is_cancelled_keeps_what_it_had(trainer: Trainer, broker: Broker):
    await complete(broker, "a")

    async def fill() -> None:
        async with trainer.batch(2):
            pass

    filling = asyncio.create_task(fill())
    await until(lambda: _is_taken(trainer))
    filling.cancel()
    await asyncio.wait([filling])
    async with trainer.batch(1, timeout=60) as batch:
        assert ids(list(batch)) == ["a"]


async def _is_taken(trainer: Trainer) -> bool:
    return (await trainer.status()).taken == 1


# Staleness


async def test_a_batch_says_how_many_versions_each_group_is_behind(trainer: Trainer, broker: Broker):
    await complete(broker, "old", version=3)
    await complete(broker, "new", version=7)
    async with trainer.batch(2, version=7) as batch:
        assert batch.staleness == [4, 0]


async def test_a_version_that_is_no_number_has_no_staleness(trainer: Trainer, broker: Broker):
    await complete(broker, "a", version=-1)
    async with trainer.batch(1, version=7) as batch:
        assert batch.staleness == [None]


async def test_without_a_version_of_the_trainer_nothing_has_a_staleness(trainer: Trainer, broker: Broker):
    await complete(broker, "a", version=3)
    async with trainer.batch(1) as batch:
        assert batch.staleness == [None]


# Recycling


async def test_a_recycled_group_is_generated_again_and_not_handed_out_meanwhile(trainer: Trainer, broker: Broker):
    await complete(broker, "a", version=1)
    (stale,) = await trainer.take(1)
    assert await trainer.recycle(stale) == "ok"
    assert await trainer.take(1, timeout=0) == []
    await InstantWorker(broker, version=2).step()
    async with trainer.batch(1, timeout=60) as batch:
        assert (batch.groups[0].versions, batch.groups[0].recycled) == ((2, 2), 1)


async def test_a_group_that_was_recycled_too_often_stays_with_the_trainer(trainer: Trainer, broker: Broker):
    await broker.configure(RunConfig(recycle_limit=1))
    await complete(broker, "a")
    assert await trainer.recycle((await trainer.take(1))[0]) == "ok"
    await InstantWorker(broker).step()
    (again,) = await trainer.take(1)
    assert await trainer.recycle(again) == "limit"
    assert await trainer.ack([again]) == ["ok"]


async def test_a_group_that_is_over_is_not_recycled(trainer: Trainer, broker: Broker):
    await complete(broker, "a")
    groups = await trainer.take(1)
    await trainer.ack(groups)
    assert await trainer.recycle(groups[0]) == "gone"


async def test_a_trainer_without_a_broker_says_so_after_its_time(run: str):
    trainer = Trainer.connect("redis://127.0.0.1:1/0", run, retry_seconds=0.1)
    with pytest.raises(BrokerUnavailable, match=r"Redis does not serve .*: is it running, is the URL right\?"):
        await trainer.__aenter__()


async def test_two_trainers_share_a_run_and_train_on_each_group_once(broker: Broker, redis_url: str, run: str):
    trained: list[str] = []

    async def rank(consumer: str) -> None:
        async with Trainer.connect(redis_url, run, consumer) as trainer:
            for _ in range(5):
                async with trainer.batch(4, timeout=60) as batch:
                    trained.extend(ids(list(batch)))

    fleet = Fleet(broker)
    await fleet.submit(*(f"g{index}" for index in range(40)))
    async with working(redis_url, run):
        await asyncio.gather(rank("rank-0"), rank("rank-1"))
    assert sorted(trained) == sorted(f"g{index}" for index in range(40))
