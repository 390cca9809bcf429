"""Nothing unsound is handed to a trainer: an entry that can't be read as a whole group is generated again."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import redis.asyncio

from rolloutfleet import Trainer
from rolloutfleet.broker import Broker
from rolloutfleet.reading import find_lost, read_dead
from tests.fakes.broker import Fleet, group, sample
from tests.fakes.worker import InstantWorker, complete, make_run


@pytest.fixture
async def broker(client: redis.asyncio.Redis, run: str) -> Broker:
    return await make_run(client, run)


@pytest.fixture
async def trainer(broker: Broker, redis_url: str, run: str) -> AsyncIterator[Trainer]:
    async with Trainer.connect(redis_url, run, "rank-0") as connected:
        yield connected


async def born(broker: Broker, group_id: str) -> str:
    return (await Fleet(broker).group(group_id))["born"].decode()


async def complete_with(broker: Broker, **fields: Any) -> None:
    """A group that a worker of somebody else completed with these fields."""
    fleet = Fleet(broker)
    await fleet.submit("a")
    (grant,) = await fleet.hold()
    await fleet.put(grant, *grant.missing)
    sound = {"rewards": "[1,1]", "group_reward": "null", "versions": "[0,0]", "worker": "other/1"}
    assert await broker.complete(grant, sound | fields) == "ok"


async def expect_recycled(trainer: Trainer, broker: Broker) -> None:
    """Nothing is handed out; the same group, generated again, is."""
    assert await trainer.take(1, timeout=0) == []
    assert await InstantWorker(broker).step() == ["a"]
    (taken,) = await trainer.take(1, timeout=60)
    assert (taken.id, taken.recycled) == ("a", 1)
    await trainer.ack([taken])


async def test_a_group_of_which_the_broker_lost_a_sample_is_recycled(trainer: Trainer, broker: Broker):
    await complete(broker, "a")
    await broker.client.hdel(broker.keys.samples("a", await born(broker, "a")), "1")
    await expect_recycled(trainer, broker)


async def test_a_group_of_which_the_broker_lost_all_samples_is_recycled(trainer: Trainer, broker: Broker):
    await complete(broker, "a")
    await broker.client.unlink(broker.keys.samples("a", await born(broker, "a")))
    await expect_recycled(trainer, broker)


async def test_a_group_that_is_unsound_again_and_again_becomes_a_dead_letter(trainer: Trainer, broker: Broker):
    await Fleet(broker).configure(recycle_limit=0)
    await complete(broker, "a")
    await broker.client.unlink(broker.keys.samples("a", await born(broker, "a")))
    assert await trainer.take(1, timeout=0) == []
    (letter,) = await read_dead(broker, 1)
    assert (letter.id, letter.reason) == ("a", "0 of 2 samples are stored")


async def test_a_group_with_a_sample_too_many_is_recycled(trainer: Trainer, broker: Broker):
    await complete(broker, "a")
    await broker.client.hset(broker.keys.samples("a", await born(broker, "a")), "2", sample(2).encode())
    await expect_recycled(trainer, broker)


async def test_a_group_with_a_sample_that_does_not_decode_is_recycled(trainer: Trainer, broker: Broker):
    await complete(broker, "a")
    await broker.client.hset(broker.keys.samples("a", await born(broker, "a")), "1", b"\xc1 no msgpack")
    await expect_recycled(trainer, broker)


@pytest.mark.parametrize(
    "rewards", ["[1]", "[1,1,1]", "[1,NaN]", "[1,null]", '[1,"1"]', "7", "{}", "", "[1,"], ids=repr
)
async def test_a_group_whose_rewards_are_not_n_numbers_is_recycled(trainer: Trainer, broker: Broker, rewards: str):
    await complete_with(broker, rewards=rewards)
    await expect_recycled(trainer, broker)


@pytest.mark.parametrize("reward", ["NaN", '"1"', "[1]", "{"], ids=repr)
async def test_a_group_whose_own_reward_is_no_number_is_recycled(trainer: Trainer, broker: Broker, reward: str):
    await complete_with(broker, group_reward=reward)
    await expect_recycled(trainer, broker)


async def test_a_group_that_the_trainer_scores_has_no_rewards(trainer: Trainer, broker: Broker):
    await complete_with(broker, rewards="null")
    (taken,) = await trainer.take(1)
    assert taken.rewards is None
    await trainer.ack([taken])


async def test_an_entry_of_a_group_that_is_over_is_deleted(trainer: Trainer, broker: Broker):
    await complete(broker, "a")
    await broker.client.unlink(broker.keys.samples("a", await born(broker, "a")), broker.keys.group("a"))
    assert await trainer.take(1, timeout=0) == []
    assert await broker.client.xlen(broker.keys.named("completed")) == 0


async def test_an_entry_of_another_incarnation_of_its_group_is_deleted(trainer: Trainer, broker: Broker):
    await complete(broker, "a")
    before = await born(broker, "a")
    await broker.client.hset(broker.keys.group("a"), "born", "reborn")
    assert await trainer.take(1, timeout=0) == []
    assert await broker.client.xlen(broker.keys.named("completed")) == 0
    await broker.client.unlink(broker.keys.samples("a", before), broker.keys.group("a"))


async def test_an_entry_that_no_worker_wrote_is_deleted(trainer: Trainer, broker: Broker):
    await broker.client.xadd(broker.keys.named("completed"), {"hello": "world"})
    assert await trainer.take(1, timeout=0) == []
    assert await broker.client.xlen(broker.keys.named("completed")) == 0


async def test_a_group_beside_an_unsound_one_is_handed_out(trainer: Trainer, broker: Broker):
    await complete(broker, "bad", "good")
    await broker.client.unlink(broker.keys.samples("bad", await born(broker, "bad")))
    (taken,) = await trainer.take(2)
    assert taken.id == "good"
    await trainer.ack([taken])
    await InstantWorker(broker).step()
    await trainer.ack(await trainer.take(2))


async def test_prompt_ids_are_those_that_the_worker_rendered(trainer: Trainer, broker: Broker):
    await complete(broker, "a")
    (taken,) = await trainer.take(1)
    assert taken.prompt_ids is not None
    assert taken.prompt_ids.tolist() == [1]
    await trainer.ack([taken])


async def test_a_taken_group_is_one_line_of_plain_json(trainer: Trainer, broker: Broker):
    await complete(broker, "a", version=3)
    (taken,) = await trainer.take(1)
    line = json.loads(json.dumps(taken.to_json()))
    assert (line["id"], line["prompt"], line["versions"]) == ("a", "question a", [3, 3])
    assert [each["reward"] for each in line["samples"]] == [0.0, 1.0]
    assert (line["prompt_ids"], line["samples"][0]["prompts"]) == ([1], [None])
    (row,) = taken.samples[0].rows
    assert (line["samples"][0]["mask"], line["samples"][0]["spans"]) == ([[1] * len(row)], [[[3, 0, len(row)]]])
    await trainer.ack([taken])


# Dead letters


async def kill(broker: Broker, *ids: str) -> None:
    await broker.submit([group(group_id) for group_id in ids])
    worker = InstantWorker(broker, rejects=dict.fromkeys(ids, "too long"))
    assert await worker.step(100) == list(ids)


async def test_dead_letters_are_read_newest_first_and_page_by_page(broker: Broker):
    await kill(broker, "a", "b", "c")
    newest = await read_dead(broker, 2)
    rest = await read_dead(broker, 2, f"({newest[-1].entry}")
    assert [letter.id for letter in [*newest, *rest]] == ["c", "b", "a"]


async def test_a_dead_letter_has_all_that_is_needed_to_understand_it(broker: Broker):
    await kill(broker, "a")
    (letter,) = await read_dead(broker, 1)
    assert (letter.id, letter.reason, letter.attempts) == ("a", "too long", 1)
    assert json.loads(letter.text)["prompt"] == "question a"
    assert letter.to_json()["text"] == letter.text.decode()


async def test_a_run_without_dead_letters_has_none(broker: Broker):
    assert await read_dead(broker, 10) == []


async def test_an_entry_id_that_is_none_is_refused(broker: Broker):
    with pytest.raises(ValueError, match="yesterday is no entry"):
        await read_dead(broker, 10, "yesterday")


async def test_a_dead_letter_of_bytes_that_are_no_text_can_be_read(broker: Broker):
    await broker.client.rpush(broker.keys.named("prompts"), b"\xff\xfe")
    assert await InstantWorker(broker).step() == []
    (letter,) = await read_dead(broker, 1)
    assert (letter.id, letter.text) == ("", b"\xff\xfe")
    assert json.dumps(letter.to_json())


async def test_groups_that_are_still_on_their_way_are_not_lost(broker: Broker):
    await kill(broker, "dead")
    await broker.submit([group("queued")])
    lost = await find_lost(broker, ["queued", "dead", "unknown"])
    assert {group_id: outcome.reason for group_id, outcome in lost.items()} == {"dead": "too long"}
    await Fleet(broker).finish_all()


async def test_nothing_asked_is_nothing_lost(broker: Broker):
    assert await find_lost(broker, []) == {}
