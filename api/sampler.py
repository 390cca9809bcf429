"""The one reader behind all viewers: looks at every known run each second, and keeps what it saw.

Invariants:
- What Redis is sent does not depend on who watches: /status, /metrics and /events are answered from the last look.
- A look that fails or lasts leaves the one before in place, and its age grows; nothing is shown as newer than it is.
- Runs are found by walking the keys a bounded piece at a time: the commands of a second don't grow with the queues.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from redis.exceptions import RedisError

from api.discovery import Discovery
from api.fleets import Reports, look_at_fleets
from api.look import Look, Memory, oldest_lease, read_look
from rolloutfleet.broker import Broker
from rolloutfleet.errors import BrokerUnavailable
from rolloutfleet.history import History, point_of
from rolloutfleet.redis import Client
from rolloutfleet.server import Server, read_server
from rolloutfleet.stuck import Held, Watch, quiet_seconds, watch

log = logging.getLogger("api.sampler")

SECONDS = 1.0
AWAY_SECONDS = 2.5  # without an answer: two looks were missed
_SERVER_SECONDS = 10.0
_HELD_SECONDS = 10.0

UNREADABLE = (ValueError, LookupError, TypeError, AttributeError)  # somebody wrote into the keys by hand
_FAILURES = (BrokerUnavailable, RedisError, OSError, TimeoutError)


@dataclass(slots=True)
class RunBook:
    """What is known of one run. `look` was asked for at `at` (monotonic seconds)."""

    broker: Broker
    look: Look | None = None
    at: float = float("-inf")
    problem: str | None = None  # the run answers, but can't be read
    history: History = field(default_factory=History)
    watch: Watch | None = None
    held: Held | None = None
    held_at: float = float("-inf")
    memory: Memory = field(default_factory=Memory)


class Sampler:
    """Reads, and tells who waits. After half of `stuck_seconds` without progress the oldest lease is looked for."""

    def __init__(self, client: Client, stuck_seconds: float) -> None:
        self.books: dict[str, RunBook] = {}
        self.server: Server | None = None
        self.reports = Reports()
        self.answered_at: float | None = None  # monotonic seconds
        self.failure: str | None = None  # of the last look; None: it was answered
        self.took = 0.0  # seconds until the last look was answered
        self.task: asyncio.Task[None] | None = None
        self._client = client
        self._stuck_seconds = stuck_seconds
        self._discovery = Discovery(client)
        self._server_at = float("-inf")
        self._looked = asyncio.Event()

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None, None]:
        """Looks in the background of the block, which begins when the first look was answered, or after a second."""
        self.task = task = asyncio.create_task(self._run())
        task.add_done_callback(say_why_it_ended)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(SECONDS):
                    await self._looked.wait()
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])

    @property
    def has_ended(self) -> bool:
        """A fault ended the reader: what is shown only grows older, and the process should be started again."""
        return self.task is not None and self.task.done()

    async def next_look(self, seconds: float) -> None:
        """Returns when a look has ended, well or not, or after so long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._looked.wait()

    async def find(self, run: str) -> RunBook | None:
        """The book of a run, also of one that was made this moment; None: there is none. Errors: BrokerUnavailable."""
        if run not in self.books and await self._discovery.exists(run):
            await self.look_at(self._open(run))
        return self.books.get(run)

    async def _run(self) -> None:
        while True:
            began = time.monotonic()
            await self.look()
            self._looked.set()
            self._looked = asyncio.Event()
            await asyncio.sleep(max(0.05, began + SECONDS - time.monotonic()))

    async def look(self) -> None:
        """One look at everything."""
        began = time.monotonic()
        try:
            for run in await self._discovery.step():
                self._open(run)
            await self._look_at_runs()
            await self._look_at_fleets()
            await self._look_at_server()
        except _FAILURES as error:
            self._failed(error)
        else:
            self._answered(began)

    async def _look_at_runs(self) -> None:
        looks = [self.look_at(book) for book in self.books.values()]
        for result in await asyncio.gather(*looks, return_exceptions=True):
            if isinstance(result, BaseException):
                raise result

    def _open(self, run: str) -> RunBook:
        # No retries: the next look comes in a second anyway.
        return self.books.setdefault(run, RunBook(Broker(self._client, run, retry_seconds=0)))

    async def look_at(self, book: RunBook) -> None:
        """One look at a run. Errors: BrokerUnavailable; one that can't be read keeps its last look and says so."""
        began = time.monotonic()
        try:
            look = await read_look(book.broker, book.memory)
            if look is None:
                self._close(book.broker.keys.run)
                return
            point = point_of(look.status, began)
        except UNREADABLE as error:
            book.problem = f"the keys of the run can't be read: {error}"
            return
        book.look, book.at, book.problem = look, began, None
        book.history.add(point)
        book.watch = watch(book.watch, look.status, book.at)
        await self._look_for_the_oldest(book, look, book.watch)

    def _close(self, run: str) -> None:
        self.books.pop(run, None)
        self._discovery.forget(run)

    async def _look_for_the_oldest(self, book: RunBook, look: Look, watched: Watch) -> None:
        if quiet_seconds(watched, book.at) < self._stuck_seconds / 2:
            book.held, book.held_at = None, float("-inf")
        elif book.at - book.held_at >= _HELD_SECONDS:
            book.held, book.held_at = await oldest_lease(book.broker, look.status.now_ms), book.at

    async def _look_at_fleets(self) -> None:
        """All at once: a fleet without workers is found by its run only in its report."""
        book = next(iter(self.books.values()), None)
        if book is not None:
            self.reports = await look_at_fleets(book.broker.calls, time.monotonic())

    async def _look_at_server(self) -> None:
        if time.monotonic() - self._server_at >= _SERVER_SECONDS:
            self.server = await read_server(self._client)
            self._server_at = time.monotonic()

    def _answered(self, began: float) -> None:
        if self.failure:
            log.info("Redis answers again")
        self.failure, self.answered_at = None, began
        self.took = time.monotonic() - began

    def _failed(self, error: Exception) -> None:
        if not self.failure:
            log.warning("Redis does not answer: %s", error)
        self.failure = str(error) or type(error).__name__


def say_why_it_ended(task: asyncio.Task[None]) -> None:
    """A task that a fault ends, ends quietly; /healthz fails from then on."""
    if not task.cancelled() and (error := task.exception()):
        log.error("what reads or publishes has ended: this process has to be started again", exc_info=error)
