"""After every step after which a claim may succeed there is a hint in `wake`; there is never more than one."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.fakes.broker import WORKER, Fleet

OTHER = "other/1"
type Scene = Callable[[Fleet], Awaitable[Callable[[], Awaitable[object]]]]
"""Sets a stage on which no claim succeeds, and gives the step after which one does."""

OPENED_BY: dict[str, Scene] = {}


def opened_by(scene: Scene) -> Scene:
    OPENED_BY[scene.__name__] = scene
    return scene


@opened_by
async def submit(fleet: Fleet):
    return lambda: fleet.submit("a")


@opened_by
async def a_sample_in_sample_refill(fleet: Fleet):
    await fleet.configure(refill="sample")
    await fleet.submit(*"abc")
    first, second = await fleet.hold(2)
    await fleet.put(first, 0)
    return lambda: fleet.put(second, 0)


@opened_by
async def complete(fleet: Fleet):
    await fleet.submit(*"abc")
    grant, _ = await fleet.hold(2)
    await fleet.put(grant, 0, 1)
    return lambda: fleet.complete(grant)


@opened_by
async def release(fleet: Fleet):
    await fleet.submit(*"abc")
    grant, _ = await fleet.hold(2)
    return lambda: fleet.broker.release(grant.token, "fail", "engine")


@opened_by
async def reject(fleet: Fleet):
    await fleet.submit(*"abc")
    grant, _ = await fleet.hold(2)
    return lambda: fleet.broker.release(grant.token, "reject", "too long")


@opened_by
async def drop(fleet: Fleet):
    await fleet.submit(*"abc")
    grant, _ = await fleet.hold(2)
    return lambda: fleet.broker.drop(grant.token, "dull")


@opened_by
async def evict(fleet: Fleet):
    await fleet.submit(*"abc")
    await fleet.hold(2, worker=OTHER)
    return lambda: fleet.broker.evict(OTHER, counts=False)


@opened_by
async def a_sweep(fleet: Fleet):
    await fleet.submit(*"abc")
    await fleet.hold(2, worker=OTHER)
    return lambda: fleet.beat(worker=OTHER, settled=1000)


@opened_by
async def take(fleet: Fleet):
    await fleet.run_through("a", "b")
    await fleet.submit("c")
    return lambda: fleet.take(1)


@opened_by
async def an_ack_of_what_was_not_taken(fleet: Fleet):
    await fleet.run_through("a", "b")
    await fleet.submit("c")
    ((entry, _), _) = await fleet.do("XRANGE", fleet.key("completed"), "-", "+")
    return lambda: fleet.broker.ack([entry.decode()])


@opened_by
async def recycle(fleet: Fleet):
    await fleet.run_through("a")
    (entry,) = await fleet.take()
    return lambda: fleet.broker.recycle(entry.entry)


@opened_by
async def requeue(fleet: Fleet):
    await fleet.submit("a")
    (grant,) = await fleet.hold()
    await fleet.broker.release(grant.token, "reject", "bad")
    letter = (await fleet.letters())[0]["entry"].decode()
    return lambda: fleet.broker.requeue_dead([letter])


@opened_by
async def resume(fleet: Fleet):
    await fleet.broker.pause()
    await fleet.submit("a")
    return lambda: fleet.broker.resume()


@opened_by
async def a_larger_window(fleet: Fleet):
    await fleet.submit(*"abc")
    await fleet.hold(2)
    return lambda: fleet.configure(sample_concurrency=6)


@opened_by
async def new_capacity(fleet: Fleet):
    await fleet.configure(sample_concurrency="auto")
    await fleet.submit("a")
    return lambda: fleet.beat(worker=OTHER, slots=2)


@opened_by
async def more_capacity_of_the_same_worker(fleet: Fleet):
    await fleet.configure(sample_concurrency="auto")
    await fleet.beat(worker=OTHER, slots=2)
    await fleet.submit("a", "b")
    await fleet.hold()
    return lambda: fleet.beat(worker=OTHER, slots=4)


@opened_by
async def undrain(fleet: Fleet):
    await fleet.broker.drain([WORKER])
    await fleet.submit("a")
    return lambda: fleet.broker.undrain([WORKER])


@opened_by
async def adopting_what_a_deleted_consumer_held(fleet: Fleet):
    await fleet.run_through("a", "b")
    await fleet.take(1, "rank-1")
    await fleet.do("XGROUP", "DELCONSUMER", fleet.key("completed"), "trainer", "rank-1")
    await fleet.submit("c")
    return lambda: fleet.broker.adopt("rank-0")


async def check_that_it_wakes(fleet: Fleet, scene: str) -> None:
    step = await OPENED_BY[scene](fleet)
    assert (await fleet.claim()).grants == (), "the stage is open already"
    await fleet.sleep()
    await step()
    assert await fleet.is_woken()
    await fleet.hold()


@pytest.mark.parametrize("scene", OPENED_BY)
async def test_a_step_after_which_a_claim_succeeds_wakes(fleet: Fleet, scene: str):
    await check_that_it_wakes(fleet, scene)


async def test_a_reap_that_took_a_lease_away_wakes(fleet: Fleet):
    await fleet.submit(*"abc")
    await fleet.expire((await fleet.hold(2))[0])
    await fleet.sleep()
    await fleet.broker.reap()
    assert await fleet.is_woken()


# Claims pass the hint on


async def test_a_claim_that_leaves_room_wakes_the_next(fleet: Fleet):
    await fleet.submit("a", "b")
    await fleet.sleep()
    await fleet.hold()
    assert await fleet.is_woken()


async def test_a_claim_that_takes_the_last_place_or_the_last_group_wakes_nobody(fleet: Fleet):
    await fleet.submit(*"abc")
    await fleet.sleep()
    await fleet.hold(2)
    assert not await fleet.is_woken()
    await fleet.configure(sample_concurrency=10)
    await fleet.sleep()
    assert len((await fleet.claim(5)).grants) == 1
    assert not await fleet.is_woken()


async def test_a_worker_that_may_not_claim_hands_the_hint_on(fleet: Fleet):
    await fleet.submit("a")
    await fleet.broker.drain([WORKER])
    await fleet.broker.evict(OTHER, counts=False)
    await fleet.sleep()
    assert (await fleet.claim()).reason == "draining"
    assert await fleet.is_woken()
    await fleet.sleep()
    assert (await fleet.claim(worker=OTHER)).reason == "gone"
    assert await fleet.is_woken()


async def test_a_worker_whose_own_places_are_full_hands_the_hint_on(fleet: Fleet):
    await fleet.submit("a")
    await fleet.sleep()
    assert (await fleet.claim(0)).reason == "busy"
    assert await fleet.is_woken()


async def test_a_claim_that_gave_up_passing_over_entries_wakes(fleet: Fleet):
    await fleet.push(*[f"@nobody{number}" for number in range(70)])
    await fleet.sleep()
    assert (await fleet.claim()).reason == "again"
    assert await fleet.is_woken()


async def test_a_claim_that_reaped_for_others_wakes_them(fleet: Fleet):
    await fleet.submit(*"abcd")
    await fleet.expire(*await fleet.hold(2))
    await fleet.sleep()
    await fleet.hold(1)
    assert await fleet.is_woken()


async def test_nothing_wakes_where_nothing_changed(fleet: Fleet):
    await fleet.submit("a")
    (grant,) = await fleet.hold()
    await fleet.beat(grant.token, slots=4)
    await fleet.sleep()
    await fleet.broker.reap()
    await fleet.beat(grant.token, slots=4)
    await fleet.broker.release("pod/1/1/0", "fail")
    await fleet.broker.drop("pod/1/1/0", "dull")
    await fleet.take()
    await fleet.broker.ack(["1-1"])
    assert not await fleet.is_woken()


async def test_a_take_that_opens_nothing_wakes_nobody(fleet: Fleet):
    await fleet.run_through("a")
    await fleet.submit(*"bcd")
    await fleet.hold(2)
    await fleet.sleep()
    assert len(await fleet.take()) == 1
    assert not await fleet.is_woken()


async def test_a_sample_in_group_refill_wakes_nobody(fleet: Fleet):
    await fleet.submit("a", "b")
    (grant,) = await fleet.hold()
    await fleet.sleep()
    await fleet.put(grant, 0)
    assert not await fleet.is_woken()


async def test_a_hundred_steps_leave_one_hint(fleet: Fleet):
    for number in range(100):
        await fleet.submit(f"g{number}")
    assert await fleet.do("LLEN", fleet.key("wake")) == 1


async def test_one_of_many_blocked_workers_wakes_and_they_chain_until_all_places_are_taken(real_fleet: Fleet):
    await real_fleet.configure(sample_concurrency=10)
    names = [f"pod{number}/1" for number in range(20)]

    async def wait_and_claim(worker: str) -> str:
        while True:
            await real_fleet.do("BLPOP", real_fleet.key("wake"), 2)
            claim = await real_fleet.claim(worker=worker)
            if claim.grants:
                return claim.grants[0].id

    await real_fleet.sleep()
    waiters = [asyncio.create_task(wait_and_claim(worker)) for worker in names]
    await real_fleet.submit(*[f"g{number}" for number in range(5)])
    done, waiting = await asyncio.wait(waiters, return_when=asyncio.FIRST_COMPLETED)
    while len(done) < 5:
        more, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        done |= more
    for waiter in waiting:
        waiter.cancel()
    await asyncio.wait(waiting)
    assert {waiter.result() for waiter in done} == {f"g{number}" for number in range(5)}
    await real_fleet.finish_all()
