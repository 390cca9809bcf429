"""Each damage that a person or a lost second of the broker can do is mended, and a healthy run is left alone."""

import asyncio

import pytest
import redis.asyncio

from rolloutfleet import Trainer
from rolloutfleet.messages import Grant
from rolloutfleet.repair import Repaired, purge, repair
from tests.fakes.broker import Fleet
from tests.fakes.worker import make_run, working

NOTHING = Repaired(groups=0, leases=0, samples=0, entries=0)


async def samples_key(fleet: Fleet, group_id: str) -> str:
    return fleet.broker.keys.samples(group_id, (await fleet.group(group_id))["born"].decode())


# A healthy run


async def test_a_new_run_needs_nothing(fleet: Fleet):
    assert await repair(fleet.broker) == NOTHING


async def test_groups_everywhere_on_their_way_are_left_alone(fleet: Fleet):
    await fleet.configure(sample_concurrency=100)
    await fleet.run_through("completed", "taken")
    await fleet.submit("leased", "retried", "queued")
    await fleet.push({"prompt": "raw"})
    leased, retried = await fleet.hold(2)
    await fleet.broker.release(retried.token, "fail", "the reward failed")
    await fleet.put(leased, 0)
    await fleet.take(1)
    before = await everything(fleet)
    assert await repair(fleet.broker) == NOTHING
    assert await everything(fleet) == before
    await fleet.finish(leased)
    await fleet.finish_all()
    await fleet.broker.ack([entry.entry for entry in await fleet.take(position="0")])


async def everything(fleet: Fleet) -> dict[str, object]:
    """What lies in each key, but for the hint to wake."""
    names = sorted(await fleet.names() - {"wake"})
    return {name: await fleet.do("DUMP", fleet.broker.keys.prefix + name) for name in names}


async def test_a_fleet_at_work_is_left_alone_while_it_works(client: redis.asyncio.Redis, redis_url: str, run: str):
    broker = await make_run(client, run, sample_concurrency=8)
    fleet, wanted = Fleet(broker), [f"g{index}" for index in range(300)]
    await fleet.submit(*wanted)
    trained: list[str] = []

    async def train() -> None:
        async with Trainer.connect(redis_url, run, "rank-0") as trainer:
            while len(trained) < len(wanted):
                groups = await trainer.take(10, timeout=60)
                await trainer.ack(groups)
                trained.extend(each.id for each in groups)

    async with working(redis_url, run):
        training = asyncio.create_task(train())
        found = [await repair(broker)]
        while not training.done():
            found.append(await repair(broker))
        await training
    assert set(found) == {NOTHING}
    assert sorted(trained) == sorted(wanted)


# Groups that are nowhere


async def test_a_queue_that_was_deleted_is_made_again(fleet: Fleet):
    await fleet.submit("a", "b", "c")
    await fleet.do("DEL", fleet.key("prompts"))
    assert await repair(fleet.broker) == Repaired(groups=3, leases=0, samples=0, entries=0)
    assert await fleet.waits("again") == [b"a", b"b", b"c"]
    await fleet.finish_all()


async def test_an_entry_that_was_taken_out_of_the_queue_comes_back(fleet: Fleet):
    await fleet.submit("a", "b")
    await fleet.do("LPOP", fleet.key("prompts"))
    assert (await repair(fleet.broker)).groups == 1
    await fleet.finish_all()


async def test_a_group_that_was_to_be_tried_again_and_is_forgotten_comes_back(fleet: Fleet):
    await fleet.submit("a")
    (grant,) = await fleet.hold()
    await fleet.broker.release(grant.token, "free")
    await fleet.do("ZREM", fleet.key("again"), "a")
    assert (await repair(fleet.broker)).groups == 1
    await fleet.finish_all()


async def test_completed_groups_of_a_stream_that_was_deleted_are_completed_again_from_their_samples(fleet: Fleet):
    await fleet.run_through("a", "b")
    await fleet.do("DEL", fleet.key("completed"))
    assert (await repair(fleet.broker)).groups == 2
    grants = await fleet.hold(2)
    assert [grant.missing for grant in grants] == [[], []]
    await fleet.finish(*grants)
    assert sorted(await fleet.take_and_ack()) == ["a", "b"]


async def test_a_group_whose_entry_was_deleted_is_completed_again(fleet: Fleet):
    await fleet.run_through("a")
    (entry,) = await fleet.take()
    await fleet.do("XDEL", fleet.key("completed"), entry.entry)
    assert (await repair(fleet.broker)).groups == 1
    await fleet.finish_all()


