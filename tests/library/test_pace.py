"""pace: what is claimed now is trained on before it is too old; the books of updates and trained groups."""

from typing import Any

import pytest

from rolloutfleet.settings import RunConfig
from rolloutfleet.status import read_status
from rolloutfleet.window import Pace, Reason
from tests.fakes.broker import CONSUMER, WORKER, Fleet

EACH = 2  # groups that the trainer trains on in one update


async def paced(fleet: Fleet, max_staleness: int = 0, **changes: Any) -> None:
    """A wide window, so that only the pace holds, and ten groups in line."""
    await fleet.configure(sample_concurrency=100, max_staleness=max_staleness, groups_per_update=EACH, **changes)
    await fleet.submit(*"abcdefghij")


async def room(fleet: Fleet) -> int | None:
    left = (await read_status(fleet.broker)).window.pace_left
    assert await fleet.pace_left() == left
    return left


async def train(fleet: Fleet, groups: int = EACH) -> None:
    """Claims, completes, takes and acks so many groups."""
    await fleet.finish(*await fleet.hold(groups))
    entries = await fleet.take(groups)
    assert await fleet.broker.ack([entry.entry for entry in entries]) == ["ok"] * groups


@pytest.mark.parametrize("most", ["0", "1", "3"])
async def test_before_the_first_update_as_many_groups_are_claimed_as_the_bound_allows(fleet: Fleet, most: str):
    await paced(fleet, int(most))
    claim = await fleet.claim(64)
    assert len(claim.grants) == (int(most) + 1) * EACH
    assert (await fleet.claim()).reason == "pace"


@pytest.mark.parametrize("how", ["completed", "taken", "trained"])
async def test_a_group_keeps_its_place_until_an_update(fleet: Fleet, how: str):
    await paced(fleet)
    await fleet.finish(*await fleet.hold(EACH))
    if how != "completed":
        entries = await fleet.take()
        if how == "trained":
            await fleet.broker.ack([entry.entry for entry in entries])
    assert (await fleet.claim()).reason == "pace"


async def test_an_update_gives_one_update_s_groups_room(fleet: Fleet):
    await paced(fleet)
    await train(fleet)
    await fleet.publish()
    assert len((await fleet.claim(64)).grants) == EACH


async def test_weights_that_are_published_before_the_groups_are_acked_give_the_same_room(fleet: Fleet):
    await paced(fleet)
    for _ in range(3):
        await fleet.finish(*await fleet.hold(EACH))
        entries = await fleet.take()
        await fleet.publish()
        await fleet.broker.ack([entry.entry for entry in entries])
        assert await room(fleet) == EACH


async def test_the_first_weights_open_nothing(fleet: Fleet):
    await paced(fleet)
    await fleet.publish()
    assert await room(fleet) == EACH


async def test_an_update_with_fewer_groups_opens_no_more_than_it_answers_for(fleet: Fleet):
    await paced(fleet, 1)
    for _ in range(4):
        await train(fleet, groups=1)
        await fleet.publish()
    assert await room(fleet) == 2 * EACH


async def test_groups_that_no_update_answers_for_do_not_close_the_gate_for_good(fleet: Fleet):
    await paced(fleet, 2)
    for _ in range(3):
        await train(fleet, groups=EACH)
    await fleet.publish()
    assert await room(fleet) == 2 * EACH


@pytest.mark.parametrize("served", ["1", "-1"])
async def test_what_an_update_opens_is_claimed_with_its_weights_only(fleet: Fleet, served: str):
    await paced(fleet)
    await fleet.publish()
    await train(fleet)
    assert await fleet.publish() == 2
    await fleet.sleep()
    claim = await fleet.claim(64, served=int(served))
    assert (claim.reason, claim.grants, await fleet.is_woken()) == ("old_weights", (), True)
    assert len((await fleet.claim(64, served=2)).grants) == EACH


async def test_older_weights_claim_what_is_fresh_enough_for_them(fleet: Fleet):
    await paced(fleet, 1)
    await fleet.publish()
    assert len((await fleet.claim(64, served=0)).grants) == EACH
    assert len((await fleet.claim(64, served=1)).grants) == EACH
    assert (await fleet.claim(served=0)).reason == "pace"


