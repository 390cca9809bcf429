"""The scheduler of a simulated engine: a queue, slots, and one decode speed that all running requests share.

All running requests advance alike, so the engine keeps one number, the tokens that a request running since the
start would have made, and a heap of the values at which the running ones end. Nothing happens per token: the work
of a request is one push and one pop, whatever its length and however many run beside it.

- At most `slots` requests run; the queue is served in order, and a place is filled at the very instant at which it
  became free, however late `settle` is called.
- Every live request ends exactly once: its future is set to how it ended.
- No request makes a token while the engine is paused or stalled.
"""

import asyncio
import heapq
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import count
from typing import Literal

PauseMode = Literal["abort", "retract", "in_place"]


class QueueFull(Exception):
    """As many requests wait as may."""


class DuplicateRid(Exception):
    """A request with this id is live."""


class End(StrEnum):
    """How a request ended."""

    DONE = "done"
    ABORTED = "aborted"
    ABORTED_IN_QUEUE = "aborted in queue"
    REFUSED = "refused"


class Where(StrEnum):
    """Where a live request is."""

    NEW = "new"
    HELD = "held"
    QUEUED = "queued"
    RUNNING = "running"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Span:
    """Output tokens start to end (excluded) were made with these weights."""

    version: str
    start: int
    end: int


@dataclass(slots=True, eq=False)
class Job:
    """One request in the engine. `total` is how many tokens it makes when nothing stops it."""

    rid: str
    prompt_tokens: int
    total: int
    ended: asyncio.Future[End]
    where: Where = Where.NEW
    joined: float = 0.0
    before: float = 0.0
    made: int = 0
    retractions: int = 0
    changes: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    ended_with: str | None = None

    def spans(self, made: int, version: str) -> list[Span]:
        """The weights of `made` tokens, without gaps; `version` made the last ones. One empty span when there are
        none."""
        spans: list[Span] = []
        for name, end in (*self.changes, (self.ended_with or version, made)):
            start = spans[-1].end if spans else 0
            if spans and end <= start:
                continue
            if spans and spans[-1].version == name:
                start = spans.pop().start
            spans.append(Span(name, start, end))
        return spans


@dataclass(frozen=True, slots=True)
class Pace:
    """Decode speed: tokens/s of a lone request, the number of running ones at which it is halved (0: never), and what
    slows it."""

    speed: float
    half: float
    slow_factor: float = 1.0
    step_seconds: float = 0.0
    stalled: bool = False

    def of(self, running: int) -> float:
        """Tokens per second of each of `running` requests."""
        if self.stalled:
            return 0.0
        crowd = 1 + running / self.half if self.half else 1.0
        return 1 / (crowd * self.slow_factor / self.speed + self.step_seconds)


