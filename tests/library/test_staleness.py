"""judge and cancel: what becomes of groups that are too old for the trainer's weights, and how often at most."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import redis.asyncio

from rolloutfleet import RunConfig, SyncTrainer, Trainer, VersionAhead
from rolloutfleet.broker import Broker
from rolloutfleet.errors import BrokerUnavailable
from rolloutfleet.lengths import lost_field
from rolloutfleet.messages import Grant
from rolloutfleet.reading import LostGroup
from rolloutfleet.repair import purge
from rolloutfleet.status import read_status
from rolloutfleet.view import lines
from tests.fakes.broker import Fleet, group
from tests.fakes.worker import complete, make_run, working

# The step


async def bounded(fleet: Fleet, stale: str = "recycle", **changes: Any) -> None:
    """At most one version behind; groups have no pace."""
    await fleet.configure(max_staleness=1, stale=stale, recycle_limit=1, sample_concurrency=100, **changes)


async def made(fleet: Fleet, versions: str = "[3,4]", group_id: str = "a") -> str:
    """The entry of a group that these versions made, taken."""
    await fleet.submit(group_id)
    await fleet.finish(*await fleet.hold(), versions=versions)
    return (await fleet.take())[0].entry


@pytest.mark.parametrize(
    ("version", "word"), [("4", "ok"), ("5", "recycled"), ("3", "ahead")]
)  # of a group from 3 to 4, with a bound of 1
async def test_the_oldest_version_decides_what_is_stale_and_the_newest_what_is_ahead(
    fleet: Fleet, version: str, word: str
):
    await bounded(fleet)
    assert await fleet.broker.judge(int(version), [await made(fleet)]) == [word]


@pytest.mark.parametrize("versions", ["[-1,4]", "[-1,-1]", "[]", "[4]", '["4","4"]', "default", ""])
async def test_a_version_that_is_no_number_is_never_fresh(fleet: Fleet, versions: str):
    await bounded(fleet, stale="drop")
    assert await fleet.broker.judge(4, [await made(fleet, versions)]) == ["dropped"]
    assert await fleet.stat("dropped_staleness:unknown") == 1


async def test_a_run_without_a_bound_finds_everything_fresh_enough(fleet: Fleet):
    assert await fleet.broker.judge(99, [await made(fleet)]) == ["ok"]


async def test_a_group_that_is_ahead_stays_as_it_is(fleet: Fleet):
    await bounded(fleet)
    entry = await made(fleet)
    assert await fleet.broker.judge(3, [entry]) == ["ahead"]
    assert await fleet.broker.judge(4, [entry]) == ["ok"]


async def test_a_recycled_group_is_newly_born_and_last_in_line(fleet: Fleet):
    await bounded(fleet)
    entry = await made(fleet)
    born = (await fleet.group("a"))["born"]
    await fleet.submit("b")
    assert await fleet.broker.judge(5, [entry]) == ["recycled"]
    assert await fleet.waits("prompts") == [b"@b", b"@a"]
    again = await fleet.group("a")
    assert (again["born"] != born, again["recycled"], "staleness" in again) == (True, b"1", False)
    assert (await fleet.completed(), await fleet.pending()) == (0, {})


async def test_judging_twice_changes_nothing_more(fleet: Fleet):
    await bounded(fleet)
    entry = await made(fleet)
    words = [await fleet.broker.judge(5, [entry]) for _ in range(2)]
    assert words == [["recycled"], ["gone"]]
    assert (await fleet.stat("recycled"), await fleet.waits("prompts")) == (1, [b"@a"])


async def recycled_once(fleet: Fleet, lengths: str = "[3,3]") -> str:
    """The entry of a group that may not be recycled again."""
    assert await fleet.broker.judge(9, [await made(fleet)]) == ["recycled"]
    await fleet.finish(*await fleet.hold(), versions="[3,4]", lengths=lengths)
    return (await fleet.take())[0].entry


async def test_a_group_that_was_recycled_too_often_is_delivered_all_the_same(fleet: Fleet):
    await bounded(fleet)
    assert await fleet.broker.judge(9, [await recycled_once(fleet)]) == ["stale"]


@pytest.mark.parametrize("longest", ["1", "3", "7", "900", "1023", "1024", "100000000"])
async def test_a_group_that_is_dead_of_it_is_counted_by_its_length(fleet: Fleet, longest: str):
    await bounded(fleet, recycle_then="dead")
    await fleet.broker.judge(9, [await recycled_once(fleet, f"[1, {longest}]")])
    assert await fleet.stat(lost_field("stale", int(longest))) == 1
    assert (await read_status(fleet.broker)).losses.causes == {"stale": 1}


async def test_or_it_is_a_dead_letter(fleet: Fleet):
    await bounded(fleet, recycle_then="dead")
    assert await fleet.broker.judge(9, [await recycled_once(fleet)]) == ["dead"]
    (letter,) = await fleet.letters()
    assert (letter["id"], letter["reason"]) == (b"a", b"too stale, each time that it was made")
    assert await fleet.group("a") == {}


async def test_a_dropped_group_is_over(fleet: Fleet):
    await bounded(fleet, stale="drop")
    assert await fleet.broker.judge(5, [await made(fleet)]) == ["dropped"]
    assert await fleet.submit("a") == ["done"]
    assert (await fleet.completed(), await fleet.pending(), await fleet.stat("dropped:stale")) == (0, {}, 1)


async def test_with_pace_alone_a_stale_group_is_delivered(fleet: Fleet):
    await bounded(fleet, stale="pace", groups_per_update=4)
    assert await fleet.broker.judge(9, [await made(fleet)]) == ["stale"]


async def test_an_entry_whose_group_was_made_anew_is_gone(fleet: Fleet):
    await bounded(fleet)
    entry = await made(fleet)
    await fleet.do("HSET", fleet.broker.keys.group("a"), "born", "other")
    assert await fleet.broker.judge(4, [entry]) == ["gone"]
    assert await fleet.completed() == 0
    await fleet.delete()


async def test_what_is_trained_on_is_counted_by_how_far_behind_it_was_at_last(fleet: Fleet):
    await bounded(fleet, stale="pace", groups_per_update=4)
    entries = [await made(fleet, "[3,4]", "a"), await made(fleet, "[4,4]", "b"), await made(fleet, "[-1,4]", "c")]
    await fleet.broker.judge(4, entries)
    await fleet.broker.judge(44, entries[:1])
    await fleet.broker.ack(entries)
    assert [await fleet.stat(f"trained_staleness:{behind}") for behind in ("1", "0", "20", "unknown")] == [0, 1, 1, 1]


async def test_status_and_top_say_how_far_behind_groups_were(fleet: Fleet):
    await bounded(fleet, groups_per_update=4)
    entries = [await made(fleet, versions, name) for name, versions in (("a", "[3,3]"), ("b", "[7,7]"), ("c", "[8,8]"))]
    await fleet.broker.judge(8, entries)
    await fleet.broker.ack(entries[1:])
    status = await read_status(fleet.broker)
    assert status.judged == {"trained": {"0": 1, "1": 1}, "recycled": {"5": 1}, "dropped": {}}
    assert "behind    trained 0: 1, 1: 1; recycled 5: 1; 6 groups until the next update" in lines(status)


async def test_a_run_that_says_nothing_of_versions_has_no_line_for_them(fleet: Fleet):
    assert not [line for line in lines(await read_status(fleet.broker)) if line.startswith("behind")]


async def test_what_is_recycled_is_counted_by_how_far_behind_it_was(fleet: Fleet):
    await bounded(fleet)
    await fleet.broker.judge(8, [await made(fleet)])
    assert await fleet.stat("recycled_staleness:5") == 1


async def test_what_nobody_judged_is_not_in_the_histogram(fleet: Fleet):
    await fleet.broker.ack([await made(fleet)])
    assert not [name for name in await fleet.hash(fleet.key("stats")) if "staleness" in name]


@pytest.mark.parametrize("stale", ["recycle", "drop"])
async def test_what_judge_takes_away_gives_its_place_back_and_wakes(fleet: Fleet, stale: str):
    await fleet.configure(max_staleness=0, groups_per_update=1, stale=stale)
    entry = await made(fleet)
    await fleet.submit("b")
    assert (await fleet.claim()).reason == "pace"
    await fleet.sleep()
    await fleet.broker.judge(9, [entry])
    assert await fleet.is_woken()
    await fleet.hold()


# Groups that are hopeless while they run


async def hopeless(fleet: Fleet) -> Grant:
    """A held group that is beyond its bound if version 3 made some of it."""
    await bounded(fleet, cancel_stale=True)
    await fleet.do("HSET", fleet.key("policy"), "version", 5)
    await fleet.submit("a")
    (grant,) = await fleet.hold()
    await fleet.put(grant, 0)
    return grant


async def test_a_hopeless_group_is_newly_born_and_first_in_line(fleet: Fleet):
    grant = await hopeless(fleet)
    assert await fleet.broker.cancel(grant.token, 3) == "ok"
    assert (await fleet.waits("again"), await fleet.active(), await fleet.outstanding()) == ([b"a"], 0, 0)
    (anew,) = await fleet.hold()
    assert (anew.born != grant.born, anew.attempt, anew.stored) == (True, 1, frozenset())
    assert await fleet.complete(grant) == "gone"
    assert await fleet.stat("cancelled") == 1


async def test_a_group_that_is_within_its_bound_is_kept(fleet: Fleet):
    grant = await hopeless(fleet)
    assert await fleet.broker.cancel(grant.token, 4) == "fresh"
    assert (await fleet.active(), await fleet.waits("again")) == (1, [])


@pytest.mark.parametrize("field", ["cancel_stale", "max_staleness"])
async def test_nothing_is_cancelled_where_the_run_does_not_want_it(fleet: Fleet, field: str):
    grant = await hopeless(fleet)
    await fleet.configure(**{field: "off" if field == "max_staleness" else False})
    assert await fleet.broker.cancel(grant.token, 0) == "fresh"


async def test_who_lost_the_lease_cancels_nothing(fleet: Fleet):
    grant = await hopeless(fleet)
    await fleet.expire(grant)
    await fleet.broker.reap()
    assert await fleet.broker.cancel(grant.token, 0) == "lost"
    assert (await fleet.group("a"))["born"].decode() == grant.born


async def test_a_slow_group_is_not_cancelled_for_ever(fleet: Fleet):
    grant = await hopeless(fleet)
    await fleet.broker.cancel(grant.token, 0)
    (anew,) = await fleet.hold()
    assert await fleet.broker.cancel(anew.token, 0) == "limit"
    await fleet.finish(anew)


async def test_a_cancelled_group_wakes(fleet: Fleet):
    grant = await hopeless(fleet)
    await fleet.sleep()
    await fleet.broker.cancel(grant.token, 0)
    assert await fleet.is_woken()


# The trainer's client


@pytest.fixture
async def broker(client: redis.asyncio.Redis, run: str) -> Broker:
    return await make_run(client, run)


@pytest.fixture
async def trainer(broker: Broker, redis_url: str, run: str) -> AsyncIterator[Trainer]:
    await broker.configure(RunConfig(max_staleness=1, stale="recycle", recycle_limit=1))
    async with Trainer.connect(redis_url, run, "rank-0", retry_seconds=5) as connected:
        yield connected


async def test_a_batch_waits_for_what_it_had_recycled(trainer: Trainer, broker: Broker, redis_url: str, run: str):
    await complete(broker, "a", version=3)
    async with working(redis_url, run, version=7), trainer.batch(1, version=7, timeout=60) as batch:
        (trained,) = batch
    assert (trained.versions, trained.recycled, trained.is_stale, batch.staleness) == ((7, 7), 1, False, [0])


async def test_what_may_not_be_recycled_again_is_delivered_with_a_mark(trainer: Trainer, broker: Broker):
    await broker.configure(RunConfig(recycle_limit=0))
    await complete(broker, "a", version=3)
    async with trainer.batch(1, version=7) as batch:
        assert [(one.id, one.is_stale) for one in batch] == [("a", True)]


async def test_a_batch_that_was_given_back_is_judged_again(trainer: Trainer, broker: Broker):
    await complete(broker, "a", version=3)
    with pytest.raises(KeyError):
        async with trainer.batch(1, version=4):
            raise KeyError
    assert await trainer.take(1, timeout=0, version=5) == []
    assert await broker.queued() == 1
    await purge(broker)


async def test_what_was_taken_ahead_can_be_judged_when_it_is_trained_on(trainer: Trainer, broker: Broker):
    await complete(broker, "old", version=3)
    await complete(broker, "new", version=4)
    ahead = await trainer.take(2, version=4)
    kept = await trainer.judge(ahead, 5)
    assert [one.id for one in kept] == ["new"]
    await trainer.ack(kept)
    assert await trainer.take(2, timeout=0) == []
    await purge(broker)


async def test_a_trainer_behind_its_groups_is_told_so_and_loses_nothing(trainer: Trainer, broker: Broker):
    await broker.configure(RunConfig(max_staleness=9))
    await complete(broker, "a", version=3)
    await complete(broker, "b", version=7)
    with pytest.raises(VersionAhead, match=r"'b'.*version 7.*hands in 3"):
        async with trainer.batch(2, version=3):
            pass
    async with trainer.batch(2, version=7) as batch:
        assert {one.id for one in batch} == {"a", "b"}


async def test_a_dropped_group_that_was_asked_for_is_told(trainer: Trainer, broker: Broker, redis_url: str, run: str):
    await broker.configure(RunConfig(stale="drop"))
    async with working(redis_url, run, version=3):
        (lost,) = await trainer.generate([group("a")], timeout=60, version=7)
    assert isinstance(lost, LostGroup)
    assert "too stale" in lost.reason


async def test_a_judgement_that_is_not_answered_loses_nothing(trainer: Trainer, broker: Broker):
    await complete(broker, "a", version=3)
    judge = trainer.broker.judge

    async def unanswered(version: int, entries: Any) -> Any:
        raise BrokerUnavailable("no answer")

    trainer.broker.judge = unanswered
    with pytest.raises(BrokerUnavailable):
        await trainer.take(1, version=3)
    trainer.broker.judge = judge
    async with trainer.batch(1, version=3) as batch:
        assert [one.id for one in batch] == ["a"]


async def test_without_asyncio_it_is_the_same(broker: Broker, redis_url: str, run: str):
    await broker.configure(RunConfig(max_staleness=1, stale="drop"))
    await complete(broker, "old", version=3)
    await complete(broker, "new", version=7)

    def train() -> list[str]:
        with SyncTrainer.connect(redis_url, run) as trainer:
            groups = trainer.judge(trainer.take(2, 60, version=7), 7)
            trainer.ack(groups)
            return [one.id for one in groups]

    assert await asyncio.to_thread(train) == ["new"]