async def test_a_long_queue_is_read_in_pages(fleet: Fleet, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("rolloutfleet.repair.SLICE", 3)
    await fleet.submit(*(f"g{index:02}" for index in range(95)))
    await fleet.do("LREM", fleet.key("prompts"), 1, "@g50")
    assert (await repair(fleet.broker)).groups == 1
    assert await fleet.waits("again") == [b"g50"]
    await fleet.configure(sample_concurrency=400)
    await fleet.finish_all()


async def test_a_healthy_queue_costs_no_look_up_in_the_list(real_fleet: Fleet, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("rolloutfleet.repair.SLICE", 3)
    await real_fleet.submit(*(f"g{index}" for index in range(95)))
    before = await look_ups(real_fleet)
    assert await repair(real_fleet.broker) == NOTHING
    assert await look_ups(real_fleet) == before
    await real_fleet.configure(sample_concurrency=400)
    await real_fleet.finish_all()


async def look_ups(fleet: Fleet) -> int:
    """How often the server was asked for the place of something in a list."""
    stats = await fleet.client.info("commandstats")
    return stats.get("cmdstat_lpos", {"calls": 0})["calls"]


# Leases


async def leased(fleet: Fleet) -> Grant:
    await fleet.submit("a")
    (grant,) = await fleet.hold()
    return grant


async def test_a_group_whose_lease_was_deleted_can_be_claimed_again(fleet: Fleet):
    grant = await leased(fleet)
    await fleet.do("ZREM", fleet.key("leases"), "a")
    mended = await repair(fleet.broker)
    assert (mended.leases, mended.groups) == (1, 1)
    assert await fleet.beat(grant.token) == ("ok", [grant.token])
    await fleet.finish_all()


async def test_a_lease_whose_grant_was_deleted_is_taken_away(fleet: Fleet):
    grant = await leased(fleet)
    await fleet.do("HDEL", fleet.key("grants"), grant.token)
    assert (await repair(fleet.broker)).leases == 1
    assert (await fleet.active(), await fleet.waits("again")) == (0, [b"a"])
    await fleet.finish_all()


async def test_a_lease_whose_group_was_deleted_is_taken_away(fleet: Fleet):
    await leased(fleet)
    await fleet.do("DEL", fleet.broker.keys.group("a"))
    assert (await repair(fleet.broker)).leases == 2
    assert (await fleet.active(), await fleet.outstanding()) == (0, 0)


async def test_a_count_of_outstanding_samples_that_is_wrong_is_made_right(fleet: Fleet):
    grant = await leased(fleet)
    await fleet.do("SET", fleet.key("outstanding"), 77)
    await repair(fleet.broker)
    assert await fleet.outstanding() == 2
    await fleet.finish(grant)
    await fleet.take_and_ack()


async def test_a_sample_that_was_stored_and_not_counted_is_counted(fleet: Fleet):
    grant = await leased(fleet)
    await fleet.do("HSET", await samples_key(fleet, "a"), 0, "x")
    await repair(fleet.broker)
    assert await fleet.outstanding() == 1
    await fleet.do("HDEL", await samples_key(fleet, "a"), 0)
    await fleet.finish(grant)
    await fleet.take_and_ack()


# Samples and entries


async def test_samples_of_an_incarnation_that_is_over_are_freed(fleet: Fleet):
    await fleet.submit("a")
    for born in ("yesterday", (await fleet.group("a"))["born"].decode()):
        await fleet.do("HSET", fleet.broker.keys.samples("a", born), 0, "x")
    assert (await repair(fleet.broker)).samples == 1
    assert await fleet.hash(await samples_key(fleet, "a")) == {"0": b"x"}
    await fleet.do("DEL", await samples_key(fleet, "a"))
    await fleet.finish_all()


async def test_samples_of_a_group_that_was_deleted_are_freed(fleet: Fleet):
    await fleet.do("HSET", fleet.broker.keys.samples("with:colons:", "1-2-3"), 0, "x")
    assert (await repair(fleet.broker)).samples == 1


async def test_entries_of_a_consumer_that_was_deleted_go_to_the_one_that_repairs(fleet: Fleet):
    await fleet.run_through("a")
    await fleet.take(consumer="rank-9")
    await fleet.do("XGROUP", "DELCONSUMER", fleet.key("completed"), "trainer", "rank-9")
    assert (await repair(fleet.broker, "rank-0")).entries == 1
    (entry,) = await fleet.take(consumer="rank-0", position="0")
    assert entry.id == "a"
    await fleet.broker.ack([entry.entry])


async def test_a_run_that_was_mended_needs_nothing_more(fleet: Fleet):
    await leased(fleet)
    await fleet.submit("b")
    await fleet.do("DEL", fleet.key("leases"), fleet.key("prompts"))
    await repair(fleet.broker)
    assert await repair(fleet.broker) == NOTHING
    await fleet.finish_all()


async def test_damage_is_mended_on_each_server_of_the_matrix(each_fleet: Fleet):
    await each_fleet.run_through("a")
    await each_fleet.submit("b")
    await each_fleet.do("DEL", each_fleet.key("prompts"), each_fleet.key("completed"))
    assert (await repair(each_fleet.broker)).groups == 2
    await each_fleet.finish_all()


# Purge


async def test_a_purged_run_has_no_key_left_and_its_neighbour_all(fleet: Fleet):
    neighbour = await Fleet.make(fleet.client, "neighbour")
    await fleet.run_through("a")
    await fleet.submit("b")
    await fleet.do("XADD", fleet.key("dead"), "*", "id", "x")
    assert await purge(fleet.broker) > 5
    assert await fleet.names() == set()
    assert "config" in await neighbour.names()


async def test_purging_what_is_not_there_deletes_nothing(fleet: Fleet):
    await purge(fleet.broker)
    assert await purge(fleet.broker) == 0


async def test_workers_that_go_on_beating_bring_nothing_of_a_purged_run_back(real_fleet: Fleet):
    await real_fleet.do("MSET", *[part for i in range(5000) for part in (f"{real_fleet.key('prompts')}-{i}", "x")])
    over = asyncio.Event()

    async def beat_on(worker: str) -> None:
        while not over.is_set():
            await real_fleet.beat(worker=worker)

    async with asyncio.TaskGroup() as workers:
        for number in range(4):
            workers.create_task(beat_on(f"pod/{number}"))
        await purge(real_fleet.broker)
        over.set()

    assert await real_fleet.names() == set()


async def test_the_number_of_slots_is_rebuilt_from_the_workers(fleet: Fleet):
    await fleet.beat(worker="pod/1", slots=8)
    await fleet.beat(worker="pod/2", slots=4)
    await fleet.do("HSET", fleet.key("state"), "slots", 99)
    await repair(fleet.broker)
    assert await fleet.do("HGET", fleet.key("state"), "slots") == b"12"
