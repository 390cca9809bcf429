"""The snapshot that all viewers share: put together once a second, encoded once for each run that somebody asks for.

Invariants: a new snapshot comes each second, also while Redis is away (its ages grow); a viewer that is slow skips
snapshots and holds nobody up; `close` ends every stream.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import asdict
from itertools import count

from pydantic import BaseModel

from api.models import RedisView, RunReply, RunStatus, ServerView, StatusReply
from api.sampler import AWAY_SECONDS, SECONDS, UNREADABLE, RunBook, Sampler, say_why_it_ended
from api.settings import ApiSettings
from api.views import run_view
from rolloutfleet.server import Server

_PATIENCE = 1.2 * SECONDS  # a look that lasts longer is not waited for


class Snapshot:
    """One moment of all runs; immutable, with its encodings."""

    def __init__(self, reply: StatusReply) -> None:
        self.reply = reply
        self._encoded: dict[str | None, bytes] = {}
        self._runs = {run.name: run for run in reply.runs}

    def run(self, name: str) -> RunStatus | None:
        return self._runs.get(name)

    def encoded(self, name: str | None = None) -> bytes:
        """A StatusReply as JSON: all runs, or only the one of this name (none, if it is not there)."""
        if name not in self._encoded:
            runs = self.reply.runs if name is None else [run for run in self.reply.runs if run.name == name]
            self._encoded[name] = _json(self.reply.model_copy(update={"runs": runs}))
        return self._encoded[name]

    def encoded_run(self, run: RunStatus) -> bytes:
        """A RunReply as JSON."""
        head = self.reply
        return _json(
            RunReply(at_ms=head.at_ms, redis=head.redis, server=head.server, has_actions=head.has_actions, run=run)
        )


class Publisher:
    """Makes the snapshots out of what the sampler has read."""

    def __init__(self, sampler: Sampler, settings: ApiSettings) -> None:
        self.closing = asyncio.Event()
        self.task: asyncio.Task[None] | None = None
        self._sampler = sampler
        self._settings = settings
        self._next = asyncio.Event()
        self._seats: set[int] = set()
        self.snapshot = self.make()

    @contextmanager
    def seat(self) -> Generator[int, None, None]:
        """The lowest number that no other viewer has."""
        number = next(number for number in count() if number not in self._seats)
        self._seats.add(number)
        try:
            yield number
        finally:
            self._seats.discard(number)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None, None]:
        """Publishes in the background of the block."""
        self.snapshot = self.make()
        self.task = task = asyncio.create_task(self._run())
        task.add_done_callback(say_why_it_ended)
        try:
            yield
        finally:
            self.close()
            task.cancel()
            await asyncio.wait([task])

    @property
    def has_ended(self) -> bool:
        """A fault ended the publisher: nothing new is shown, and the process should be started again."""
        return self.task is not None and self.task.done()

    def close(self) -> None:
        """No stream goes on, and none begins."""
        self.closing.set()
        self._next.set()

    async def next(self) -> Snapshot | None:
        """The next snapshot; None: it is over."""
        with suppress(TimeoutError):
            async with asyncio.timeout(2 * _PATIENCE):
                await self._next.wait()
        return None if self.closing.is_set() else self.snapshot

    def make(self) -> Snapshot:
        """A snapshot of this moment."""
        now = time.monotonic()
        views = [self._view(book, now) for _, book in sorted(self._sampler.books.items())]
        return Snapshot(
            StatusReply(
                at_ms=time.time_ns() // 1_000_000,
                redis=redis_view(self._sampler, now),
                server=_server_view(self._sampler.server),
                has_actions=bool(self._settings.token.get_secret_value()),
                runs=[view for view in views if view],
            )
        )

    def run_now(self, book: RunBook) -> RunStatus | None:
        """A run that is newer than the snapshot; None: it can't be read."""
        return self._view(book, time.monotonic())

    def _view(self, book: RunBook, now: float) -> RunStatus | None:
        """A run whose keys hold nonsense must not take the others from the page."""
        try:
            fleets = self._sampler.reports.views(book.broker.keys.run, now)
            return run_view(book, book.look, now, self._settings, fleets) if book.look else None
        except UNREADABLE as error:
            book.problem = f"the keys of the run can't be shown: {error}"
            return None

    async def _run(self) -> None:
        while True:
            await self._sampler.next_look(_PATIENCE)
            self.snapshot = self.make()
            self._next.set()
            self._next = asyncio.Event()


def redis_view(sampler: Sampler, now: float) -> RedisView:
    """Does Redis answer: away is a failure, a long silence, or answers that take too long."""
    if sampler.answered_at is None:
        state = "away" if sampler.failure else "starting"
        return RedisView(state=state, reason=sampler.failure, age_seconds=None)
    age = max(0.0, now - sampler.answered_at)
    reason = sampler.failure
    if reason is None and age > AWAY_SECONDS:
        reason = f"no answer for {age:.0f} s"
    elif reason is None and sampler.took > AWAY_SECONDS:
        reason = f"answers take {sampler.took:.0f} s"
    return RedisView(state="away" if reason else "ok", reason=reason, age_seconds=age)


def _server_view(server: Server | None) -> ServerView | None:
    if server is None:
        return None
    told = asdict(server)
    return ServerView(
        name=told["name"],
        version=told["version"],
        used_memory_bytes=told["used_memory"],
        maxmemory_bytes=told["maxmemory"],
        maxmemory_policy=told["maxmemory_policy"],
        has_aof=told["aof"],
        problems=server.problems(),
    )


def _json(model: BaseModel) -> bytes:
    return model.model_dump_json().encode()
