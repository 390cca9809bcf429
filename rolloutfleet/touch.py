"""Touching what a trainer holds, from a thread: a step that blocks the event loop loses nothing to another rank."""

import asyncio
import logging
import threading
from collections.abc import Sequence

from rolloutfleet.broker import Broker
from rolloutfleet.errors import BrokerUnavailable
from rolloutfleet.redis import connect

log = logging.getLogger(__name__)


class Toucher:
    """Touches the held entries each `every` seconds. `hold` may be called from any thread."""

    def __init__(self, url: str, run: str, consumer: str, every: float) -> None:
        self._url, self._run, self._consumer, self._every = url, run, consumer, every
        self._held: Sequence[str] = ()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._main, name="touch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5)

    def hold(self, entries: Sequence[str]) -> None:
        self._held = entries

    def _main(self) -> None:
        asyncio.run(self.run())

    async def run(self) -> None:
        client = connect(self._url, connections=1)
        broker = Broker(client, self._run, retry_seconds=self._every)
        try:
            while not await asyncio.to_thread(self._ended.wait, self._every):
                await self._touch(broker)
        finally:
            await client.aclose()

    async def _touch(self, broker: Broker) -> None:
        try:
            lost = await broker.touch(self._consumer, self._held)
        except BrokerUnavailable as error:
            log.warning("could not touch %d entries: %s", len(self._held), error)
            return
        if lost:
            log.warning(
                "%d entries were taken over by another consumer (%s was away too long)", len(lost), self._consumer
            )
