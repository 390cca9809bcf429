"""Rebuilding what is derived: the broker lost its last second, somebody deleted the stream, a caller died.

Invariants: each look and each mend is an atomic step, so that the run goes on meanwhile; a healthy run costs one pass
over its keys and its queue, and no look-up in the list. Memory of the caller: the ids of the queued groups.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from itertools import batched
from typing import Any, cast

from rolloutfleet.broker import SLICE, Broker


@dataclass(frozen=True, slots=True)
class Repaired:
    """What was mended; all 0 on a healthy run."""

    groups: int  # were in no list, lease or stream: first in `again` now
    leases: int  # leases without a grant, grants without a lease: taken away
    samples: int  # keys of samples, finished or partial, of incarnations that are over: freed
    entries: int  # stream entries of deleted consumers: pending at `consumer` now


async def repair(broker: Broker, consumer: str = "trainer") -> Repaired:
    """Mends a run. Errors: BrokerUnavailable; what was mended until then stays."""
    entries = await broker.adopt(consumer)
    leases = await broker.calls.step("repair_leases")
    suspects = await _groups_not_at_work(broker)
    suspects -= await _queued(broker)
    mended = 0
    for some in batched(sorted(suspects), SLICE):
        mended += len(await broker.calls.step("repair_groups", "mend", *some))
    return Repaired(mended, leases, await _free_samples(broker), entries)


async def purge(broker: Broker) -> int:
    """Deletes every key of the run; how many there were."""
    # The config first: without it no step of a worker that lives on writes a key that the scan has passed already.
    deleted = await broker.client.unlink(broker.keys.named("config"))
    async for keys in _scan(broker, "*"):
        deleted += await broker.client.unlink(*keys)
    return deleted


async def _groups_not_at_work(broker: Broker) -> set[str]:
    found: set[str] = set()
    start = len(broker.keys.group(""))
    async for keys in _scan(broker, "group:*"):
        ids = [key.decode()[start:] for key in keys]
        answer = await broker.calls.step("repair_groups", "look", *ids)
        found |= {group_id.decode() for group_id in answer}
    return found


async def _queued(broker: Broker) -> set[str]:
    """Ids in `prompts`, read from its end: what is taken from its head meanwhile shifts nothing."""
    found: set[str] = set()
    page, last = SLICE * 10, -1
    while True:
        (entries,) = await broker.calls.read([["LRANGE", broker.keys.named("prompts"), last - page + 1, last]])
        found |= {entry[1:].decode() for entry in entries if entry.startswith(b"@")}
        last -= page
        if len(entries) < page:
            return found


async def _free_samples(broker: Broker) -> int:
    freed = 0
    for kind in ("samples:", "partial:"):
        start = len(broker.keys.prefix + kind)
        async for keys in _scan(broker, f"{kind}*"):
            pairs = [part for key in keys for part in key.decode()[start:].rsplit(":", 1)]
            freed += await broker.calls.step("repair_samples", *pairs)
    return freed


async def _scan(broker: Broker, pattern: str) -> AsyncIterator[list[bytes]]:
    """Keys of the run, in slices. A run's name has no character that a pattern would read."""
    cursor: Any = 0
    match = f"{broker.keys.prefix}{pattern}"
    while True:
        cursor, keys = cast(tuple[int, list[bytes]], await broker.client.scan(cursor, match=match, count=1000))
        for some in batched(keys, SLICE):
            yield list(some)
        if cursor == 0:
            return
