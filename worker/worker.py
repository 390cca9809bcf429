"""The worker: claims groups up to its free places, holds them until they end, drains when it is told to stop.

Invariants: it claims only while it is fit and has places; a hint that it took is always followed by a claim; a claim
that was not answered is repeated under the same base; every grant ends completed, dropped, released, or is lost to
another; loops end by an Event. A group that has failed often without a word of ours may be one that kills its process,
and one under which engines died may be what kills them: such a group runs alone, so that nothing is counted against its
neighbours.
"""

import asyncio
import logging
import os
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from rolloutfleet.broker import Beat, Claim
from rolloutfleet.errors import BrokerUnavailable
from rolloutfleet.messages import UNKNOWN_VERSION, Grant
from rolloutfleet.settings import RunConfig
from worker.answers import version_number
from worker.endings import OUR_WORDS, EndsBy, until_answered
from worker.group import GroupWork, Parts
from worker.heartbeat import Heart
from worker.hints import Hints
from worker.settings import WorkerSettings
from worker.slots import room
from worker.waits import any_within, within

log = logging.getLogger("worker")

ACCOUNT_SECONDS = 3.0  # a worker whose places are full still says so, for the time behind each gate
RELEASE_SECONDS = 10.0
SUSPECT_ATTEMPT = 3
SUSPECT_DEATHS = 2  # more are counted of a group that ran alone only (release.lua)

EXIT_OK, EXIT_GONE, EXIT_BROKEN = 0, 3, 4


@dataclass(slots=True)
class Stop:
    """Asked to stop; asked again: at once. `ask` may be called from a signal."""

    asked: asyncio.Event = field(default_factory=asyncio.Event)
    at_once: asyncio.Event = field(default_factory=asyncio.Event)

    def ask(self) -> None:
        (self.at_once if self.asked.is_set() else self.asked).set()


@dataclass(slots=True)
class Now:
    """What changes while the worker runs, as its loops see it."""

    config: RunConfig
    weight_version: str = ""  # of the engine, in its own words
    weight_path: str = ""
    loads_path: str = ""  # of the weights that are being loaded


@dataclass(frozen=True, slots=True)
class Lines:
    """The worker's own lines to the broker, beside the one of its steps."""

    heart: Heart
    hints: Hints


