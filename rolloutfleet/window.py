"""The window: may a worker claim a group now, and if not, why. Pure; scripts/parts/window.lua is its twin.

Invariants: after a claim that grants, active <= W, or the group is the only one; an unknown number closes the window.
The twin is tested against this, value by value.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal

type Refill = Literal["group", "sample"]

AUTO_OVERCOMMIT = 1250  # permille; see `overcommit_of`


class Reason(StrEnum):
    """What holds the fleet back. `sentence` is what a person reads."""

    OPEN = "open"
    ACTIVE_FULL = "active_full"
    COMPLETED_FULL = "completed_full"
    NO_PROMPTS = "no_prompts"
    PAUSED = "paused"
    NO_CAPACITY = "no_capacity"
    PACE = "pace"
    BUSY = "busy"

    @property
    def sentence(self) -> str:
        return _SENTENCES[self]


_SENTENCES = {
    Reason.OPEN: "the window is open",
    Reason.ACTIVE_FULL: "the window is full: as many groups are active as sample_concurrency allows",
    Reason.COMPLETED_FULL: "the trainer is the bottleneck: completed groups wait to be taken",
    Reason.NO_PROMPTS: "no prompt group waits",
    Reason.PAUSED: "the run is paused",
    Reason.NO_CAPACITY: "no worker is there: sample_concurrency is auto, and nobody reports slots",
    Reason.PACE: "the trainer sets the pace: more groups would be older than max_staleness when it comes to them",
    Reason.BUSY: "every worker's own places are full",
}


@dataclass(frozen=True, slots=True)
class Pace:
    """The bound on staleness: what is generated now is trained on after all that is ahead of it.

    `updates` (published weight versions) and `trained` (groups that were acked) are counted since the same moment;
    they are the run's books, see scripts/parts/pace.lua.
    """

    max_staleness: int  # weight versions
    groups_per_update: int
    updates: int = 0
    trained: int = 0

    def left(self, under_way: int) -> int:
        """Groups that may be claimed. `under_way`: active, waiting and taken ones."""
        return (self.max_staleness + self.updates + 1) * self.groups_per_update - (self.trained + under_way)

    def after_update(self, taken: int) -> "Pace":
        """The books after one more update, squared: one that trained on fewer groups (the first weights, or the same
        ones published again) opens nothing, and groups that no update will ever answer for do not close it for good."""
        updates = self.updates + 1
        least = updates * self.groups_per_update - taken  # the trainer may publish before it acks
        most = (updates + 1) * self.groups_per_update  # it may have acked the next update's groups already
        return replace(self, updates=updates, trained=min(max(self.trained, least), most))


@dataclass(frozen=True, slots=True)
class Window:
    """What the decision needs to know. Counts are groups, but for `samples`, `outstanding` and `n` (samples)."""

    samples: int  # sample_concurrency; with "auto" the slots of all live workers
    n: int
    active: int = 0  # leases
    outstanding: int = 0  # sum of max(1, samples left) over the leases
    waiting: int = 0  # completed groups that no trainer has taken
    taken: int = 0  # completed groups that a trainer holds
    refill: Refill = "group"
    overcommit: int = 1000  # permille
    open_cap: int = 4
    paused: bool = False
    pace: Pace | None = None  # None: staleness has no bound here

    @property
    def size(self) -> int:
        """W, in groups."""
        return window_size(self.samples, self.n, self.overcommit)

    @property
    def used(self) -> int:
        """Active groups as the gate counts them."""
        return self.active if self.refill == "group" else -(-self.outstanding // self.n)

    @property
    def pace_left(self) -> int | None:
        """Groups that may be claimed before the next update; None: staleness has no bound here."""
        return None if self.pace is None else self.pace.left(self.active + self.waiting + self.taken)

    def closed(self) -> Reason | None:
        """Why no group may be claimed, whichever it is; None: the window is open."""
        if self.paused:
            return Reason.PAUSED
        if self.size == 0:
            return Reason.NO_CAPACITY
        if self.waiting >= self.size:
            return Reason.COMPLETED_FULL
        if self.pace_left is not None and self.pace_left <= 0:
            return Reason.PACE
        if self.used >= self.size:
            return Reason.ACTIVE_FULL
        if self.refill == "sample" and self.active >= self.open_cap * self.size:
            return Reason.ACTIVE_FULL
        return None

    def fits(self, left: int) -> bool:
        """Whether a group that needs `left` more samples has room; always, if it would be the only one."""
        if self.refill == "group" or self.outstanding == 0:
            return True
        return self.outstanding + max(1, left) <= self.n * self.size


def overcommit_of(given: int | Literal["auto"], samples: int | Literal["auto"], refill: Refill) -> int:
    """The permille that `auto` means: a quarter more where W follows the slots and samples free the places.

    A group runs where it was claimed, so each engine has up to n - 1 samples too many or too few. With just as many
    samples as slots, what queues at one engine is missing at another: of s slots each about n / 8 idle at the least.
    From about 1 + n / 2s on none does. A number of samples that somebody set is kept to the sample.
    """
    if given != "auto":
        return given
    return AUTO_OVERCOMMIT if refill == "sample" and samples == "auto" else 1000


def window_size(samples: int, n: int, overcommit: int = 1000) -> int:
    """W = ceil(overcommit / 1000 * samples / n), in integers: 512 samples in eights are 64 groups, 10 in fours 3."""
    return -(-overcommit * samples // (1000 * n))


def sample_refill_share(room: float, n: int, slots: int, engines: int) -> float:
    """Share of `slots`, on so many engines, that refill = sample can keep busy; `room`: samples that the window holds.

    Groups of n come whole and run where they were claimed. So the free slots of an engine rise, one by one, by n - 1
    until it gets the next group; where they are below 0, samples queue there that are missing elsewhere. Even if each
    group goes to the neediest engine, that one has half of n - 1 free by then, its part of the other half, and of
    what the room lacks.
    """
    spread = n - 1
    most = spread / 2 * (1 + 1 / engines) + (slots - room) / engines
    if most <= 0:
        return 1.0
    idle = most - spread / 2 if most >= spread else most**2 / (2 * spread)
    return max(0.0, 1 - engines * idle / slots)


def decide(window: Window, lefts: list[int], places: int) -> tuple[int, Reason]:
    """How many of the groups in line (`lefts`: their missing samples) a worker with `places` may claim; why no more."""
    granted = 0
    while True:
        reason = window.closed()
        if reason:
            return granted, reason
        if granted == len(lefts):
            return granted, Reason.NO_PROMPTS
        if not window.fits(lefts[granted]):
            return granted, Reason.ACTIVE_FULL
        if granted == places:
            return granted, Reason.BUSY
        outstanding = window.outstanding + max(1, lefts[granted])
        window = replace(window, active=window.active + 1, outstanding=outstanding)
        granted += 1
