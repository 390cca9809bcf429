"""Redundant samples: more answers are asked for than a group needs, and the first n that are finished win.

That favours short answers, so it is off unless a run asks for it, and each sample says of how many it was one.

Invariants: a finished answer takes the next index that is free, so that a group has the indices 0 to n - 1 like any
other; once none is free, whoever still runs is stopped; no candidate of an earlier holder runs again under its number,
which its seed is made of. Without redundant samples each number is its own index.
"""

import asyncio
from collections import deque
from collections.abc import Mapping
from itertools import count, islice
from typing import Any

from rolloutfleet.errors import InvalidGroup, ProtocolMismatch
from rolloutfleet.messages import Sample

_NUMBER, _ALL = "candidate", "candidates"


class Race:
    """The answers to one group that are being made. `stored`: what is finished already, by index."""

    def __init__(self, n: int, redundant: int, stored: Mapping[int, bytes]) -> None:
        self._n = n
        self._redundant = redundant
        self._free = deque(index for index in range(n) if index not in stored)
        self._running: dict[int, asyncio.Task[None]] = {}
        self.numbers = self._draw(stored) if redundant and self._free else list(self._free)

    def _draw(self, stored: Mapping[int, bytes]) -> list[int]:
        used = {_number_of(data) for data in stored.values()}
        return list(islice((number for number in count() if number not in used), len(self._free) + self._redundant))

    @property
    def surplus(self) -> int:
        """How many of them run in vain."""
        return self._redundant if self.numbers else 0

    def enter(self, number: int, task: asyncio.Task[None]) -> None:
        self._running[number] = task

    def place(self, number: int) -> int | None:
        """The index of an answer that is finished now; None: it came too late."""
        self._running.pop(number, None)
        if not self._redundant:
            return number
        if not self._free:
            return None
        index = self._free.popleft()
        if not self._free:
            for task in self._running.values():
                task.cancel()
        return index

    def facts(self, number: int) -> dict[str, int]:
        """What a sample says of the race that it won."""
        return {_NUMBER: number, _ALL: self._n + self._redundant} if self._redundant else {}


def redundant_of(sample: Sample, n: int) -> int:
    """How many more than n ran when this sample won."""
    found: Any = sample.sampling.get(_ALL)
    return max(0, found - n) if isinstance(found, int) else 0


def _number_of(data: bytes) -> int | None:
    try:
        found: Any = Sample.decode(data).sampling.get(_NUMBER)
    except (InvalidGroup, ProtocolMismatch):
        return None  # who scores it says so
    return found if isinstance(found, int) else None
