"""The pod's slots, and how they follow what the engine says of its cache."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from tests.fakes.engine import FakeEngine, Json, said
from tests.worker.fleet import Fleet, until
from worker.adapt import REST, Adapt, Bounds
from worker.engine import EngineClient, Load
from worker.slots import Slots

CALM, FULL = Load(0.5, 0), Load(0.99, 0)


async def hold(slots: Slots, stack: AsyncExitStack, number: int) -> None:
    for _ in range(number):
        await stack.enter_async_context(slots.hold())


def adapt(slots: Slots, least: int = 1) -> Adapt:
    return Adapt(EngineClient("http://127.0.0.1:1"), slots, Bounds(least, slots.most, 0.95), 1)


async def test_fewer_slots_are_given_only_when_enough_are_back() -> None:
    slots = Slots(2)
    async with AsyncExitStack() as first, AsyncExitStack() as second, AsyncExitStack() as third:
        await hold(slots, first, 1)
        await hold(slots, second, 1)
        slots.resize(1)
        waits = asyncio.create_task(hold(slots, third, 1))
        await first.aclose()
        await asyncio.sleep(0)
        assert (slots.busy, waits.done()) == (1, False)
        await second.aclose()
        await waits
        assert slots.busy == 1


async def test_more_slots_are_given_to_who_waits_in_their_order() -> None:
    slots, got = Slots(1), list[int]()

    async def take(number: int) -> None:
        async with slots.hold():
            got.append(number)
            await over.wait()

    over = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        for number in range(3):
            tasks.create_task(take(number))
        await until(lambda: got == [0])
        slots.resize(3)
        await until(lambda: got == [0, 1, 2])
        over.set()
    assert slots.busy == 0


@pytest.mark.parametrize("is_given", [False, True])
async def test_who_leaves_while_waiting_takes_no_slot_with_it(is_given: bool) -> None:
    slots = Slots(1)
    async with AsyncExitStack() as holder, AsyncExitStack() as stack:
        await hold(slots, holder, 1)
        waits = asyncio.create_task(hold(slots, stack, 1))
        await asyncio.sleep(0)
        if is_given:
            await holder.aclose()
        waits.cancel()
        await asyncio.wait({waits})
    async with asyncio.timeout(10), slots.hold():
        assert slots.busy == 1


async def test_slots_go_down_by_a_part_and_up_one_by_one() -> None:
    slots = Slots(16)
    looks = adapt(slots)
    async with AsyncExitStack() as stack:
        await hold(slots, stack, 16)
        looks.step(FULL)
        assert slots.number == 12
        looks.step(CALM)
        assert slots.number == 13


async def test_what_ran_before_a_step_down_may_end_before_the_next() -> None:
    slots = Slots(16)
    looks = adapt(slots)
    async with AsyncExitStack() as stack:
        await hold(slots, stack, 16)
        for _ in range(REST):
            looks.step(FULL)
        assert slots.number == 12
        looks.step(FULL)
        assert slots.number == 9


async def test_slots_stay_within_their_bounds() -> None:
    slots = Slots(4)
    looks = adapt(slots, least=3)
    for _ in range(9):
        looks.step(FULL)
    assert slots.number == 3
    async with AsyncExitStack() as stack:
        await hold(slots, stack, 3)
        for _ in range(9):
            looks.step(CALM)
            await hold(slots, stack, slots.number - slots.busy)
    assert slots.number == 4


async def test_requests_that_were_thrown_out_are_a_sign_and_a_first_look_is_none() -> None:
    slots = Slots(8)
    looks = adapt(slots)
    async with AsyncExitStack() as stack:
        await hold(slots, stack, 8)
        looks.step(Load(0.5, 100))
        assert slots.number == 8
        looks.step(Load(0.5, 101))
        assert slots.number == 6


async def test_the_first_request_that_an_engine_ever_throws_out_is_seen(engine: FakeEngine) -> None:
    slots = Slots(8)
    looks = adapt(slots)
    async with EngineClient(engine.url) as client, AsyncExitStack() as stack:
        await hold(slots, stack, 8)
        looks.step(await client.load())
        assert slots.number == 8
        engine.retractions = 1
        looks.step(await client.load())
        assert slots.number == 6


async def test_the_load_of_an_engine_that_is_paused_for_new_weights_is_an_old_one(engine: FakeEngine) -> None:
    slots = Slots(16)
    engine.usage = 0.99
    async with EngineClient(engine.url) as client, AsyncExitStack() as stack:
        await hold(slots, stack, 16)
        looks = Adapt(client, slots, Bounds(1, 16, 0.95), 0.01)
        client.gate.close()
        looking = asyncio.create_task(looks.run())
        await asyncio.sleep(0.2)
        seen = slots.number
        client.gate.open()
        await until(lambda: slots.number == 12)
        looks.over.set()
        await looking
    assert seen == 16


async def test_an_engine_without_metrics_is_judged_by_its_cache_alone(engine: FakeEngine) -> None:
    engine.has_metrics, engine.usage = False, 0.97
    async with EngineClient(engine.url) as client:
        assert await client.load() == Load(0.97, None)


async def test_a_worker_tells_how_many_slots_its_engine_has_room_for(fleet: Fleet, engine: FakeEngine) -> None:
    await fleet.configure(n=8)
    release = asyncio.Event()

    async def wait(_: Json) -> Json:
        await release.wait()
        return said([1])

    engine.script = wait
    await fleet.submit("g")

    async def is_told() -> bool:
        engine.retractions += 1  # between any two looks
        return await fleet.facts('"slots":6,"most_slots":8')

    async with fleet.worker(adapt_slots=True, adapt_seconds=0.05, slots=8, least_slots=6):
        await until(lambda: engine.running == 8)
        await until(is_told)
        release.set()
        await fleet.completed(1)
