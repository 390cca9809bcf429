"""A group that became hopeless while it runs is given back, newly born, where the run wants that."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from tests.fakes.engine import FakeEngine, said
from tests.worker.fleet import Fleet, until


async def publish(fleet: Fleet, version: int) -> None:
    """A trainer that updates the engines itself has published."""
    await fleet.broker.calls.read([["HSET", fleet.broker.keys.named("policy"), "version", version, "mode", "external"]])


def waits(engine: FakeEngine, go: asyncio.Event, first: int) -> Callable[[Any], Coroutine[Any, Any, Any]]:
    """Answers of the version that the engine has when it is asked; the `first` requests wait."""

    async def answer(_: Any) -> Any:
        version, number = engine.weight_version, len(engine.requests)
        if number <= first:
            await go.wait()
        return said([1, 2, 3], version=version)

    return answer


async def test_a_hopeless_group_is_cancelled_and_made_by_the_new_weights(fleet: Fleet, engine: FakeEngine) -> None:
    await fleet.configure(n=1, max_staleness=1, stale="recycle", cancel_stale=True)
    go = asyncio.Event()
    engine.script = waits(engine, go, first=1)
    await fleet.submit("g")
    async with fleet.worker():
        await until(lambda: engine.requests)
        engine.weight_version = "9"
        await publish(fleet, 9)
        (entry,) = await fleet.completed(1)
        go.set()
    assert entry.fields["versions"] == b"[9, 9]"
    assert int(entry.fields["recycled"]) >= 1
    assert await fleet.stat("cancelled") >= 1


async def test_a_group_within_its_bound_is_finished(fleet: Fleet, engine: FakeEngine) -> None:
    await fleet.configure(n=1, max_staleness=1, stale="recycle", cancel_stale=True)
    go = asyncio.Event()
    engine.script = waits(engine, go, first=2)
    async with fleet.worker():
        await fleet.submit("old")
        await until(lambda: len(engine.requests) == 1)
        engine.weight_version = "8"
        await until(lambda: fleet.facts('"weight_version":"8"'))
        await fleet.submit("young")
        await until(lambda: len(engine.requests) == 2)
        await publish(fleet, 9)
        await until(lambda: fleet.stat("cancelled"))  # one look is over both
        go.set()
        recycled = {entry.id: int(entry.fields["recycled"]) for entry in await fleet.completed(2)}
    assert recycled["young"] == 0
    assert recycled["old"] >= 1
