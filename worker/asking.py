"""One answer from the engine, whatever it takes: waits for a slot, asks, and asks again while the engine can't answer.

Invariants: a slot is held for one request and nothing else; each try has a request id of its own; nothing is asked
once the time is over, or once it was halted.
"""

import asyncio
import time
import uuid
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np

from rolloutfleet.errors import EngineRejected
from rolloutfleet.metrics import EngineFault, WorkerMetrics
from worker.answers import Fault, Piece
from worker.engine import EngineClient, Wish
from worker.health import EngineHealth
from worker.refusals import EngineBusy, NoAnswer
from worker.slots import Slots
from worker.tokens import Limits, Tokenizer
from worker.waits import back_off

NOTHING = Piece(np.empty(0, "<i4"), np.empty(0, "<f4"), (), "abort", "")


@dataclass(frozen=True, slots=True)
class Sampler:
    """What samples need of their worker. `partial_tokens`: so many tokens apart what a sample has is kept; 0: never."""

    engine: EngineClient
    health: EngineHealth
    slots: Slots
    limits: Limits
    metrics: WorkerMetrics
    counters: Counter[str]
    max_tries: int
    tokenizer: Tokenizer
    partial_tokens: int = 0

    def count_retry(self, cause: str) -> None:
        self.counters["retries"] += 1
        self.metrics.retries.labels(cause).inc()

    def count_fault(self, name: EngineFault) -> None:
        self.metrics.engine_faults.labels(name).inc()


class Asker:
    """The requests of one sample. All its turns carry one key, by which a router sends them to the same engine."""

    def __init__(self, sampler: Sampler, ends_at: float | None) -> None:
        self._sampler = sampler
        self._ends_at = ends_at
        self._key = uuid.uuid4().hex
        self._rid: str | None = None
        self._halted = False
        self._quiet = asyncio.Event()

    @property
    def is_late(self) -> bool:
        return self._ends_at is not None and asyncio.get_running_loop().time() >= self._ends_at

    async def halt(self) -> None:
        """Nothing is asked any more; what runs is aborted at the engine. Returns when its tokens were told."""
        self._halted = True
        if self._rid is None:
            return
        self._sampler.engine.abort_soon(self._rid)
        await self._quiet.wait()

    async def stand_if_halted(self) -> None:
        """Whoever was halted goes no further: what it has is about to be stored, and its task to be cancelled."""
        if self._halted:
            self._quiet.set()
            await asyncio.Event().wait()

    def ended(self) -> None:
        """The turn is over: there is nothing to wait for."""
        self._quiet.set()

    async def piece(self, request: dict[str, Any], tell: Callable[[Piece], None] | None) -> Piece | Fault:
        """One answer. `tell` hears what the sample has meanwhile. Errors: EngineRejected."""
        tries, since = 0, 0.0
        sampler = self._sampler
        while not (tries and self.is_late):
            await self.stand_if_halted()
            try:
                piece = await self._ask(request, tell)
            except EngineBusy as error:
                sampler.count_retry("busy")
                sampler.count_fault(error.fault)
                sampler.health.succeeded()
            except NoAnswer as error:
                since = since or time.monotonic()
                sampler.count_retry("unavailable")
                sampler.count_fault(error.fault)
                sampler.health.failed(error, tries + 1, since)
            except EngineRejected:
                sampler.count_fault("rejected")
                raise
            else:
                sampler.health.succeeded()
                return piece
            tries += 1
            await asyncio.sleep(back_off(tries))
        return NOTHING

    async def _ask(self, request: dict[str, Any], tell: Callable[[Piece], None] | None) -> Piece | Fault:
        async with AsyncExitStack() as held:
            try:
                async with asyncio.timeout_at(self._ends_at):
                    await held.enter_async_context(self._sampler.slots.hold())
            except TimeoutError:
                return NOTHING
            await self.stand_if_halted()
            self._rid = uuid.uuid4().hex
            try:
                with self._sampler.metrics.engine_seconds.time():
                    wish = Wish(self._key, self._ends_at, tell)
                    return await self._sampler.engine.generate(request | {"rid": self._rid}, wish)
            finally:
                self._rid = None
