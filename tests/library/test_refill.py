"""The window over many claims: sample refill, over-commit, groups of different n, automatic capacity, changes."""

import pytest

from rolloutfleet.status import read_status
from tests.fakes.broker import Fleet


async def test_in_group_refill_finished_samples_free_no_place(fleet: Fleet):
    await fleet.submit(*"abc")
    first, second = await fleet.hold(2)
    await fleet.put(first, 0, 1)
    await fleet.put(second, 0, 1)
    assert (await fleet.claim()).reason == "active_full"


async def test_in_sample_refill_a_place_is_free_when_n_samples_are_done_whichever_groups_they_are_of(fleet: Fleet):
    await fleet.configure(sample_concurrency=8, n=4, refill="sample")
    await fleet.submit(*"abc")
    first, second = await fleet.hold(2)
    await fleet.put(first, 0, 1)
    await fleet.put(second, 0)
    assert (await fleet.claim()).reason == "active_full"
    await fleet.put(second, 1)
    await fleet.hold()


async def test_a_started_place_is_not_free(fleet: Fleet):
    """5 of 8 samples outstanding are 2 places of 4, rounded up."""
    await fleet.configure(sample_concurrency=8, n=4, refill="sample")
    await fleet.submit(*"ab")
    await fleet.submit("small", n=1)
    first, second = await fleet.hold(2)
    await fleet.put(first, 0, 1, 2)
    assert (await fleet.claim()).reason == "active_full"
    await fleet.put(second, 0)
    await fleet.hold()


async def test_a_big_group_waits_for_its_room(fleet: Fleet):
    await fleet.configure(sample_concurrency=8, n=4, refill="sample")
    await fleet.submit("small", n=2)
    await fleet.submit("big", n=7)
    (small,) = (await fleet.claim(2)).grants
    assert (await fleet.claim()).reason == "active_full"
    await fleet.put(small, 0)
    assert [grant.id for grant in (await fleet.claim()).grants] == ["big"]
    assert await fleet.outstanding() == 8


async def test_a_group_larger_than_the_window_runs_alone(fleet: Fleet):
    await fleet.configure(sample_concurrency=8, n=4, refill="sample")
    await fleet.submit("huge", n=30)
    await fleet.submit("small", n=1)
    assert [grant.id for grant in (await fleet.claim(2)).grants] == ["huge"]
    assert (await fleet.claim()).reason == "active_full"


async def test_a_big_group_in_front_is_not_overtaken(fleet: Fleet):
    await fleet.configure(sample_concurrency=8, n=4, refill="sample")
    await fleet.submit("first", n=3)
    await fleet.submit("big", n=7)
    await fleet.submit("small", n=1)
    await fleet.hold()
    assert (await fleet.claim()).reason == "active_full"


async def test_open_groups_are_capped_though_their_samples_are_done(fleet: Fleet):
    await fleet.configure(sample_concurrency=16, n=8, refill="sample", open_cap=1)
    await fleet.submit(*"abc")
    for _ in range(2):
        (grant,) = await fleet.hold()
        await fleet.put(grant, *range(8))
    assert (await fleet.claim()).reason == "active_full"
    await fleet.configure(open_cap=2)
    await fleet.hold()


async def test_a_group_with_stored_samples_takes_only_the_room_that_it_needs(fleet: Fleet):
    await fleet.configure(sample_concurrency=8, n=4, refill="sample")
    await fleet.submit("a", n=8)
    (grant,) = await fleet.hold()
    await fleet.put(grant, *range(6))
    await fleet.broker.release(grant.token, "free")
    await fleet.submit("b", n=6)
    assert len((await fleet.claim(2)).grants) == 2
    assert await fleet.outstanding() == 8


async def test_group_refill_counts_groups_of_any_n_as_one(fleet: Fleet):
    await fleet.submit("big", n=100)
    await fleet.submit("small", n=1)
    assert len((await fleet.claim(2)).grants) == 2


@pytest.mark.parametrize(("overcommit", "size"), [(1000, 2), (1001, 3), (1500, 3), (2000, 4), (500, 1), (1, 1)])
async def test_over_commit_scales_the_window_and_rounds_up(fleet: Fleet, overcommit: int, size: int):
    await fleet.configure(overcommit=overcommit)
    await fleet.submit(*"abcdef")
    assert len((await fleet.claim(6)).grants) == size


@pytest.mark.parametrize("refill", ["sample", "group"])
async def test_automatic_over_commit_is_a_quarter_where_the_slots_and_finished_samples_decide(
    fleet: Fleet, refill: str
):
    await fleet.configure(sample_concurrency="auto", n=4, refill=refill, overcommit="auto")
    await fleet.beat(slots=16)
    await fleet.submit(*"abcdef")
    size = 5 if refill == "sample" else 4
    assert len((await fleet.claim(6)).grants) == size
    assert (await read_status(fleet.broker)).window.size == size


async def test_automatic_over_commit_keeps_to_a_number_that_somebody_set(fleet: Fleet):
    await fleet.configure(sample_concurrency=16, n=4, refill="sample", overcommit="auto")
    await fleet.submit(*"abcdef")
    assert len((await fleet.claim(6)).grants) == 4
    assert (await read_status(fleet.broker)).window.size == 4


async def test_a_window_is_rounded_up(fleet: Fleet):
    await fleet.configure(sample_concurrency=3)
    await fleet.submit(*"abc")
    assert len((await fleet.claim(3)).grants) == 2


async def test_an_automatic_window_follows_the_workers_slots(fleet: Fleet):
    await fleet.configure(sample_concurrency="auto")
    await fleet.submit(*"abcdef")
    await fleet.beat(worker="one/1", slots=3)
    assert len((await fleet.claim(6)).grants) == 2
    await fleet.beat(worker="two/1", slots=3)
    assert len((await fleet.claim(6)).grants) == 1
    await fleet.broker.evict("two/1", counts=True)
    assert (await fleet.claim()).reason == "active_full"


async def test_a_smaller_window_takes_nothing_away_and_grants_nothing_until_it_is_kept(fleet: Fleet):
    await fleet.configure(sample_concurrency=8)
    await fleet.submit(*"abcdef")
    grants = await fleet.hold(4)
    await fleet.configure(sample_concurrency=2)
    assert (await fleet.beat(*[grant.token for grant in grants])) == ("ok", [])
    await fleet.finish(*grants[:3])
    await fleet.take_and_ack()
    assert (await fleet.claim()).reason == "active_full"
    await fleet.finish(grants[3])
    await fleet.take_and_ack()
    await fleet.hold()


async def test_a_larger_n_makes_the_window_smaller_and_leaves_stored_groups_alone(fleet: Fleet):
    await fleet.submit(*"ab")
    await fleet.configure(n=4)
    await fleet.submit("c")
    (grant,) = (await fleet.claim(3)).grants
    assert grant.n == 2
    assert (await fleet.claim()).reason == "active_full"


async def test_another_refill_goes_by_what_is_held_already(fleet: Fleet):
    await fleet.submit(*"abc")
    first, second = await fleet.hold(2)
    await fleet.put(first, 0)
    await fleet.put(second, 0)
    await fleet.configure(refill="sample")
    assert len((await fleet.claim(2)).grants) == 1
    await fleet.configure(refill="group")
    assert (await fleet.claim()).reason == "active_full"


async def test_what_was_claimed_is_in_line_no_more(fleet: Fleet):
    await fleet.configure(sample_concurrency=2)
    await fleet.submit("a")
    await fleet.broker.release((await fleet.hold())[0].token, "free")
    assert await fleet.broker.queued() == 1
    await fleet.hold()
    assert await fleet.waits("again") == []