class Worker:
    """One process beside one engine. `run` claims until `stop`; its answer is the exit code."""

    def __init__(self, name: str, settings: WorkerSettings, parts: Parts, lines: Lines, now: Now, stop: Stop) -> None:
        self.name = name
        self.held: dict[str, GroupWork] = {}
        self.stop = stop
        self._settings = settings
        self._parts = parts
        self._fitness = parts.fitness
        self._lines = lines
        self._now = now
        self._slots = parts.sampler.slots
        self._serial = 0  # of the next claim
        self._settled = 0  # claims with a smaller serial are over, and what they granted is held or has ended
        self._exit = EXIT_OK
        self._changed = parts.changed
        self._interrupt = asyncio.Event()  # the wait for a hint is pointless
        self._empty = asyncio.Event()  # nothing is held; looked at only at the end
        self._holds: set[asyncio.Task[None]] = set()
        self._claimed_at = time.monotonic()
        self._swept_at = time.monotonic()
        self._alone: GroupWork | None = None
        self._refusals = 0  # of the group filter, in a row
        self._fitness.changed = self._fitness_changed

    # What others ask

    def beat(self) -> Beat:
        """The next heartbeat. Called from the heartbeat's thread: reads, and changes nothing of the main loop's.

        Twice per lease it also sweeps: grants of claims that are over and that this worker does not hold are freed.
        """
        settled = 0
        if time.monotonic() - self._swept_at > self._now.config.lease_seconds / 2:
            self._swept_at, settled = time.monotonic(), self._settled
        # Read after `settled`: the grants of a claim are held before it counts as settled.
        tokens = list(self.held)
        busy_ms, slot_ms = self._slots.take_times()
        return Beat(self.name, tokens, self._slots.offered, self._facts(), busy_ms, slot_ms, settled)

    def told(self, word: str, lost: Sequence[str]) -> None:
        """What the broker answered to a heartbeat."""
        for token in lost:
            if token in self.held:
                log.warning("lost the lease of %s: its work is dropped", self.held[token].grant.id)
                self.held[token].stop("lost")
        match word:
            case "gone":
                self._end(EXIT_GONE, "this worker was evicted: it holds nothing any more, and ends")
            case "broken":
                self._end(EXIT_BROKEN, "the heartbeat ended by a fault: the process must start anew")
            case "draining":
                self._fitness.begin("draining", "told to drain")
            case "no_run":
                self._fitness.begin("no_run", "the run has no config")
                self._stop_all("gone")
            case _:
                self._fitness.end("draining")

    def places(self) -> int:
        """How many groups it may claim now."""
        if any(work is self._alone or not work.may_begin.is_set() for work in self.held.values()):
            return 0
        unmade = sum(work.unmade for work in self.held.values())
        return room(self._slots.number, unmade, len(self.held), self._now.config)

    # The loops

    async def run(self) -> int:
        """Claims until stopped, then drains. The answer is the exit code."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watch_stop())
            while not self.stop.asked.is_set():
                await self.step(tasks)
            await self._wind_up()
        return self._exit

    async def _watch_stop(self) -> None:
        await self.stop.asked.wait()
        log.info("stopping: claims no more, and finishes %d groups", len(self.held))
        self._changed.set()
        self._interrupt.set()

    async def step(self, tasks: asyncio.TaskGroup) -> None:
        """One look at whether groups can be claimed: claims, or waits until that may have changed."""
        self._changed.clear()
        self._interrupt.clear()
        if self.stop.asked.is_set():
            return
        if not self._fitness.is_fit:
            await within(self._changed, 1.0)
            return
        places = self.places()
        if places <= 0:
            await self._wait_busily()
            return
        claim = await self._claim(places)
        await self._begin(claim.grants, tasks)
        self._settled = self._serial
        if claim.reason == "old_weights":
            self._parts.sampler.engine.gate.suspect.set()  # the policy is looked at now
            await within(self._changed, 1.0)
        elif len(claim.grants) < places and claim.reason != "again":
            await self._wait_for_hint(claim.due_seconds)

    async def _wait_busily(self) -> None:
        due = self._claimed_at + ACCOUNT_SECONDS - time.monotonic()
        if due <= 0 or not await within(self._changed, due):
            await self._claim(0)

    async def _wait_for_hint(self, seconds: float | None) -> None:
        taken = await self._lines.hints.wait(self._interrupt, seconds)
        if taken and (self.stop.asked.is_set() or not self._fitness.is_fit or self.places() <= 0):
            await self._claim(0)  # passes the hint on

    @property
    def _served(self) -> int | None:
        """The weight version of the engine; None: somebody else updates it."""
        return None if self._settings.weights_mode == "external" else version_number(self._now.weight_version)

    async def _claim(self, places: int) -> Claim:
        base = f"{self.name}/{self._serial}"
        self._serial += 1
        while True:
            try:
                claim = await self._parts.broker.claim(self.name, base, places, self._served)
                break
            except BrokerUnavailable as error:
                log.warning("claims wait: %s", error)
                if self.stop.asked.is_set():
                    return Claim("unanswered")  # should it have been granted, the last beat sweeps it back
        self._claimed_at = time.monotonic()
        self._parts.sampler.metrics.claims.labels(claim.reason).inc()
        match claim.reason:
            case "gone":
                self._end(EXIT_GONE, "this worker was evicted: it may not claim, and ends")
            case "draining":
                self._fitness.begin("draining", "told to drain")
            case "no_run":
                self._fitness.begin("no_run", "the run has no config")
            case _:
                pass
        return claim

    # Holding

    async def _begin(self, grants: Sequence[Grant], tasks: asyncio.TaskGroup) -> None:
        suspects = [grant for grant in grants if await self._is_suspect(grant)]
        kept = suspects[:1] or grants
        for grant in kept:
            self._take_hold(grant, not suspects, tasks)
        # Whatever is held beside a suspect is counted with it, should one of them end the process.
        for grant in grants:
            if grant not in kept:
                await until_answered(lambda token=grant.token: self._parts.broker.release(token, "free"))
        self._begin_suspect()

    def _take_hold(self, grant: Grant, may_begin: bool, tasks: asyncio.TaskGroup) -> None:
        work = GroupWork(self._parts, grant, self._now.config, self.name)
        version = version_number(self._now.weight_version)
        work.oldest = None if version == UNKNOWN_VERSION else version
        if may_begin:
            work.may_begin.set()
        if self._can_make_nothing:  # since this claim was made
            work.stop("free")
        self.held[grant.token] = work
        hold = tasks.create_task(self._hold(work))
        self._holds.add(hold)
        hold.add_done_callback(self._holds.discard)

    async def _hold(self, work: GroupWork) -> None:
        try:
            ending = await work.run()
            log.debug("ended id=%s kind=%s", work.grant.id, ending.kind)
            if ending.kind in ("completed", "dropped"):
                self._refusals = self._refusals + 1 if ending.kind == "dropped" else 0
        finally:
            self.held.pop(work.grant.token, None)
            self._changed.set()
            self._begin_suspect()
            if not self.held:
                self._empty.set()
                # Nobody is left who would find out that the reward service is back: the next group will.
                self._fitness.end("reward_down")

    def _begin_suspect(self) -> None:
        if len(self.held) == 1:
            (work,) = self.held.values()
            if not work.may_begin.is_set():
                told = (work.grant.id, work.grant.attempt - 1, work.grant.deaths)
                log.warning("group %s runs alone: it has failed %d times, and %d engines died under it", *told)
                self._alone = work
                work.may_begin.set()

    async def _is_suspect(self, grant: Grant) -> bool:
        """Whether engines died under it, or its last attempt ended without a word of ours, each for the second time."""
        if grant.deaths >= min(SUSPECT_DEATHS, self._now.config.max_attempts):
            return True
        if grant.attempt < max(2, min(SUSPECT_ATTEMPT, self._now.config.max_attempts)):
            return False
        broker = self._parts.broker
        (reason,) = await until_answered(lambda: broker.calls.read([["HGET", broker.keys.group(grant.id), "reason"]]))
        return isinstance(reason, bytes) and not reason.decode(errors="replace").startswith(OUR_WORDS)

    # The end

    def _end(self, code: int, sentence: str) -> None:
        if self._exit == EXIT_OK:
            log.error("%s", sentence)
            self._exit = code
        self._stop_all("gone")
        self.stop.asked.set()
        self.stop.at_once.set()

    def _stop_all(self, kind: EndsBy, keeps: bool = False) -> None:
        for work in list(self.held.values()):
            work.stop(kind, keeps=keeps)

    async def _wind_up(self) -> None:
        self._slots.offer(0)
        self._lines.heart.beat_now()
        self._empty.clear()
        if self.held:
            await any_within(self._settings.drain_seconds, self._empty, self.stop.at_once)
        self._stop_all("gone" if self._exit else "free", keeps=not self._exit and not self.stop.at_once.is_set())
        if self.held and not await within(self._empty, RELEASE_SECONDS):
            log.error("could not give back %d groups: their leases end by themselves", len(self.held))
            for hold in list(self._holds):
                hold.cancel()
        if self._exit == EXIT_OK:
            await self._say_goodbye()

    async def _say_goodbye(self) -> None:
        """The last beat: no slots any more, and whatever was granted unheard is given back."""
        await self._lines.heart.stop()  # a beat of the thread that is on its way would report the slots once more
        try:
            async with asyncio.timeout(2):
                await self._parts.broker.heartbeat(replace(self.beat(), tokens=(), settled=self._serial))
        except (BrokerUnavailable, TimeoutError) as error:
            log.warning("no answer to the last heartbeat: %s", error)

    def _fitness_changed(self) -> None:
        self._changed.set()
        self._lines.heart.beat_now()
        if self._fitness.is_fit:
            if not self.stop.asked.is_set():
                self._slots.offer(self._slots.number)
            return
        self._interrupt.set()
        if self._can_make_nothing or self._fitness.has("draining"):
            self._slots.offer(0)
        if self._can_make_nothing:
            self._give_back_what_needs_the_engine()

    def _give_back_what_needs_the_engine(self) -> None:
        why = f"the engine died: {self._fitness.why('engine_down')}"
        for work in list(self.held.values()):
            if not work.unmade:
                continue  # one that only waits for rewards needs no engine
            if not work.may_begin.is_set() or not self._fitness.has("engine_down"):
                work.stop("free")
            else:
                work.stop("died_alone" if work is self._alone else "died", why)

    @property
    def _can_make_nothing(self) -> bool:
        """The engine is down, or has weights that nobody vouches for: what is held is better off elsewhere."""
        failed = self._fitness.has("weights_failed") and not self._parts.sampler.engine.gate.is_open
        return failed or self._fitness.has("engine_down")

    def _facts(self) -> dict[str, object]:
        return {
            "state": "draining" if self.stop.asked.is_set() else self._fitness.state,
            "reason": self._fitness.reason,
            "slots": self._slots.number,
            "most_slots": self._slots.most,
            "busy": self._slots.busy,
            "held": len(self.held),
            "filter_refuses": self._refusals,
            "engine": self._settings.engine_url,
            "weight_version": self._now.weight_version,
            "weight_path": self._now.weight_path,
            "loads_path": self._now.loads_path,
            "pid": os.getpid(),
            **self._settings.place,
            "host": socket.gethostname(),
        }