async def test_weights_of_another_run_open_no_pace(fleet: Fleet):
    await paced(fleet)
    await fleet.publish()
    assert len((await fleet.claim(64, served=500)).grants) == EACH


@pytest.mark.parametrize("mode", ["retract", "external"])
async def test_who_is_updated_by_somebody_else_claims_by_what_is_published(fleet: Fleet, mode: str):
    await paced(fleet)
    await train(fleet)
    await fleet.publish(mode=mode)
    assert len((await fleet.claim(64, served=0 if mode == "external" else None)).grants) == EACH


async def test_a_trainer_that_begins_answers_for_no_group_of_before(fleet: Fleet):
    await paced(fleet)
    await train(fleet)  # and it dies before it publishes
    assert await room(fleet) == 0
    await fleet.broker.begin(CONSUMER, "a")
    assert await room(fleet) == EACH


async def test_what_an_earlier_life_of_a_trainer_acks_late_is_not_counted(fleet: Fleet):
    await paced(fleet)
    await fleet.broker.begin(CONSUMER, "first")
    await fleet.finish(*await fleet.hold(EACH))
    first, second = [entry.entry for entry in await fleet.take()]
    await fleet.broker.begin(CONSUMER, "second")
    await fleet.sleep()
    assert await fleet.broker.ack([first], (CONSUMER, "first")) == ["ok"]
    assert (await room(fleet), await fleet.is_woken()) == (1, True)
    assert await fleet.broker.ack([second], (CONSUMER, "second")) == ["ok"]
    assert await room(fleet) == 1


async def test_updates_of_before_open_nothing_for_a_trainer_that_begins(fleet: Fleet):
    await fleet.do("HSET", fleet.key("state"), "updates", 500)
    await fleet.broker.begin(CONSUMER, "a")
    await paced(fleet)
    assert await room(fleet) == EACH


@pytest.mark.parametrize("field", ["groups_per_update", "max_staleness"])
async def test_another_bound_opens_the_books_anew(fleet: Fleet, field: str):
    await paced(fleet)
    await train(fleet)
    await fleet.configure(**{field: 3})
    bound = {"max_staleness": 0, "groups_per_update": EACH, field: 3}
    assert await room(fleet) == (bound["max_staleness"] + 1) * bound["groups_per_update"]


async def test_the_same_bound_again_keeps_the_books(fleet: Fleet):
    await paced(fleet)
    await train(fleet)
    await fleet.configure(max_staleness=0, groups_per_update=EACH)
    assert await room(fleet) == 0


async def test_what_was_never_trained_on_gives_its_place_back(fleet: Fleet):
    await paced(fleet, 1)
    dropped, dead, late, _ = await fleet.hold(2 * EACH)
    await fleet.broker.drop(dropped.token, "dull")
    await fleet.broker.release(dead.token, "reject", "too long")
    await fleet.finish(late)
    (entry,) = await fleet.take()
    await fleet.broker.recycle(entry.entry)
    assert await room(fleet) == 3


async def test_an_ack_of_a_group_that_is_gone_is_no_trained_one(fleet: Fleet):
    await paced(fleet)
    await fleet.finish(*await fleet.hold(EACH))
    first, _ = await fleet.take()
    await fleet.do("DEL", fleet.broker.keys.group(first.id))
    await fleet.sleep()
    await fleet.broker.ack([first.entry])
    assert (await room(fleet), await fleet.is_woken()) == (1, True)
    await fleet.do("DEL", fleet.broker.keys.samples(first.id, first.born))


async def test_an_ack_twice_counts_once(fleet: Fleet):
    await paced(fleet, 1)
    await fleet.finish(*await fleet.hold(1))
    (entry,) = await fleet.take()
    for _ in range(2):
        await fleet.broker.ack([entry.entry])
    assert await room(fleet) == 3


