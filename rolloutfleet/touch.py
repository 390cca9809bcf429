"""Touching what a trainer holds, from a thread: a step that blocks the event loop loses nothing to another rank."""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Sequence

from rolloutfleet.broker import Broker
from rolloutfleet.errors import BrokerUnavailable
from rolloutfleet.redis import connect

log = logging.getLogger(__name__)


class Toucher:
    """Touches the held entries each `every` seconds. All but `run` may be called from any thread."""

    def __init__(self, url: str, run: str, consumer: str, every: float) -> None:
        self._url, self._run, self._consumer, self._every = url, run, consumer, every
        self._held: Sequence[str] = ()
        self._lost: deque[str] = deque()
        self._reachable_since: float | None = None
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

    def lost(self) -> list[str]:
        """Entries that turned out to be another consumer's, each told once."""
        return [self._lost.popleft() for _ in range(len(self._lost))]

    @property
    def reachable_seconds(self) -> float:
        """For how long the broker has answered each touch."""
        since = self._reachable_since
        return 0 if since is None else time.monotonic() - since

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
        held = self._held
        try:
            # Also with nothing held: it tells whether the broker is there.
            lost = await broker.touch(self._consumer, held) if held else await broker.touch(self._consumer, ["0-0"])
        except BrokerUnavailable as error:
            self._reachable_since = None
            log.warning("could not touch %d entries: %s", len(held), error)
            return
        if self._reachable_since is None:
            self._reachable_since = time.monotonic()
        self._report([entry for entry in lost if entry in set(self._held)])

    def _report(self, lost: Sequence[str]) -> None:
        if lost:
            log.warning("%d entries are another consumer's now (%s was away too long)", len(lost), self._consumer)
            self._lost.extend(lost)
