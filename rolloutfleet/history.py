"""What happened over a span: points of a run, kept for an hour, and the arithmetic over them. Pure.

Invariants: a span longer than what is kept has no answer (None), never 0; points of a run that was made anew, or whose
counters went back (the broker lost its last second), are not mixed with those before.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from rolloutfleet.status import Status
from rolloutfleet.window import Reason

FINE_SECONDS, FINE_POINTS = 1.0, 920  # 15 min, and a little more
COARSE_SECONDS, COARSE_POINTS = 10.0, 365  # an hour, and a little more
_LONGEST_GAP_MS = 5000  # what a claim accounts for at most (parts/window.lua)
_STRETCH = 1.5  # an answer for 1 min may come from 1.5 min where points are missing, not from 10


@dataclass(frozen=True, slots=True)
class Point:
    """A run at one moment. `at`: seconds of a clock that never goes back; counters and `behind_ms` only grow."""

    at: float
    at_ms: int  # server time
    epoch: str
    counters: Mapping[str, int]
    behind_ms: Mapping[str, int]
    reason: Reason
    busy: int | None  # slots, as the workers told
    slots: int
    active: int
    waiting: int
    queued: int
    window: int


@dataclass(frozen=True, slots=True)
class Spent:
    """Milliseconds behind each reason over a span of `seconds`."""

    seconds: float
    behind_ms: Mapping[str, int]

    @property
    def observed_seconds(self) -> float:
        return min(self.seconds, sum(self.behind_ms.values()) / 1000)

    @property
    def shares(self) -> dict[str, float]:
        """Reason -> fraction of the observed time; empty if nothing was observed."""
        total = sum(self.behind_ms.values())
        return {reason: ms / total for reason, ms in sorted(self.behind_ms.items()) if ms > 0} if total else {}


class History:
    """The points of one run: each second of the last 15 min, every tenth of the last hour."""

    def __init__(self) -> None:
        self.fine: deque[Point] = deque(maxlen=FINE_POINTS)
        self.coarse: deque[Point] = deque(maxlen=COARSE_POINTS)
        self.reason_since: float | None = None  # `at` from which the reason is as now; None: before the first point

    @property
    def last(self) -> Point | None:
        return self.fine[-1] if self.fine else None

    def add(self, point: Point) -> None:
        last = self.last
        if last and _is_another_life(last, point):
            self.fine.clear()
            self.coarse.clear()
            last, self.reason_since = None, None
        if last and last.reason != point.reason:
            self.reason_since = point.at
        self.fine.append(point)
        if not self.coarse or point.at - self.coarse[-1].at >= COARSE_SECONDS - FINE_SECONDS / 2:
            self.coarse.append(point)

    def before(self, seconds: float) -> Point | None:
        """The newest point that is at least so old; None: none is, or only one much older."""
        last = self.last
        if last is None:
            return None
        limit = last.at - seconds + FINE_SECONDS / 2
        for points in (self.fine, self.coarse):
            if points and points[0].at <= limit:
                found = next(point for point in reversed(points) if point.at <= limit)
                return found if last.at - found.at <= seconds * _STRETCH else None
        return None

    def rate(self, counter: str, seconds: float) -> float | None:
        """How much a counter grew per second. None: the span is not known, or nothing counts this."""
        then, now = self.before(seconds), self.last
        return None if then is None or now is None else growth(then, now, counter)

    def spent(self, seconds: float) -> Spent | None:
        """How the last `seconds` were spent; None: not known for so long."""
        then, now = self.before(seconds), self.last
        if then is None or now is None:
            return None
        behind = {reason: ms - then.behind_ms.get(reason, 0) for reason, ms in now.behind_ms.items()}
        return Spent(now.at - then.at, behind)

    def utilisation(self, seconds: float) -> float | None:
        """Busy share (0 to 1) of the slots' time; None: not known, or there were no slots."""
        busy, slots = self.rate("busy_ms", seconds), self.rate("slot_ms", seconds)
        return min(1.0, busy / slots) if busy is not None and slots else None

    def busy(self, seconds: float) -> float | None:
        """Slots that were busy on average; None: not known."""
        busy = self.rate("busy_ms", seconds)
        return None if busy is None else busy / 1000


def growth(then: Point, now: Point, counter: str) -> float | None:
    """Per second between two points; None: no time between them, or nobody counts this."""
    if now.at <= then.at or counter not in now.counters:
        return None
    return (now.counters[counter] - then.counters.get(counter, 0)) / (now.at - then.at)


def point_of(status: Status, at: float) -> Point:
    """The point of a look that was taken at `at`. What every run counts is 0 until it is counted; `tokens` is not."""
    counters = {name: int(value) for name, value in status.stats.items() if not name.startswith("behind:")}
    counted = dict.fromkeys(("completed", "samples", "busy_ms", "slot_ms"), 0) | counters
    busy = [int(worker.facts["busy"]) for worker in status.workers if isinstance(worker.facts.get("busy"), int)]
    return Point(
        at=at,
        at_ms=status.now_ms,
        epoch=status.state.get("epoch", ""),
        counters=counted,
        behind_ms=behind_ms(status),
        reason=status.reason,
        busy=sum(busy) if busy or not status.workers else None,
        slots=sum(worker.slots for worker in status.workers),
        active=status.window.active,
        waiting=status.window.waiting,
        queued=status.queued,
        window=status.window.size,
    )


def behind_ms(status: Status) -> dict[str, int]:
    """Time behind each reason, with the time since the last claim, which the next one will account for."""
    behind = {name.removeprefix("behind:"): int(ms) for name, ms in status.stats.items() if name.startswith("behind:")}
    if "gate_at" in status.state:
        since = max(0, min(_LONGEST_GAP_MS, status.now_ms - int(status.state["gate_at"])))
        behind[status.gate] = behind.get(status.gate, 0) + since
    return behind


def whole_run(status: Status) -> Spent | None:
    """How the run's whole life was spent; None: it does not say when it was made."""
    born = status.state.get("epoch", "").split(".")[0]
    if not born.isdigit():
        return None
    return Spent(max(0.0, status.now_ms / 1000 - int(born)), behind_ms(status))


def _is_another_life(last: Point, point: Point) -> bool:
    went_back = any(point.counters.get(name, 0) < value for name, value in last.counters.items())
    return last.epoch != point.epoch or went_back
