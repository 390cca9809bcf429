"""The pod's sample slots: how many requests its engine serves at once, and how long they were busy.

Invariants: a slot is held for the time of one request and given back however that ends; who waits longest is next;
fewer slots take nothing from who holds one; the times may be read from another thread; while no slots are offered
(draining), idle slots do not count as slot time.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from rolloutfleet.settings import RunConfig
from rolloutfleet.window import window_size

_GROUP_SHARES = 2  # of most groups that a pod holds in group refill, only the last sample still runs


def room(slots: int, unmade: int, held: int, config: RunConfig) -> int:
    """How many more groups a pod may claim: those that its free slots have samples for.

    `unmade`: samples of the groups that it holds which still need a slot. How many groups are active is for the window
    to say: whichever engine has a free slot may claim, and none hoards what another could begin. The pod's own slots
    bound what it holds altogether, so that one whose rewards are slow does not take the whole window.
    """
    shares = config.open_cap if config.refill == "sample" else _GROUP_SHARES
    most = shares * max(1, window_size(slots, config.n, config.permille))
    return max(0, min(-(-(slots - unmade) // (config.n + config.redundant)), most - held))


class Slots:
    """`number` slots, at first as many as there will be; the event loop's own, but for `take_times` and `offer`."""

    def __init__(self, number: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.number = number
        self.most = number
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._clock = clock
        self._lock = threading.Lock()
        self._offered = number
        self._busy = 0
        self._since = clock()
        self._busy_seconds = 0.0
        self._slot_seconds = 0.0

    @property
    def busy(self) -> int:
        return self._busy

    @property
    def offered(self) -> int:
        """Slots that this worker reports: none while it takes no work."""
        return self._offered

    def offer(self, number: int) -> None:
        with self._lock:
            self._count_time()
            self._offered = number

    def resize(self, number: int) -> None:
        """Offers so many, unless none is offered now. With fewer than are busy, none is given until enough are back."""
        self.number = number
        if self._offered:
            self.offer(number)
        self._pass_on()

    @asynccontextmanager
    async def hold(self) -> AsyncGenerator[None]:
        if self._busy < self.number and not self._waiting:
            self._add(1)
        else:
            await self._wait()
        try:
            yield
        finally:
            self._give_back()

    async def _wait(self) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn  # who passed it on has counted it
        except asyncio.CancelledError:
            if not turn.cancelled():
                self._give_back()
            raise

    def _give_back(self) -> None:
        self._add(-1)
        self._pass_on()

    def _pass_on(self) -> None:
        while self._waiting and self._busy < self.number:
            turn = self._waiting.popleft()
            if not turn.done():  # else its waiter has left
                self._add(1)
                turn.set_result(None)

    def take_times(self) -> tuple[int, int]:
        """(busy ms, slot ms) since the last call, summed over slots; what is less than a ms is kept for the next."""
        with self._lock:
            self._count_time()
            busy, slot = int(self._busy_seconds * 1000), int(self._slot_seconds * 1000)
            self._busy_seconds -= busy / 1000
            self._slot_seconds -= slot / 1000
        return busy, slot

    def _add(self, change: int) -> None:
        with self._lock:
            self._count_time()
            self._busy += change

    def _count_time(self) -> None:
        now = self._clock()
        passed, self._since = now - self._since, now
        self._busy_seconds += passed * self._busy
        self._slot_seconds += passed * max(self._busy, self._offered)
