"""The live view: asks for the run's status again and again, and shows it with the job's own progress."""

import asyncio
import time
from collections.abc import Callable, Sequence

from deploy.local.consumer import Consumer
from deploy.local.screen import Screen
from rolloutfleet import view
from rolloutfleet.broker import Broker
from rolloutfleet.errors import BrokerUnavailable
from rolloutfleet.status import Status, read_status

_LIVE_SECONDS = 0.5
_PLAIN_SECONDS = 2.0


class Live:
    """`run` shows until `ended` is set. `kills` tells how many workers were killed so far."""

    def __init__(
        self, screen: Screen, broker: Broker, consumer: Consumer, total: int, kills: Callable[[], int]
    ) -> None:
        self.ended = asyncio.Event()
        self._screen = screen
        self._broker = broker
        self._consumer = consumer
        self._total = total
        self._kills = kills
        self._began = time.monotonic()
        self._speed = Speed()

    async def run(self) -> None:
        every = _LIVE_SECONDS if self._screen.is_live else _PLAIN_SECONDS
        while not self.ended.is_set():
            await self._show()
            try:
                await asyncio.wait_for(self.ended.wait(), every)
            except TimeoutError:
                continue
        self._screen.clear()

    async def _show(self) -> None:
        try:
            status = await read_status(self._broker)
        except BrokerUnavailable as error:
            self._screen.draw([f"Redis does not answer: {error}"])
            return
        if self._screen.is_live:
            self._screen.draw(self.block(status))
        else:
            self._screen.say(self.line(status))

    def block(self, status: Status) -> Sequence[str]:
        """The picture: the job's progress, then the run."""
        seen, width = self._consumer.seen, self._screen.width
        over = self._consumer.over
        kills = f", {self._kills()} kills" if self._kills() else ""
        return [
            "",
            f"trained   {view.bar(over, self._total, width - 20)} {over}/{self._total}",
            f"samples   {status.stat('samples')}, {seen.tokens:,} tokens, {self._rate():,.0f} tokens/s"
            f", {self._seconds:.0f} s{kills}",
            status.sentence,
            *view.lines(status, width)[1:],  # without the name of the run, the sentence fits into 80 columns
        ]

    def line(self, status: Status) -> str:
        """One plain line."""
        over, window = self._consumer.over, status.window
        dead = f", {status.dead} dead" if status.dead else ""
        return (
            f"{self._seconds:5.1f} s  {over}/{self._total} groups{dead}, {status.stat('samples')} samples, "
            f"{self._rate():,.0f} tokens/s, active {window.used}/{window.size}, waiting {window.waiting}; "
            f"{status.sentence}"
        )

    @property
    def _seconds(self) -> float:
        return time.monotonic() - self._began

    def _rate(self) -> float:
        return self._speed.of(self._consumer.seen.tokens, time.monotonic())


class Speed:
    """Growth of a counter per second over the last `seconds`."""

    def __init__(self, seconds: float = 5.0) -> None:
        self._seconds = seconds
        self._points: list[tuple[float, int]] = []

    def of(self, number: int, now: float) -> float:
        self._points.append((now, number))
        while len(self._points) > 2 and self._points[1][0] < now - self._seconds:
            del self._points[0]
        then, before = self._points[0]
        return (number - before) / (now - then) if now > then else 0.0
