"""What a chaos run must end with: everything that was submitted is trained on or dead, once, and nothing is left."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, cast

from rolloutfleet.broker import Broker
from rolloutfleet.reading import read_dead
from rolloutfleet.status import read_status
from tests.chaos.consumer import Consumer

# I5: what may be left after a drain and all acks.
MAY_STAY = {"state", "config", "policy", "stats", "done", "dead", "completed", "wake", "workers", "capacity", "barred"}


@dataclass(frozen=True, slots=True)
class Verdict:
    """Counts of groups; `over_window`: how far `active` ever was above W; `keys_left`: names that should be gone."""

    groups: int
    completed: int
    dead: int
    lost: int
    doubled: int
    over_window: int
    unsound: Sequence[str]
    dead_reasons: Sequence[str]
    samples_made: int
    samples_made_again: int
    keys_left: Sequence[str]
    counters: Mapping[str, int]  # stats: that faults did bite (reaped, evicted, released)
    seconds: float
    done_to: Sequence[str]

    @property
    def holds(self) -> bool:
        bad = self.lost or self.doubled or self.over_window or self.unsound or self.keys_left
        return not bad and self.groups == self.completed + self.dead

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "holds": self.holds}


async def judge(broker: Broker, consumer: Consumer, submitted: set[str], seconds: float, done: list[str]) -> Verdict:
    """Reads the run at its end. `submitted`: ids."""
    status = await read_status(broker)
    letters = await read_dead(broker, 10_000)
    dead = {letter.id for letter in letters}
    trained = set(consumer.trained)
    return Verdict(
        groups=len(submitted),
        completed=len(trained),
        dead=len(dead - trained),
        lost=len(submitted - trained - dead),
        doubled=_doubled(status.stat("completed"), consumer, dead & trained),
        over_window=max(0, status.stat("most_active") - status.window.size),
        unsound=consumer.unsound,
        dead_reasons=[f"{letter.id}: {letter.reason}" for letter in letters],
        samples_made=status.stat("samples"),
        samples_made_again=status.stat("samples_made_again"),
        keys_left=await keys_left(broker),
        counters={name: status.stat(name) for name in sorted(status.stats) if not name.startswith("behind:")},
        seconds=round(seconds, 1),
        done_to=done,
    )


def _doubled(completions: int, consumer: Consumer, both: set[str]) -> int:
    """Completions and acks beyond one for each id, ids of several incarnations, ids both trained on and dead."""
    ids = len(consumer.trained)
    incarnations = sum(len(born) - 1 for born in consumer.born.values())
    return max(0, completions - ids) + consumer.trained.total() - ids + incarnations + len(both)


async def keys_left(broker: Broker) -> list[str]:
    prefix = broker.keys.prefix
    keys = cast(AsyncIterator[bytes], broker.client.scan_iter(match=f"{prefix}*", count=1000))
    names = [key.decode().removeprefix(prefix) async for key in keys]
    left = sorted(name for name in names if name not in MAY_STAY)
    entries = await broker.client.xlen(broker.keys.named("completed"))
    return [*left, f"completed ({entries} entries)"] if entries else left
