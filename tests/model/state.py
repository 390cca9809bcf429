"""What the broker holds, as frozen values: one `Broker` is everything that is in Redis for one run.

Time is abstracted: a lease is `live` or `expired`, an id of `again` is due when a claim's `pick` says so. What the
server names by chance has a canonical name here, so that two ways to the same state meet: a `born` is epoch and number
of the incarnation of its id, an entry of the stream is named by id, born and the life of the stream that it is in.

All are named tuples rather than dataclasses: the exploration hashes and compares millions of them, and tuples do both
in C.

Invariants: `Map` is sorted by key, so that equal maps are equal tuples; `token`, `left` and `new` of a group mean
something only under a lease and are cleared when it ends.
"""

from collections.abc import Iterator
from operator import itemgetter
from typing import Literal, NamedTuple

Refill = Literal["group", "sample"]
Lease = Literal["live", "expired"]
EntryName = tuple[str, str, int]
"""id, born, life of the stream: what a stream id is in Redis."""

ORPHAN = "-"
"""`who` of an entry that was delivered to a consumer which has been deleted: it is pending nowhere."""

by_key = itemgetter(0)


class Map[K, V](tuple[tuple[K, V], ...]):
    """A small immutable map: pairs, sorted by key. A look-up walks it; maps here have a handful of keys."""

    __slots__ = ()

    def get(self, key: K) -> V | None:
        for known, value in self:
            if known == key:
                return value
        return None

    def has(self, key: K) -> bool:
        return any(known == key for known, _ in self)

    def set(self, key: K, value: V) -> "Map[K, V]":
        pairs = [pair for pair in self if pair[0] != key]
        pairs.append((key, value))
        pairs.sort(key=by_key)
        return Map(pairs)

    def without(self, key: K) -> "Map[K, V]":
        return Map([pair for pair in self if pair[0] != key])

    def each_key(self) -> Iterator[K]:
        return (key for key, _ in self)

    def values(self) -> Iterator[V]:
        return (value for _, value in self)


Samples = Map[int, str]
"""index -> value of the finished samples of one incarnation."""


class Config(NamedTuple):
    """The run's `config`: `sample_concurrency` counts samples. None is `auto`: the sum of the workers' slots, and an
    over-commit (permille) that follows from the rest.
    """

    sample_concurrency: int | None = 1
    n: int = 1
    refill: Refill = "group"
    overcommit: int | None = None
    open_cap: int = 4
    max_attempts: int = 2
    max_recycles: int = 1
    paused: bool = False
    max_staleness: int | None = None
    groups_per_update: int = 1
    stale: str = "pace"
    recycle_then: str = "deliver"
    cancel_stale: bool = False


class Prompt(NamedTuple):
    """An element of `prompts`: `@id` where n is None, otherwise a JSON object that a producer RPUSHed.

    A JSON object without an id has id ""; the claim names it.
    """

    id: str
    n: int | None = None


class Group(NamedTuple):
    """`group:<id>`. `left` is max(1, samples that are missing) under a lease, otherwise 0."""

    n: int
    born: str
    token: str | None = None
    left: int = 0
    attempts: int = 0
    recycled: int = 0
    deaths: int = 0
    """Of engines under it: 2 at the most where other groups were there, too."""
    entry: EntryName | None = None
    new: bool = False
    """A sample was stored in this attempt: the attempt isn't counted."""
    by: str | None = None
    """The token under which the group was completed: its holder may ask again when the answer was lost."""


class Entry(NamedTuple):
    """An entry of `completed`. `who` is the consumer at which it is pending, None before it is taken."""

    id: str
    born: str
    stream: int
    rewards: tuple[str | None, ...]
    """A reward is the sample that it was computed from."""
    who: str | None = None

    @property
    def name(self) -> EntryName:
        return (self.id, self.born, self.stream)


class Letter(NamedTuple):
    """An entry of `dead`, named by id and born."""

    id: str
    born: str
    n: int
    reason: str
    attempts: int


class Turn(NamedTuple):
    """A worker's turn to load a version into an engine."""

    worker: str
    version: int
    engine: str


class Broker(NamedTuple):
    """All keys of one run. `config` is None before the run is made."""

    config: Config | None
    epoch: str
    prompts: tuple[Prompt, ...] = ()
    again: frozenset[str] = frozenset()
    groups: Map[str, Group] = Map()
    leases: Map[str, Lease] = Map()
    grants: Map[str, str] = Map()
    outstanding: int = 0
    samples: Map[tuple[str, str], Samples] = Map()
    partials: Map[tuple[str, str], Samples] = Map()
    """The first tokens of samples that are not finished."""
    completed: tuple[Entry, ...] = ()
    done: frozenset[str] = frozenset()
    dead: frozenset[Letter] = frozenset()
    capacity: Map[str, int] = Map()
    draining: frozenset[str] = frozenset()
    barred: frozenset[str] = frozenset()
    incarnations: Map[str, int] = Map()
    """Per id, how many were born in this epoch: the counter in `state`, kept apart per id."""
    stream: int = 0
    """How often the stream was deleted."""
    updates: int = 0
    trained: int = 0
    """Both since the books of `pace` were opened; 0 in a run whose staleness has no bound."""
    lives: Map[str, int] = Map()
    """Consumer -> its life that began last, where somebody says it."""
    version: int = 0
    """Of the weights that were published last; 0: none."""
    at_once: int = 0
    """The most workers that may load them at a time; 0: all."""
    loaded: int = 0
    recent: tuple[tuple[int, str], ...] = ()
    """(version, token) of the last publications, newest first."""
    turns: Map[Turn, Lease] = Map()

    def entry(self, name: EntryName) -> Entry | None:
        return next((entry for entry in self.completed if entry.name == name), None)

    def expired(self) -> tuple[str, ...]:
        return tuple(id for id, lease in self.leases if lease == "expired")

    def stored(self, id: str, born: str) -> Samples:
        return self.samples.get((id, born)) or Map()

    def begun(self, id: str, born: str) -> Samples:
        return self.partials.get((id, born)) or Map()


def new_run(config: Config, epoch: str) -> Broker:
    return Broker(config, epoch)
