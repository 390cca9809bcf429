"""One fleet of 8 engines x 32 slots on one run, at work for a time or until all is done."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from bench.fleet import Consumer, Meter, Size, Worker, in_background
from bench.mixtures import Mixture
from bench.place import Place
from rolloutfleet.broker import Beat, Broker
from rolloutfleet.messages import PromptGroup

ENGINES = 8
SLOTS = 32
N = 8


@dataclass(frozen=True, slots=True)
class Trial:
    """What the fleet works on. `scale`: seconds that a sample of mean length takes."""

    place: Place
    mixture: Mixture
    size: Size
    scale: float

    def seconds(self, group_id: str) -> Sequence[float]:
        return [length * self.scale for length in self.mixture.lengths(group_id, self.size.n)]

    @asynccontextmanager
    async def fleet(self, groups: int) -> AsyncGenerator[tuple[Broker, Meter]]:
        """A fleet that has begun to work on so many groups; stopped, wherever it is, at the end."""
        meter = Meter()
        async with AsyncExitStack() as stack:
            broker = await stack.enter_async_context(self.place.broker(connections=256))
            blocking = [await stack.enter_async_context(self.place.blocking()) for _ in range(ENGINES + 1)]
            await configure(broker, self.size, ENGINES)
            for group_id in range(groups):
                self.mixture.lengths(str(group_id), self.size.n)  # drawn beforehand: it costs time
            await submit(broker, groups)
            workers = [
                Worker(f"engine-{number}/1", broker, client, self.size, self.seconds, meter)
                for number, client in enumerate(blocking[:ENGINES])
            ]
            consumer = Consumer(broker, blocking[-1])
            async with in_background(consumer.run(), *(worker.run() for worker in workers)):
                yield broker, meter


async def configure(broker: Broker, size: Size, engines: int) -> None:
    await broker.configure(size.config(engines))
    for number in range(engines):  # for a window that follows the slots
        await broker.heartbeat(Beat(f"engine-{number}/1", (), size.slots, {}))


async def submit(broker: Broker, groups: int, prompt: str = "?") -> None:
    await broker.submit([PromptGroup(id=str(number), prompt=prompt) for number in range(groups)])


async def until_completed(meter: Meter, groups: int, limit: float) -> float:
    """When the last of so many groups was completed (monotonic seconds)."""
    end = time.monotonic() + limit
    while len(meter.completed) < groups:
        if time.monotonic() > end:
            raise TimeoutError(f"{len(meter.completed)} of {groups} groups in {limit} seconds")
        await asyncio.sleep(0.02)
    return max(at for at, _ in meter.completed)
