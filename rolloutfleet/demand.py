"""How many workers a run can use: the number that the API answers and an operator scales to. Pure.

Invariants: the number lies within the bounds; it grows only where more workers would be given work. One share decides
the direction: while the trainer or the producer was the bottleneck for at least half of the cool-down it only shrinks,
otherwise it only grows, so that a run that goes back and forth between the two every few seconds does not move it.
"""

from dataclasses import dataclass
from math import ceil

from rolloutfleet.window import Reason, Window

_FULL = 0.9  # slots are full: no worker's last place is ever quite busy
_SPARE = 1.1  # room that shrinking leaves above what was busy
_MOSTLY = 0.5  # share of the cool-down
_MOST_AT_ONCE = 2  # times as many workers at most, until those have come


@dataclass(frozen=True, slots=True)
class Bounds:
    """The fewest and the most workers."""

    least: int = 1
    most: int = 1000


@dataclass(frozen=True, slots=True)
class Demand:
    """What the decision needs to know. `busy` and `slack` are over the cool-down; None: not known for so long yet."""

    window: Window
    is_auto: bool  # sample_concurrency grows with the workers
    reason: Reason  # what holds the run back now
    queued: int  # groups
    workers: int  # live, and not told to drain
    slots: int  # of these
    busy_now: int | None  # slots in use, as the workers told
    busy: float | None  # slots that were busy on average
    slack: float | None  # share (0 to 1) of the time behind completed_full, pace or no_prompts
    bounds: Bounds = Bounds()


def desired_workers(state: Demand) -> tuple[int, str]:
    """(workers, reason for a person)."""
    number, reason = _wanted(state)
    held = max(state.bounds.least, min(state.bounds.most, number))
    if held != number:
        reason += f"; held at the {'least' if held > number else 'most'} of {held}"
    return held, reason


def _wanted(state: Demand) -> tuple[int, str]:
    if state.reason is Reason.PAUSED:
        return state.workers, "the run is paused: the number stays"
    if state.workers == 0:
        return (1, "prompts wait and no worker is there") if state.queued else (0, "nothing is to be done")
    if state.busy is not None and state.slack is not None and state.slack >= _MOSTLY:
        return _shrunk(state, state.busy), f"{_bottleneck(state)}, for most of the time"
    if state.reason in (Reason.COMPLETED_FULL, Reason.PACE, Reason.NO_PROMPTS):
        return state.workers, f"{_bottleneck(state)}, but not for long enough"
    if state.slots == 0:
        return state.workers, "the workers have no slots yet"
    if _every_place_is_taken(state):
        return _grown(state)
    return state.workers, "prompts wait, but slots idle: more workers would idle, too"


def _bottleneck(state: Demand) -> str:
    known = {
        Reason.COMPLETED_FULL: "the trainer is the bottleneck",
        Reason.PACE: "the trainer sets the pace (max_staleness)",
        Reason.NO_PROMPTS: "no prompt group waits",
    }
    return known.get(state.reason, "the trainer or the producer was the bottleneck")


def _every_place_is_taken(state: Demand) -> bool:
    """Slots that idle behind the slowest sample of a group are taken, too: nobody else is given them."""
    if state.reason is Reason.BUSY or (state.is_auto and state.reason is Reason.ACTIVE_FULL):
        return True
    return state.busy_now is not None and state.busy_now >= _FULL * state.slots


def _grown(state: Demand) -> tuple[int, str]:
    """As many as the waiting groups and the window give work to; W of `auto` would grow with them."""
    each = state.slots / state.workers
    samples = state.window.outstanding + state.queued * state.window.n
    if not state.is_auto:
        samples = min(samples, state.window.size * state.window.n)
    number = min(ceil(samples / each), state.workers * _MOST_AT_ONCE)
    if number <= state.workers:
        return state.workers, "every place is taken, and the window or the line holds no work for more workers"
    return number, "prompts wait and every place is taken"


def _shrunk(state: Demand, busy: float) -> int:
    """As many as the cool-down kept busy, and a tenth to spare; those that hold work now are never too many."""
    each = max(1.0, state.slots / state.workers)
    at_work = max(busy * _SPARE, float(state.busy_now or 0))
    return min(state.workers, max(ceil(at_work / each), 1 if state.queued or state.window.active else 0))
