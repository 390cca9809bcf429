"""Puts finished samples into the broker, and the first tokens of unfinished ones, many in one round trip.

Invariants: while a put is under way, what finishes meanwhile gathers, and goes together in the next one; a caller gets
the broker's word for its own sample; a broker that is away loses nothing: the same samples are sent until answered.
"""

import asyncio
import logging
from collections import deque

from redis.exceptions import RedisError

from rolloutfleet.broker import Begun, Broker, Finished, Put
from rolloutfleet.errors import BrokerUnavailable
from rolloutfleet.metrics import WorkerMetrics

log = logging.getLogger("worker.store")

_MOST_SAMPLES = 256
_MOST_BYTES = 16 * 2**20

type Waiting = tuple[Finished, asyncio.Future[Put]]


class SampleStore:
    """`run` sends what `put` hands over, until `close`."""

    def __init__(self, broker: Broker, metrics: WorkerMetrics) -> None:
        self._broker = broker
        self._metrics = metrics
        self._queue: deque[Waiting] = deque()
        self._begun: dict[tuple[str, int], Begun] = {}
        self._news = asyncio.Event()
        self._closed = False

    async def put(self, sample: Finished) -> Put:
        """A caller that goes away loses nothing. Errors: redis.RedisError, where the broker never takes this sample."""
        answered: asyncio.Future[Put] = asyncio.get_running_loop().create_future()
        self._queue.append((sample, answered))
        self._news.set()
        return await answered

    def keep(self, begun: Begun) -> None:
        """Sends what an unfinished sample has so far; only the newest of each is sent, and none is waited for."""
        self._begun[begun.token, begun.index] = begun
        self._news.set()

    def close(self) -> None:
        """`run` ends when what is queued is sent, or when the broker is away."""
        self._closed = True
        self._news.set()

    async def run(self) -> None:
        while not (self._closed and not self._queue):
            if self._queue:
                await self._send(self._next_batch())
            elif self._begun:
                await self._send_begun()
            else:
                self._news.clear()
                await self._news.wait()

    def _next_batch(self) -> list[Waiting]:
        batch: list[Waiting] = []
        size = 0
        while self._queue and len(batch) < _MOST_SAMPLES and (size < _MOST_BYTES or not batch):
            batch.append(self._queue.popleft())
            size += len(batch[-1][0].data)
        return batch

    async def _send(self, batch: list[Waiting]) -> None:
        try:
            words = await self._broker.put([sample for sample, _ in batch])
        except BrokerUnavailable as error:
            log.warning("%d finished samples wait for the broker: %s", len(batch), error)
            if not self._closed:
                self._queue.extendleft(reversed(batch))
            return
        except RedisError as error:
            await self._find_refused(batch, error)
            return
        self._metrics.put_batch.observe(len(batch))
        for (_, answered), word in zip(batch, words, strict=True):
            if not answered.done():
                answered.set_result(word)

    async def _send_begun(self) -> None:
        batch: list[Begun] = []
        size = 0
        while self._begun and len(batch) < _MOST_SAMPLES and size < _MOST_BYTES:
            batch.append(self._begun.pop(next(iter(self._begun))))
            size += len(batch[-1].data)
        try:
            await self._broker.keep(batch)
        except (BrokerUnavailable, RedisError) as error:
            log.warning("the first tokens of %d samples are not stored: %s", len(batch), error)

    async def _find_refused(self, batch: list[Waiting], error: RedisError) -> None:
        """Sends each alone: the one that is refused must not take its neighbours with it."""
        if len(batch) > 1:
            for one in batch:
                await self._send([one])
            return
        ((sample, answered),) = batch
        log.error("the broker refuses sample %d of %s: %s", sample.index, sample.id, error)
        if not answered.done():
            answered.set_exception(error)
