"""What a worker looks at again and again while it runs: the engine, the run's config, its own counters.

Invariant: each loop ends soon after `over` is set, and a broker or engine that is away ends none of them.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from pydantic import ValidationError

from rolloutfleet.errors import BrokerUnavailable, EngineRejected, EngineUnavailable, RunMissing
from rolloutfleet.settings import RunConfig, explain
from worker.group import Parts
from worker.waits import any_within, within
from worker.weights import Weights
from worker.worker import Now

log = logging.getLogger("worker.watches")

CONFIG_SECONDS = 5.0
COUNT_SECONDS = 1.0
TOKENIZER_SECONDS = 30.0  # a hub that can't be reached is asked again for longer
LEAST_PROBE_SECONDS = 1.0  # between two probes, however many requests fail


class Watches:
    """The loops of one worker. `beat_now` is called when the config has changed: its lease may be shorter."""

    def __init__(
        self, parts: Parts, now: Now, weights: Weights, probe_seconds: float, beat_now: Callable[[], None]
    ) -> None:
        self.over = asyncio.Event()
        self._parts = parts
        self._now = now
        self._weights = weights
        self._probe_seconds = probe_seconds
        self._beat_now = beat_now
        self._fingerprint = ""
        self._no_fingerprint = ""  # why there is none

    async def run(self) -> None:
        async with asyncio.TaskGroup() as loops:
            loops.create_task(self._watch_engine())
            loops.create_task(self._repeat(self.read_config, CONFIG_SECONDS))
            loops.create_task(self._repeat(self.count, COUNT_SECONDS))

    async def _repeat(self, look: Callable[[], Awaitable[None]], seconds: float) -> None:
        while not await within(self.over, seconds):
            try:
                await look()
            except BrokerUnavailable as error:
                log.warning("%s", error)

    # The engine

    async def _watch_engine(self) -> None:
        health = self._parts.sampler.health
        while not await within(self.over, min(LEAST_PROBE_SECONDS, self._probe_seconds)):
            await any_within(self._probe_seconds - LEAST_PROBE_SECONDS, health.probe_now, self.over)
            health.probe_now.clear()
            if self._weights.is_loading:
                continue  # paused, it looks unready
            try:
                serving = await self._parts.sampler.engine.check_ready()
            except (EngineUnavailable, EngineRejected) as error:
                health.probed(error)
            else:
                self._weights.probed(serving)  # first: an engine that was started anew gets no claim in between
                health.probed(None)

    # The run

    async def read_config(self) -> None:
        """Takes over what changed. Errors: BrokerUnavailable."""
        try:
            config = await self._parts.broker.config()
        except RunMissing as error:
            self._parts.fitness.begin("no_run", str(error))
            return
        except ValidationError as error:
            log.error("the run's config is wrong, the last good one stays: %s", explain(error))
            return
        self._parts.fitness.end("no_run")
        await self.check_fingerprint(config)
        if config != self._now.config:
            log.info("the run's config changed")
            self._now.config = config
            self._parts.changed.set()
            self._beat_now()

    async def check_fingerprint(self, config: RunConfig) -> None:
        """A worker with another tokenizer or template would bring other prompts into the run: it doesn't claim.

        What it has, goes into every entry, whether or not the run asks for it.
        """
        await self._find_fingerprint(is_asked_for=config.fingerprint != "")
        ours, theirs = self._fingerprint, config.fingerprint
        problem = self._no_fingerprint or f"tokenizer and template have fingerprint {ours}, the run has {theirs}"
        self._parts.fitness.set("fingerprint", "" if theirs in ("", ours) else problem)

    async def _find_fingerprint(self, *, is_asked_for: bool) -> None:
        """Unasked, a tokenizer is looked for once, and not for long: ids and text need none, and a hub may be away."""
        tokenizer = self._parts.prompts.tokenizer
        if self._fingerprint or not (is_asked_for or tokenizer.is_loaded or not self._no_fingerprint):
            return
        try:
            async with asyncio.timeout(TOKENIZER_SECONDS):
                self._fingerprint = self._parts.proof["fingerprint"] = await tokenizer.fingerprint()
        except OSError as error:  # TimeoutError is one
            self._no_fingerprint = f"no tokenizer at {tokenizer.path!r}: set tokenizer ({error})"
            log.info("groups carry no fingerprint: %s", self._no_fingerprint)

    async def count(self) -> None:
        """Brings what was counted here into the run's stats. Errors: BrokerUnavailable."""
        counters = self._parts.counters
        for name in list(counters):
            by = counters.pop(name, 0)  # the last count may overtake the one before it
            try:
                await self._parts.broker.count(name, by)
            except BrokerUnavailable:
                counters[name] += by
                raise

    async def count_once(self) -> None:
        """The last time, at the end: a broker that is away is not waited for."""
        try:
            async with asyncio.timeout(1):
                await self.count()
        except (BrokerUnavailable, TimeoutError) as error:
            log.warning("counters are lost: %s", error)
