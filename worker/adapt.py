"""Fewer slots while the engine has more requests than its KV cache holds, and more again when it has room.

An engine whose cache is full throws running requests out and begins them again: each costs twice, and no answer says
so. The worker's slots then go down to a part of what ran, and up one by one while all of them are in use.

Invariant: the number of slots stays within its bounds; an engine that doesn't answer changes nothing, nor does one that
is paused for new weights: it goes on showing the load of its last step.
"""

import asyncio
import logging
from dataclasses import dataclass

from rolloutfleet.errors import EngineRejected, EngineUnavailable
from worker.engine import EngineClient, Load
from worker.slots import Slots
from worker.waits import within

log = logging.getLogger("worker.adapt")

PART = 0.75  # that is left after each step down
REST = 3  # looks after a step down, in which what ran before it ends


@dataclass(frozen=True, slots=True)
class Bounds:
    """`full`: the share of the KV cache from which on it counts as full."""

    least: int
    most: int
    full: float


class Adapt:
    """One engine's slots, adapted to what it says of itself every `seconds`."""

    def __init__(self, engine: EngineClient, slots: Slots, bounds: Bounds, seconds: float) -> None:
        self.over = asyncio.Event()
        self._engine = engine
        self._slots = slots
        self._bounds = bounds
        self._seconds = seconds
        self._retractions: int | None = None  # at the last look
        self._rest = 0

    async def run(self) -> None:
        while not await within(self.over, self._seconds):
            if not self._engine.gate.is_open:
                continue
            try:
                self.step(await self._engine.load())
            except (EngineUnavailable, EngineRejected) as error:
                log.debug("%s", error)

    def step(self, load: Load) -> None:
        """One look: down at a sign of too much, up while all slots are in use and there is none."""
        number, busy = self._slots.number, self._slots.busy
        wanted = number
        if self._is_too_much(load):
            if not self._rest:
                self._rest = REST
                wanted = int(min(number, busy) * PART)
        elif busy >= number:
            wanted = number + 1
        self._rest = max(0, self._rest - 1)
        wanted = min(self._bounds.most, max(self._bounds.least, wanted))
        if wanted != number:
            log.info(
                "slots %d -> %d: cache %.0f%% full, retractions %s", number, wanted, load.usage * 100, load.retractions
            )
            self._slots.resize(wanted)

    def _is_too_much(self, load: Load) -> bool:
        before, self._retractions = self._retractions, load.retractions
        has_retracted = before is not None and load.retractions is not None and load.retractions > before
        return has_retracted or load.usage >= self._bounds.full
