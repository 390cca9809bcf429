"""The gate in front of the engine: closed while its weights are loaded.

Invariants: nothing is let in while it is closed; whoever is inside was let in while it was open; every token of a
request that is let in is of the version `least` of that moment, or of a newer one.
"""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager

from rolloutfleet.messages import UNKNOWN_VERSION


class Gate:
    """`newest` is the version in the last answer; `suspect` is set when an answer shows that the engine is another."""

    def __init__(self) -> None:
        self.least = UNKNOWN_VERSION
        self.newest = UNKNOWN_VERSION
        self.suspect = asyncio.Event()
        self.idle = asyncio.Event()
        self.idle.set()
        self._opened = asyncio.Event()
        self._opened.set()
        self._inside = 0

    @property
    def is_open(self) -> bool:
        return self._opened.is_set()

    def close(self) -> None:
        self._opened.clear()

    def open(self, least: int = UNKNOWN_VERSION) -> None:
        self.least = least
        self._opened.set()

    async def wait(self) -> None:
        """Until it is open; whoever goes inside at once passes it."""
        while not self.is_open:  # it may have closed again before this coroutine's turn came
            await self._opened.wait()

    @contextmanager
    def inside(self) -> Generator[int]:
        """Gives `least`."""
        self._inside += 1
        self.idle.clear()
        try:
            yield self.least
        finally:
            self._inside -= 1
            if not self._inside:
                self.idle.set()

    def is_old(self, version: int, least: int) -> bool:
        """Takes note of the oldest version in an answer; whether the engine has other weights than it was given."""
        if version >= least:
            return False
        if self.is_open and least == self.least:
            self.close()
            self.suspect.set()
        return True
