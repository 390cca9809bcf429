"""Walks every reachable world of a scope, breadth-first, and checks the invariants in each.

I10 is reachability: once all worlds are known, those at rest are followed backwards over faultless moves, and every
world must be met. A world is known by its 64-bit hash (a collision would hide a world; with a million worlds that
happens once in ten million walks), and together with its mirror, in which two workers have exchanged their names.
Breadth-first means that a trace to a broken invariant is a shortest one.
"""

import gc
import time
from array import array
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.model.claims import claim
from tests.model.environment import moves
from tests.model.guards import without
from tests.model.invariants import broken_in
from tests.model.loading import broken_by_loading
from tests.model.moves import Move
from tests.model.state import Broker
from tests.model.steps import wakes
from tests.model.world import Scope, World, is_at_rest, start, swapped

UNREACHABLE = "I10 rest"
UNWOKEN = "wake"
SEEN_AT_NEXT_POLL = ("push", "trim_done")
"""Events that let a claim succeed and are no steps of the library."""


@dataclass(slots=True)
class Outcome:
    """`broken` maps an invariant to the labels of the moves that lead to its breach."""

    states: int = 0
    moves: int = 0
    at_rest: int = 0
    seconds: float = 0.0
    is_exhausted: bool = False
    broken: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    opened_by: set[str] = field(default_factory=set[str])
    """The steps after which a claim would succeed that wouldn't have before."""


def may_claim(broker: Broker) -> bool:
    """Whether a worker that asks now is granted something, at the latest when what is in `again` is due."""
    due = tuple(sorted(broker.again))
    dues = [(), *((id,) for id in due)]
    return any(claim(broker, "probe", "probe/0", 1, pick, ())[1].grants for pick in dues)


class Walk:
    """One exploration. A world is a number in order of discovery; its value is kept only until it is expanded."""

    def __init__(self, scope: Scope, seconds: float, stop_at: frozenset[str]) -> None:
        self.scope = scope
        self.seconds = seconds
        self.stop_at = stop_at
        self.outcome = Outcome()
        self.numbers: dict[int, int] = {}
        self.frontier: list[World | None] = []
        self.parents = array("q")
        self.labels: list[str] = []
        self.claimable = bytearray()
        self.resting: list[int] = []
        self.sources, self.targets = array("q"), array("q")

    def run(self) -> Outcome:
        began = time.monotonic()
        self.discover(start(self.scope), -1, "")
        number = 0
        while number < len(self.frontier) and not self.stop_at & self.outcome.broken.keys():
            if number % 256 == 0 and time.monotonic() - began > self.seconds:
                break
            self.expand(number)
            number += 1
        self.outcome.is_exhausted = number == len(self.frontier)
        self.outcome.states, self.outcome.at_rest = number, len(self.resting)
        if self.outcome.is_exhausted and not self.outcome.broken:
            self.look_for_dead_ends()
        self.outcome.seconds = time.monotonic() - began
        return self.outcome

    def expand(self, number: int) -> None:
        world = self.frontier[number]
        assert world is not None
        self.frontier[number] = None
        for move in moves(world, self.scope):
            self.outcome.moves += 1
            if move.after.broken:
                self.report(move.after.broken, number, move.label)
                if move.after.broken not in self.scope.exempt:
                    continue
                move = move._replace(after=move.after._replace(broken=""))
            target = self.numbers.get(hash(move.after))
            if target is None:
                target = self.discover(move.after, number, move.label)
            if target is not None and target != number:
                self.connect(world, number, move, target)

    def discover(self, world: World, parent: int, label: str) -> int | None:
        """The number of a new world, None if it breaks an invariant: nothing is explored beyond a breach."""
        broken = broken_in(world.broker, self.scope.exempt) or broken_by_loading(world)
        if broken and broken not in self.scope.exempt:
            self.report(broken, parent, label)
            return None
        number = len(self.frontier)
        self.frontier.append(world)
        self.parents.append(parent)
        self.labels.append(label)
        self.claimable.append(may_claim(world.broker))
        self.numbers[hash(world)] = number
        if len(world.workers) == 2:
            self.numbers[hash(swapped(world))] = number
        if is_at_rest(world):
            self.resting.append(number)
        return number

    def connect(self, world: World, number: int, move: Move, target: int) -> None:
        if move.is_faultless:
            self.sources.append(number)
            self.targets.append(target)
        if move.call is None or self.claimable[number] or not self.claimable[target]:
            return
        self.outcome.opened_by.add(move.call.step)
        if move.call.step not in SEEN_AT_NEXT_POLL and not wakes(world.broker, *move.call):
            self.report(f"{UNWOKEN} {move.call.step}", number, move.label)

    def report(self, broken: str, number: int, label: str) -> None:
        if broken not in self.scope.exempt:
            self.outcome.broken.setdefault(broken, [*self.trace(number), label])

    def trace(self, number: int) -> list[str]:
        labels: list[str] = []
        while number > 0:
            labels.append(self.labels[number])
            number = self.parents[number]
        return labels[::-1]

    def look_for_dead_ends(self) -> None:
        """Backwards from rest over faultless moves; what is never met can't come to rest without a fault."""
        good = bytearray(len(self.frontier))
        todo = list(self.resting)
        for number in todo:
            good[number] = 1
        first, sources = self.incoming()
        while todo:
            number = todo.pop()
            for source in sources[first[number] : first[number + 1]]:
                if not good[source]:
                    good[source] = 1
                    todo.append(source)
        if 0 in good:
            self.outcome.broken[UNREACHABLE] = self.trace(good.index(0))

    def incoming(self) -> "tuple[array[int], array[int]]":
        """The sources of the moves into each world, side by side: those of world i from first[i] to first[i + 1]."""
        first = array("q", bytes(8 * (len(self.frontier) + 1)))
        for target in self.targets:
            first[target + 1] += 1
        for number in range(len(self.frontier)):
            first[number + 1] += first[number]
        free, sources = array("q", first), array("q", bytes(8 * len(self.sources)))
        for source, target in zip(self.sources, self.targets, strict=True):
            sources[free[target]] = source
            free[target] += 1
        return first, sources


@contextmanager
def no_collector() -> Generator[None, None, None]:
    """Nothing here is cyclic, and the collector would walk millions of tuples again and again."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def explore(scope: Scope, *, off: tuple[str, ...] = (), seconds: float = 60.0, stop_at: str = "") -> Outcome:
    """The outcome of a walk with these guards off. It ends early after so many seconds, or at a breach of `stop_at`."""
    with without(*off), no_collector():
        return Walk(scope, seconds, frozenset({stop_at})).run()
