"""Gives groups back that are hopeless: finished now, they would be older than max_staleness already.

Invariants: the broker decides, by what is published at that moment; a group whose versions are not known is finished,
and so is one that was recycled too often. Only where the run's config says so (cancel_stale).
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager

from rolloutfleet.broker import Broker
from rolloutfleet.errors import BrokerUnavailable
from worker.group import GroupWork
from worker.waits import within
from worker.worker import Now

log = logging.getLogger("worker.stale")

LOOK_SECONDS = 1.0


class Hopeless:
    """The loop of one worker over what it holds."""

    def __init__(self, broker: Broker, held: Mapping[str, GroupWork], now: Now) -> None:
        self.over = asyncio.Event()
        self._broker = broker
        self._held = held
        self._now = now

    async def run(self) -> None:
        while not await within(self.over, LOOK_SECONDS):
            try:
                await self.look()
            except BrokerUnavailable as error:
                log.warning("%s", error)

    async def look(self) -> None:
        """Asks for each group that looks hopeless, and ends the work on those that the broker took back."""
        config = self._now.config
        if not config.cancel_stale or config.max_staleness == "off" or not self._held:
            return
        (published,) = await self._broker.calls.read([["HGET", self._broker.keys.named("policy"), "version"]])
        if published is None:
            return
        for token, work in list(self._held.items()):
            oldest = work.oldest
            if oldest is None or work.unmade == 0 or int(published) - oldest <= config.max_staleness:
                continue  # one that only waits for its rewards costs nothing any more
            word = await self._broker.cancel(token, oldest)
            if word == "ok":
                log.info("cancelled id=%s oldest=%d published=%d", work.grant.id, oldest, int(published))
                work.stop("cancelled")
            elif word == "lost":  # also where the answer to the first call was
                work.stop("lost")


@asynccontextmanager
async def cancelling(broker: Broker, held: Mapping[str, GroupWork], now: Now) -> AsyncGenerator[None]:
    """Looks, as long as the block lasts."""
    hopeless = Hopeless(broker, held, now)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(hopeless.run())
        try:
            yield
        finally:
            hopeless.over.set()
