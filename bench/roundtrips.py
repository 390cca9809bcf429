"""Round trips per group: what the clients of a fleet send, counted at their connections."""

from __future__ import annotations

import random

from bench.fleet import Consumer, Meter, Size, Worker, in_background
from bench.place import Place, Trips
from bench.rows import Row, Table, at_most
from bench.trial import configure, submit
from rolloutfleet.window import Refill

PLACES = 64
N = 8
SHORTEST = 0.001  # seconds of a sample: so short that the process waits for its round trips, not for samples
LONG = 1.0


async def measure(place: Place) -> Table:
    groups = place.pick(2000, 200)
    rows = [
        Row("refill group, saturated", await count(place, "group", SHORTEST, groups), target=at_most(5)),
        Row("refill sample, saturated", await count(place, "sample", SHORTEST, groups), target=at_most(5)),
        Row("refill sample, samples of a second", await count(place, "sample", LONG, groups // 4)),
    ]
    facts = (
        f"one worker with {PLACES} places, n = {N}, exponential lengths, and its trainer; submit included",
        "a pipeline is one round trip; saturated: the process never waits for a sample",
        "the last row: a sample that finishes while no other put is under way costs a round trip of its own",
    )
    return Table("roundtrips", rows, facts)


async def count(place: Place, refill: Refill, mean_seconds: float, groups: int) -> float:
    """Round trips per group of everything: submit, claims, waits, puts, completions, take, ack."""
    trips, size = Trips(), Size(PLACES * N, N, refill)
    async with place.broker(trips) as broker, place.blocking(trips) as blocking, place.blocking(trips) as reader:
        await configure(broker, size, 1)
        await broker.calls.load()
        trips.number = 0
        await submit(broker, groups)
        worker = Worker("engine/1", broker, blocking, size, lambda _: _lengths(mean_seconds), Meter())
        async with in_background(worker.run()):
            await Consumer(broker, reader).run(groups)
            return trips.number / groups


def _lengths(mean: float) -> list[float]:
    return [random.expovariate(1 / mean) for _ in range(N)]
