"""A fleet in one process: real claims on a real broker, engines that only let time pass.

A worker claims, puts and completes as worker/ does: it claims what worker/ would have room for, waits on `wake` where
the window is closed, gathers finished samples while a put is under way, and completes a group once all its samples are
answered.
Every sample takes its length times `seconds_per_token`, whatever else runs (constant decode speed).
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from rolloutfleet.broker import Broker, Finished, Put
from rolloutfleet.messages import Grant, Row, Sample
from rolloutfleet.redis import BLOCK_SECONDS, Client
from rolloutfleet.settings import RunConfig
from rolloutfleet.window import Refill
from worker.slots import room

type Auto = Literal["auto"]
type Lengths = Callable[[str], Sequence[float]]  # seconds of each sample of a group


@dataclass(frozen=True, slots=True)
class Size:
    """One worker: its sample slots, samples of a group, and by how much the window exceeds the slots (permille).

    auto: the run has no settings but n and refill, and its window follows the workers' slots.
    """

    slots: int
    n: int
    refill: Refill
    overcommit: int | Auto = 1000

    def config(self, engines: int) -> RunConfig:
        samples = "auto" if self.overcommit == "auto" else engines * self.slots
        return RunConfig(sample_concurrency=samples, n=self.n, refill=self.refill, overcommit=self.overcommit)


class Meter:
    """Slots that are busy, integrated over time; how late the loop wakes sleepers; what was completed when."""

    def __init__(self) -> None:
        self.busy = 0
        self.completed: list[tuple[float, str]] = []
        self.late: list[float] = []
        self._area = 0.0
        self._since = time.monotonic()

    def add(self, change: int) -> None:
        self._area = self.area()
        self._since = time.monotonic()
        self.busy += change

    def area(self) -> float:
        """Busy slot seconds until now."""
        return self._area + self.busy * (time.monotonic() - self._since)


class Puts:
    """Stores samples, many in one round trip: what finishes while a put is under way goes with the next one."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._queue: deque[tuple[Finished, asyncio.Future[Put]]] = deque()
        self._news = asyncio.Event()

    async def put(self, sample: Finished) -> Put:
        answered: asyncio.Future[Put] = asyncio.get_running_loop().create_future()
        self._queue.append((sample, answered))
        self._news.set()
        return await answered

    async def run(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            while self._queue:
                batch = [self._queue.popleft() for _ in range(min(256, len(self._queue)))]
                words = await self._broker.put([sample for sample, _ in batch])
                for (_, answered), word in zip(batch, words, strict=True):
                    answered.set_result(word)


@dataclass(slots=True)
class Counts:
    claims: int = 0
    granted: int = 0


@dataclass(slots=True)
class Worker:
    """One worker process, as a coroutine. `run` goes on until it is cancelled."""

    name: str
    broker: Broker
    blocking: Client
    size: Size
    lengths: Lengths
    meter: Meter
    payload: bytes = b""
    counts: Counts = field(default_factory=Counts)
    _groups: int = 0
    _samples: int = 0

    async def run(self) -> None:
        slots, puts = asyncio.Semaphore(self.size.slots), Puts(self.broker)
        changed, config = asyncio.Event(), self.size.config(1)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(puts.run())
            while True:
                changed.clear()
                k = room(self.size.slots, self._samples, self._groups, config)
                if not k:
                    await changed.wait()
                    continue
                grants = await self._claim(k)
                for grant in grants:
                    self._groups += 1
                    self._samples += len(grant.missing)
                    tasks.create_task(self._generate(grant, slots, puts, changed))
                if not grants:
                    await self.blocking.blpop([self.broker.keys.named("wake")], BLOCK_SECONDS)

    async def _claim(self, k: int) -> Sequence[Grant]:
        self.counts.claims += 1
        claim = await self.broker.claim(self.name, f"{self.name}/{self.counts.claims}", k)
        self.counts.granted += len(claim.grants)
        return claim.grants

    async def _generate(self, grant: Grant, slots: asyncio.Semaphore, puts: Puts, changed: asyncio.Event) -> None:
        seconds = self.lengths(grant.id)
        async with asyncio.TaskGroup() as tasks:
            for index in grant.missing:
                tasks.create_task(self._sample(grant, index, seconds[index], slots, puts, changed))
        rewards = "[" + ",".join(["1"] * grant.n) + "]"
        word = await self.broker.complete(grant, {"rewards": rewards, "worker": self.name})
        assert word == "ok", word
        self.meter.completed.append((time.monotonic(), grant.id))
        self._groups -= 1
        changed.set()

    async def _sample(
        self, grant: Grant, index: int, seconds: float, slots: asyncio.Semaphore, puts: Puts, changed: asyncio.Event
    ) -> None:
        async with slots:
            self.meter.add(1)
            start = time.monotonic()
            await asyncio.sleep(seconds)
            self.meter.late.append(time.monotonic() - start - seconds)
            self.meter.add(-1)
        self._samples -= 1
        changed.set()
        await puts.put(Finished(grant.id, grant.born, index, self.payload or PAYLOAD))


class Consumer:
    """A trainer that is never the limit: takes and acks what is there."""

    def __init__(self, broker: Broker, blocking: Client) -> None:
        self.broker = broker
        self.blocking = blocking
        self.acked = 0

    async def run(self, groups: int | None = None, most: int = 64) -> None:
        """Until so many groups were acked, or until it is cancelled."""
        key = self.broker.keys.named("completed")
        while groups is None or self.acked < groups:
            last, entries = await self.broker.take("trainer", most)
            if entries:
                await self.broker.ack([entry.entry for entry in entries])
                self.acked += len(entries)
            else:
                await self.blocking.xread({key: last}, count=1, block=BLOCK_SECONDS * 1000)


@asynccontextmanager
async def in_background(*work: Coroutine[Any, Any, None]) -> AsyncGenerator[None]:
    """Runs these beside the block, and ends them after it. One that failed fails the block."""
    running = [asyncio.create_task(each) for each in work]
    try:
        yield
        for task in running:
            if task.done():
                task.result()
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


def sample_of(size_bytes: int) -> bytes:
    """An encoded sample of about so many bytes (9 a token)."""
    tokens = max(1, (size_bytes - 120) // 9)
    row = Row.make(np.arange(tokens).tolist(), np.full(tokens, -0.5).tolist())
    return Sample(0, "stop", (row,)).encode()


PAYLOAD = sample_of(128)
