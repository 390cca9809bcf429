"""Brings the engine to the weights that the trainer published, and keeps it there.

Invariants: the worker claims only while its engine serves the policy, or an older version whose successor has not come
yet; weights change only while the engine is paused with its running requests put back or answered, never in place; it
serves again only after 200, which says that the cache was flushed, and with the version verified; anything else leaves
it out, with the reason. An engine that was started anew has lost its weights: nothing is let in until it has them
again. Where the trainer updates the engines itself, the version comes from the answers alone.
"""

import asyncio
import logging
import socket
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Literal
from urllib.parse import urlsplit

from rolloutfleet.broker import Turn, UpdateWord
from rolloutfleet.errors import (
    BrokerUnavailable,
    EngineRejected,
    EngineUnavailable,
    ProtocolMismatch,
    WrongWeights,
)
from rolloutfleet.messages import UNKNOWN_VERSION
from rolloutfleet.policy import Policy
from rolloutfleet.weights import check
from worker.engine import Serving
from worker.group import Parts
from worker.settings import WorkerSettings
from worker.waits import any_within, back_off
from worker.worker import Now

log = logging.getLogger("worker.weights")

POLICY_SECONDS = 1.0  # between looks at the policy
FIRST_SECONDS, LONGEST_SECONDS = 2.0, 60.0  # between tries of weights that can't be loaded
_END_SECONDS = 5.0
_LOCAL = ("127.0.0.1", "localhost", "::1", "0.0.0.0")

type Outcome = Literal["loaded", "failed", "left"]