class Engine:
    """The scheduler. `clock` gives seconds; `changed` is called after whatever may move the next end."""

    def __init__(
        self,
        slots: int,
        pace: Pace,
        version: str,
        max_queued: int | None,
        clock: Callable[[], float],
        changed: Callable[[], None],
    ) -> None:
        self.slots = slots
        self.version = version
        self.paused: PauseMode | None = None
        self.tokens_made = 0
        self.most_running = 0
        self._pace = pace
        self._max_queued = max_queued
        self._clock = clock
        self._changed = changed
        self._now = clock()
        self._progress = 0.0
        self._running: dict[Job, None] = {}
        self._ends: list[tuple[float, int, Job]] = []
        self._order = count()
        self._queue: deque[Job] = deque()
        self._held: dict[Job, None] = {}
        self._holding = False
        self._live: dict[str, Job] = {}

    # What it holds

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def queued(self) -> int:
        return len(self._queue)

    @property
    def held(self) -> int:
        return len(self._held)

    @property
    def is_idle(self) -> bool:
        return not self._live

    @property
    def pace(self) -> Pace:
        return self._pace

    def rate(self) -> float:
        """Tokens per second of each running request now."""
        return 0.0 if self.paused else self._pace.of(len(self._running))

    def unfinished(self) -> list[Job]:
        """All that runs or is queued; not what is held."""
        return [*self._running, *self._queue]

    def tokens_held(self) -> int:
        """Tokens of prompts and answers of all running requests."""
        return sum(job.prompt_tokens + self.made(job) for job in self._running)

    def made(self, job: Job) -> int:
        """Tokens that a request has made so far."""
        if job.where is Where.RUNNING:
            return min(job.total, int(job.before + self._progress - job.joined + 1e-6))
        return job.made

    # Requests

    def submit(self, job: Job) -> None:
        """Start it, queue it, or hold it while paused. Raises DuplicateRid, QueueFull."""
        self.settle()
        if job.rid in self._live:
            raise DuplicateRid(job.rid)
        if self.paused or self._holding:
            job.where = Where.HELD
            self._held[job] = None
        else:
            self._enqueue(job)
        self._live[job.rid] = job
        self._changed()

    def abort(self, rid: str) -> None:
        """End every request whose id begins with that of a live one. Held requests aren't live yet: their abort is
        lost."""
        named = self._live.get(rid)
        if named is not None and named.where is not Where.HELD:
            self._abort_where(lambda job: job.rid.startswith(rid))

    def abort_all(self) -> None:
        """End all running and queued requests."""
        self._abort_where(lambda job: True)

    def forget(self, job: Job) -> None:
        """The client has left: end its request, wherever it is."""
        if job.where in (Where.NEW, Where.ENDED):
            return
        self.settle()
        self._end(job, End.ABORTED)
        self._admit()
        self._changed()

    # Control

    def pause(self, mode: PauseMode) -> None:
        self.settle()
        if mode == "abort":
            self.abort_all()
        if mode == "retract":
            self._retract_all()
        self.paused = mode
        self._changed()

    def resume(self) -> None:
        self.settle()
        self.paused = None
        self._admit()
        if not self._holding:
            self._take_held()
        self._changed()

    def hold_new(self, holding: bool) -> None:
        """While holding, running requests go on and new ones wait outside of the queue."""
        self._holding = holding
        if not holding and not self.paused:
            self._take_held()

    def set_version(self, version: str) -> None:
        """Tokens made from now on are of these weights."""
        self.settle()
        for job in self.unfinished():
            made = self.made(job)
            if made:
                job.changes.append((self.version, made))
        self.version = version

    def set_pace(self, pace: Pace) -> None:
        self.settle()
        self._pace = pace
        self._changed()

    # Time

    def settle(self) -> None:
        """Let everything happen that is due by now, each at its own instant."""
        now = self._clock()
        while (rate := self.rate()) > 0 and (due := self._next_end()) is not None:
            instant = self._now + max(0.0, due - self._progress) / rate
            if instant > now:
                break
            self._now, self._progress = instant, max(due, self._progress)
            self._end(heapq.heappop(self._ends)[2], End.DONE)
            self._admit()
        self._progress += max(0.0, now - self._now) * self.rate()
        self._now = max(now, self._now)

    def seconds_to_next(self) -> float | None:
        """Until the next request ends, if nothing changes; None: none will."""
        due, rate = self._next_end(), self.rate()
        if due is None or rate == 0:
            return None
        return max(0.0, (due - self._progress) / rate - (self._clock() - self._now))

    def _next_end(self) -> float | None:
        while self._ends and self._is_outdated(*self._ends[0]):
            heapq.heappop(self._ends)
        return self._ends[0][0] if self._ends else None

    @staticmethod
    def _is_outdated(due: float, _: int, job: Job) -> bool:
        return job.where is not Where.RUNNING or due != job.joined + job.total - job.before

    # Moves

    def _enqueue(self, job: Job) -> None:
        is_room = len(self._running) < self.slots and not self._queue
        if not is_room and self._max_queued is not None and len(self._queue) >= self._max_queued:
            raise QueueFull(job.rid)
        job.where = Where.QUEUED
        self._queue.append(job)
        self._admit()

    def _admit(self) -> None:
        while self._queue and len(self._running) < self.slots and not self.paused:
            job = self._queue.popleft()
            job.where = Where.RUNNING
            job.joined = self._progress
            self._running[job] = None
            heapq.heappush(self._ends, (job.joined + job.total - job.before, next(self._order), job))
        self.most_running = max(self.most_running, len(self._running))

    def _take_held(self) -> None:
        held, self._held = self._held, {}
        for job in held:
            try:
                self._enqueue(job)
            except QueueFull:
                self._end(job, End.REFUSED)
        self._changed()

    def _retract_all(self) -> None:
        for job in reversed(self._running):
            job.made = self.made(job)
            job.before = math.floor(job.before + self._progress - job.joined + 1e-6)
            job.retractions += 1
            job.where = Where.QUEUED
            self._queue.appendleft(job)
        self._running.clear()
        self._ends.clear()

    def _abort_where(self, matches: Callable[[Job], bool]) -> None:
        self.settle()
        for job in [job for job in self.unfinished() if matches(job)]:
            self._end(job, End.ABORTED if job.where is Where.RUNNING else End.ABORTED_IN_QUEUE)
        self._admit()
        self._changed()

    def _end(self, job: Job, how: End) -> None:
        job.made = job.total if how is End.DONE else self.made(job)
        job.ended_with = self.version
        self.tokens_made += job.made
        if job.where is Where.RUNNING:
            del self._running[job]
        elif job.where is Where.QUEUED:
            self._queue.remove(job)
        self._held.pop(job, None)
        del self._live[job.rid]
        job.where = Where.ENDED
        if not job.ended.done():
            job.ended.set_result(how)