async def test_a_trainer_that_waits_in_vain_is_the_bottleneck_before_the_pace_is(fleet: Fleet):
    await fleet.configure(max_staleness=0, groups_per_update=EACH)
    await fleet.run_through("a", "b")
    await fleet.submit("c")
    assert (await fleet.claim()).reason == "completed_full"


async def test_a_full_window_behind_a_closed_pace_says_pace(fleet: Fleet):
    await fleet.configure(max_staleness=0, groups_per_update=EACH)
    await fleet.submit(*"abc")
    await fleet.hold(2)
    assert (await fleet.claim()).reason == "pace"


async def test_status_says_that_the_trainer_sets_the_pace(fleet: Fleet):
    await paced(fleet)
    await fleet.hold(EACH)
    status = await read_status(fleet.broker)
    assert status.reason is Reason.PACE
    assert "max_staleness" in status.sentence


async def test_time_behind_the_pace_is_counted(fleet: Fleet):
    await paced(fleet)
    await fleet.hold(EACH)
    await fleet.claim()
    await fleet.do("HINCRBY", fleet.key("state"), "gate_at", -1000)
    await fleet.claim()
    assert await fleet.stat("behind:pace") >= 1000


@pytest.mark.parametrize("open_it", ["update", "begin", "drop", "recycle", "configure"])
async def test_what_opens_the_pace_wakes(fleet: Fleet, open_it: str):
    await paced(fleet)
    held, done = await fleet.hold(EACH)
    await fleet.finish(done)
    (entry,) = await fleet.take()
    if open_it in ("update", "begin"):
        await fleet.finish(held)
        await fleet.broker.ack([entry.entry, *[one.entry for one in await fleet.take()]])
    assert (await fleet.claim()).reason == "pace"
    await fleet.sleep()

    match open_it:
        case "update":
            await fleet.publish()
        case "begin":
            await fleet.broker.begin(CONSUMER, "a")
        case "drop":
            await fleet.broker.drop(held.token, "dull")
        case "recycle":
            await fleet.broker.recycle(entry.entry)
        case _:
            await fleet.configure(max_staleness=1)

    assert await fleet.is_woken()
    assert (await fleet.claim(worker=WORKER)).grants


async def test_a_bound_without_the_size_of_an_update_is_refused_with_the_mend(fleet: Fleet):
    with pytest.raises(ValueError, match="max_staleness needs groups_per_update"):
        await fleet.configure(max_staleness=1)
    assert (await fleet.broker.config()).max_staleness == "off"


def test_a_bound_below_zero_is_refused():
    with pytest.raises(ValueError, match="max_staleness must be at least 0"):
        RunConfig(max_staleness=-1, groups_per_update=1)


def test_off_is_what_a_run_has_that_says_nothing():
    assert RunConfig.from_fields(RunConfig(n=4).fields()).max_staleness == "off"


@pytest.mark.parametrize(
    ("pace", "taken", "after"),
    [
        (Pace(0, 4, updates=0, trained=4), 0, (1, 4)),  # ack, then publish
        (Pace(0, 4, updates=0, trained=0), 4, (1, 0)),  # publish, then ack
        (Pace(0, 4, updates=0, trained=0), 0, (1, 4)),  # the first weights
        (Pace(0, 4, updates=3, trained=12), 1, (4, 15)),  # most of an update's groups were never taken
        (Pace(1, 4, updates=0, trained=8), 0, (1, 8)),  # the next update's groups are acked already
        (Pace(1, 4, updates=0, trained=20), 0, (1, 8)),  # more were trained on than any update answers for
    ],
)
async def test_the_books_after_an_update(fleet: Fleet, pace: Pace, taken: int, after: tuple[int, int]):
    found = pace.after_update(taken)
    assert (found.updates, found.trained) == after

    await fleet.configure(max_staleness=pace.max_staleness, groups_per_update=pace.groups_per_update)
    await fleet.do("HSET", fleet.key("state"), "updates", pace.updates, "trained", pace.trained)
    for _ in range(taken):
        await fleet.do("XADD", fleet.key("completed"), "*", "id", "done", "born", "1")
    await fleet.take()
    await fleet.publish()
    window = (await read_status(fleet.broker)).window
    assert window.pace == found