class Weights:
    """The loop of one worker. `expect` before it runs; `probed` and `is_loading` are for whoever watches the engine.

    `changed` is called when the engine has other weights, before anything is claimed under them.
    """

    def __init__(
        self, name: str, settings: WorkerSettings, parts: Parts, now: Now, changed: Callable[[], None]
    ) -> None:
        self.over = asyncio.Event()
        self.is_loading = False
        self._name = name
        self._settings = settings
        self._broker = parts.broker
        self._engine = parts.sampler.engine
        self._gate = parts.sampler.engine.gate
        self._parts = parts
        self._now = now
        self._changed = changed
        self._served: Policy | None = None  # verified
        self._policy: Policy | None = None  # as of the last look
        self._is_paused = False
        self._stands_since: float | None = None  # for newer weights
        self._failed: Policy | None = None
        self._failures = 0  # of that policy, in a row
        self._retry_at = 0.0
        self._engine_name = _name_of(settings.engine_url)

    # What others call

    def expect(self, policy: Policy | None) -> None:
        """Before the first claim: nothing is let in until these weights are there."""
        self._policy = policy
        if self._is_ours(policy):
            self._lose("no weights are in use yet")
        elif policy is not None:
            self._now.weight_version = ""  # what is said beside the answers is not believed

    def probed(self, serving: Serving) -> None:
        """What a ready engine says of itself: one that was started anew has other weights."""
        if self._policy is not None and not self._is_ours(self._policy):
            return
        self._note(serving.version, serving.path)
        if self._served is not None and not self.is_loading and not _is_served(self._served, serving):
            found = f"{serving.version!r} from {serving.path!r}"
            self._lose(f"the engine serves {found}: it was started anew, or somebody else updated it")

    async def run(self) -> None:
        """Until `over` is set; a load that is under way is left, and its engine not left paused."""
        work, over = asyncio.create_task(self._repeat()), asyncio.create_task(self.over.wait())
        try:
            await asyncio.wait({work, over}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            over.cancel()
            work.cancel()
            await asyncio.wait({work})
        if not work.cancelled():
            work.result()
        if self._is_paused:
            try:
                async with asyncio.timeout(_END_SECONDS):
                    await self._engine.resume()
            except (EngineUnavailable, EngineRejected, TimeoutError) as error:
                log.warning("the engine stays paused: %s", error)

    # The loop

    async def _repeat(self) -> None:
        while True:
            self._gate.suspect.clear()
            await self.step()
            await any_within(POLICY_SECONDS, self._gate.suspect)

    async def step(self) -> None:
        """One look at the policy and the engine."""
        try:
            self._policy = policy = await self._broker.policy()
            if policy is None or not self._is_ours(policy):
                await self._follow(policy)
            elif self._served is not None and _key(self._served) == _key(policy) and self._gate.is_open:
                return
            else:
                await self._approach(policy)
        except BrokerUnavailable as error:
            log.warning("looks at the policy later: %s", error)
        except ProtocolMismatch as error:
            self._parts.fitness.restate("weights_failed", str(error))
        except (EngineUnavailable, EngineRejected) as error:
            self._parts.sampler.health.probed(error)

    def _is_ours(self, policy: Policy | None) -> bool:
        """Whether it is this worker that loads it."""
        return policy is not None and not policy.is_external and self._settings.weights_mode == "policy"

    async def _follow(self, policy: Policy | None) -> None:
        """Nothing is published, or somebody else updates the engine: whatever it serves is used."""
        if self._is_paused:
            await self._resume()
        if policy is not None and self._gate.newest != UNKNOWN_VERSION:
            self._note(str(self._gate.newest), self._now.weight_path)
        self._served = self._stands_since = None
        self._open(UNKNOWN_VERSION)

    async def _approach(self, policy: Policy) -> None:
        """Loads the policy when it is this worker's turn, unless the engine has it already."""
        if self._served is not None and not self._gate.is_open:
            self._lose("an answer was made by other weights")
        if _is_served(policy, await self._engine.serving()) and not self._parts.fitness.has("weights_failed"):
            await self._resume()  # who loaded it may have died before this
            self._serve(policy)
        elif self._failed is not None and _key(self._failed) == _key(policy) and time.monotonic() < self._retry_at:
            await self._turn("failed", policy)
        elif await self._turn("begin", policy) == "go":
            self.is_loading = True
            try:
                async with self._prolonging(policy):
                    outcome = await self._try_to_load(policy)
            finally:
                self.is_loading = False
            await self._turn(outcome, policy)

    async def _turn(self, word: UpdateWord, policy: Policy) -> Turn:
        serves = self._served is not None and self._gate.is_open
        return await self._broker.update(word, self._name, policy.version, self._engine_name, serves=serves)

    @asynccontextmanager
    async def _prolonging(self, policy: Policy) -> AsyncGenerator[None]:
        """A load may take longer than a lease: the turn is kept."""

        async def prolong() -> None:
            while True:
                await asyncio.sleep(self._now.config.lease_seconds / 3)
                try:
                    await self._turn("begin", policy)
                except BrokerUnavailable as error:
                    log.warning("a turn is not prolonged: %s", error)

        prolonged = asyncio.create_task(prolong())
        try:
            yield
        finally:
            prolonged.cancel()
            await asyncio.wait({prolonged})

    # Loading

    async def _try_to_load(self, policy: Policy) -> Outcome:
        try:
            await self._check(policy)
            await self._load(policy)
        except (WrongWeights, ProtocolMismatch, EngineRejected) as error:
            await self._leave_out(policy, error)
            return "failed"
        except EngineUnavailable as error:
            log.warning("version %d is loaded later: %s", policy.version, error)
            self._parts.sampler.health.probed(error)
            return "left"
        self._parts.counters["updates_loaded"] += 1
        self._parts.sampler.metrics.updates.labels("loaded").inc()
        self._serve(policy)
        self._parts.sampler.health.probed(None)
        return "loaded"

    async def _check(self, policy: Policy) -> None:
        if policy.manifest:
            with_hashes = self._settings.weights_check == "hashes"
            try:
                await asyncio.to_thread(check, policy.path, policy.manifest, with_hashes=with_hashes)
            except OSError as error:  # of a volume that went away in between
                raise WrongWeights(f"{policy.path} can't be read ({error}): is its volume mounted here?") from error

    async def _load(self, policy: Policy) -> None:
        engine = self._engine
        if self._served is not None:
            self._stands_since = time.monotonic()
            self._parts.fitness.begin("updating", f"version {policy.version} is loaded from {policy.path}")
        self._now.loads_path = policy.path
        self._gate.close()
        self._served = None
        if policy.mode == "drain":
            await self._gate.idle.wait()
        self._is_paused = True
        await engine.pause("abort" if policy.mode == "abort" else "retract")
        try:
            await engine.load_weights(policy.path, policy.version, self._settings.weights_seconds)
        except EngineUnavailable as error:
            # Files that can't be read end the real engine: another worker's turn at them would end the next one.
            raise EngineRejected(f"the engine did not survive it, or took too long: {error}") from error
        serving = await engine.serving()
        if not _is_served(policy, serving):
            raise EngineRejected(f"after the update it serves version {serving.version!r} from {serving.path!r}")
        await self._resume()

    async def _resume(self) -> None:
        await self._engine.resume()
        self._is_paused = False

    async def _leave_out(self, policy: Policy, error: Exception) -> None:
        """What it holds is given back if the engine's weights are in doubt; the engine itself is not left paused."""
        self._failures = self._failures + 1 if self._failed is not None and _key(self._failed) == _key(policy) else 1
        self._failed = policy
        self._retry_at = time.monotonic() + back_off(self._failures, FIRST_SECONDS, LONGEST_SECONDS)
        self._parts.counters["updates_failed"] += 1
        self._parts.sampler.metrics.updates.labels("failed").inc()
        # An engine that finds no such folder takes its path for a hub's name, and says so.
        reason = f"version {policy.version} is not loaded from {policy.path}: {error}"
        self._parts.fitness.restate("weights_failed", reason)
        self._parts.fitness.end("loading")
        self._parts.fitness.end("updating")
        self._now.loads_path = ""
        if self._is_paused:
            await self._engine.abort_all()
            await self._resume()

    # Serving, or not

    def _serve(self, policy: Policy) -> None:
        if self._stands_since is not None:
            stood = time.monotonic() - self._stands_since
            self._parts.counters["updating_ms"] += round(1000 * stood * self._parts.sampler.slots.number)
            self._parts.sampler.metrics.update_seconds.observe(stood)
        self._served, self._stands_since = policy, None
        self._failed = None
        self._now.weight_version, self._now.weight_path = str(policy.version), policy.path
        self._now.loads_path = ""
        self._changed()
        self._open(policy.version)
        log.info("serves version %d (%s) from %s", policy.version, policy.label or "-", policy.path)

    def _note(self, version: str, path: str) -> None:
        """What the engine serves, as somebody saw it."""
        if (version, path) != (self._now.weight_version, self._now.weight_path):
            self._now.weight_version, self._now.weight_path = version, path
            self._changed()

    def _open(self, least: int) -> None:
        self._gate.open(least)
        for cause in ("loading", "updating", "weights_failed"):
            self._parts.fitness.end(cause)

    def _lose(self, reason: str) -> None:
        self._served = None
        self._gate.close()
        self._parts.fitness.restate("loading", reason)
        self._gate.suspect.set()


def _key(policy: Policy) -> tuple[int, str, str]:
    return policy.version, policy.path, policy.manifest


def _is_served(policy: Policy, serving: Serving) -> bool:
    """The number alone could be another run's, or that of an engine's start."""
    return (serving.version, serving.path) == (str(policy.version), policy.path)


def _name_of(url: str) -> str:
    """An engine's address that is the same for every worker beside it, and another elsewhere."""
    host = urlsplit(url).hostname
    return f"{socket.gethostname()} {url}" if host in _LOCAL else url
