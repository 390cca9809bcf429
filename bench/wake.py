"""From a freed place to the next claim, with 300 workers that wait; and what their waiting costs."""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from collections import deque
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from bench.fleet import PAYLOAD, Consumer, Size, in_background
from bench.place import Place
from bench.rows import Row, Table, at_most
from bench.trial import configure, submit
from rolloutfleet.broker import Broker, Finished
from rolloutfleet.messages import Grant
from rolloutfleet.redis import BLOCK_SECONDS, Client
from rolloutfleet.window import Refill

WAITERS = 300
WINDOW = 32  # groups
N = 8
ENDS_PER_SECOND = 20  # groups that end


@dataclass(slots=True)
class Hall:
    """The workers that wait, and what the claims found."""

    broker: Broker
    held: deque[Grant] = field(default_factory=deque[Grant])
    granted_at: deque[float] = field(default_factory=deque[float])
    claims: int = 0

    async def worker(self, name: str, blocking: Client) -> None:
        """Waits as worker/ does: on the hint, 4 s at most, then claims. What it is granted it hands to the hall."""
        serial = 0
        wake = self.broker.keys.named("wake")
        while True:
            serial += 1
            self.claims += 1
            claim = await self.broker.claim(name, f"{name}/{serial}", 1)
            for grant in claim.grants:
                self.granted_at.append(time.monotonic())
                self.held.append(grant)
            if not claim.grants:
                await blocking.blpop([wake], BLOCK_SECONDS)


async def measure(place: Place) -> Table:
    rows = [*await _wait(place, "group"), *await _wait(place, "sample")]
    facts = (
        f"{WAITERS} waiters on one event loop, window of {WINDOW} groups, {ENDS_PER_SECOND} groups of {N} end per "
        "second, each of their samples put by itself",
        "from the call that frees the place (complete, or in sample refill the group's last put) to the granted answer",
        "claims per idle waiter: all that were not granted; 0.25 of them is the poll after 4 s without a hint",
    )
    return Table("wake", rows, facts)


async def _wait(place: Place, refill: Refill) -> Sequence[Row]:
    async with AsyncExitStack() as stack:
        broker = await stack.enter_async_context(place.broker(connections=400))
        hall = Hall(broker)
        await configure(broker, Size(WINDOW * N, N, refill), 1)
        spans = place.pick(15.0, 2.5)
        await submit(broker, WINDOW + round(2 * spans * ENDS_PER_SECOND))
        blocking = [await stack.enter_async_context(place.blocking()) for _ in range(WAITERS)]
        reader = await stack.enter_async_context(place.blocking())
        work = [hall.worker(f"pod-{number}/1", client) for number, client in enumerate(blocking)]
        async with in_background(Consumer(broker, reader).run(), *work):
            await asyncio.sleep(2.0)  # the window is full, and all others have claimed in vain once
            assert len(hall.held) == WINDOW, f"{len(hall.held)} groups are held"
            return await _free_places(hall, refill, spans)


async def _free_places(hall: Hall, refill: Refill, span: float) -> Sequence[Row]:
    lags: list[float] = []
    hall.granted_at.clear()
    start, claims = time.monotonic(), hall.claims
    for number in range(round(span * ENDS_PER_SECOND)):
        lags.append(await _end_one(hall, refill))
        await asyncio.sleep(start + (number + random.random()) / ENDS_PER_SECOND - time.monotonic())
    idle = (hall.claims - claims - len(lags)) / (time.monotonic() - start) / WAITERS
    milliseconds = sorted(1000 * lag for lag in lags)
    return [
        Row(f"refill {refill}: freed place to next claim, p50", statistics.median(milliseconds), "ms", at_most(5)),
        Row("    p99", milliseconds[int(0.99 * len(milliseconds))], "ms"),
        Row("    claims per second per idle waiter", idle, "/s", at_most(0.5)),
    ]


async def _end_one(hall: Hall, refill: Refill) -> float:
    """Ends the group that is held longest; seconds from the call that freed its place to the next grant."""
    grant = hall.held.popleft()
    for index in range(grant.n - 1):
        await hall.broker.put([Finished(grant.id, grant.born, index, PAYLOAD)])
        await asyncio.sleep(0.4 / ENDS_PER_SECOND / N)
    last = [Finished(grant.id, grant.born, grant.n - 1, PAYLOAD)]
    if refill == "group":
        await hall.broker.put(last)
    began = time.monotonic()
    if refill == "sample":
        await hall.broker.put(last)
    await hall.broker.complete(grant, {"rewards": "[1,1,1,1,1,1,1,1]", "worker": "bench"})
    while not hall.granted_at:
        await asyncio.sleep(0.0005)
        assert time.monotonic() - began < 10, "nobody claims the freed place"
    return hall.granted_at.popleft() - began
