"""Heartbeats, from a thread with an event loop and a client of its own: a main loop that is blocked loses no lease.

Invariants: a broker that can't be reached is no answer: the times since the last answered beat are kept, and it is
asked again; what the broker says is handed to the main loop, and nothing is decided here.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace

from rolloutfleet.broker import Beat, Broker
from rolloutfleet.errors import BrokerUnavailable
from rolloutfleet.metrics import WorkerMetrics
from rolloutfleet.redis import connect
from worker.waits import within

log = logging.getLogger("worker.heartbeat")

type Told = Callable[[str, list[str]], None]


class Heart:
    """Beats every `seconds()`, which follows the run's config.

    `beat` is called in the thread and must be quick; `told` is called in the main loop.
    """

    def __init__(self, redis_url: str, run: str, seconds: Callable[[], float], metrics: WorkerMetrics) -> None:
        self._redis_url = redis_url
        self._run = run
        self._seconds = seconds
        self._metrics = metrics
        self._answered_at = time.monotonic()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._now: asyncio.Event | None = None
        self._stopping = False
        self._thread: threading.Thread | None = None

    @property
    def is_answered(self) -> bool:
        """Whether the broker answered one of the last beats."""
        return time.monotonic() - self._answered_at < 3 * self._seconds() + 1

    def start(self, beat: Callable[[], Beat], told: Told) -> None:
        main = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._live, args=(beat, told, main), name="heartbeat", daemon=True)
        self._thread.start()

    def beat_now(self) -> None:
        """Something changed that the fleet should know before the next beat is due."""
        loop, now = self._loop, self._now
        if loop is not None and now is not None and not loop.is_closed():
            loop.call_soon_threadsafe(now.set)

    async def stop(self) -> None:
        """The thread ends; waits for it, but no longer than a second."""
        self._stopping = True
        self.beat_now()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, 1.0)

    def _live(self, beat: Callable[[], Beat], told: Told, main: asyncio.AbstractEventLoop) -> None:
        try:
            asyncio.run(self._beat_on(beat, lambda word, lost: _hand_over(main, told, word, lost)))
        except Exception:
            # Without heartbeats every lease of this process ends: the process must not go on as if nothing were.
            log.exception("the heartbeat ended")
            _hand_over(main, told, "broken", [])

    async def _beat_on(self, beat: Callable[[], Beat], told: Told) -> None:
        self._now = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        async with connect(self._redis_url, connections=2) as client:
            broker = Broker(client, self._run, retry_seconds=min(self._seconds(), 5.0))
            busy_ms = slot_ms = 0
            while not self._stopping:
                self._now.clear()
                current = beat()
                busy_ms, slot_ms = busy_ms + current.busy_ms, slot_ms + current.slot_ms
                try:
                    word, lost = await broker.heartbeat(replace(current, busy_ms=busy_ms, slot_ms=slot_ms))
                except BrokerUnavailable as error:
                    self._metrics.beats_failed.inc()
                    log.warning("no answer to a heartbeat; work goes on: %s", error)
                    await within(self._now, min(1.0, self._seconds()))
                    continue
                busy_ms = slot_ms = 0
                self._answered_at = time.monotonic()
                told(word, lost)
                await within(self._now, self._seconds())


def _hand_over(main: asyncio.AbstractEventLoop, told: Told, word: str, lost: list[str]) -> None:
    try:
        main.call_soon_threadsafe(told, word, lost)
    except RuntimeError:
        return  # the main loop is closed: the process ends
