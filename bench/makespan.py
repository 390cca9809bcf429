"""How long a fleet takes for 2,000 groups, against the sum of their lengths over its slots."""

from __future__ import annotations

import heapq
import time
from collections.abc import Sequence

from bench.fleet import Size
from bench.mixtures import Mixture, default, independent
from bench.place import Place
from bench.rows import Row, Table, at_most
from bench.trial import ENGINES, SLOTS, N, Trial, until_completed

CUT = 3.0  # means: thinking models' answers are cut at 2.6 to 3.4 means (GPQA, LiveCodeBench)
SAMPLES_PER_SECOND = 500
ALL = ENGINES * SLOTS


async def measure(place: Place) -> Table:
    rows: list[Row] = []
    groups = place.pick(2000, 100)
    for mixture, overcommit in place.pick([(independent(CUT), 1250), (default(CUT), 1250)], [(default(CUT), 1250)]):
        rows += await _finish(place, mixture, overcommit, groups)
    facts = (
        "ideal: the time that samples really held slots, over the slots (a loop that wakes late makes them longer)",
        f"{groups} groups of {N} on {ENGINES} engines x {SLOTS} slots, refill sample; lengths are cut at {CUT:g} means",
        "the second row is what no scheduler that doesn't know the lengths can beat by much: each sample, in the order "
        "of the prompts, to the first free slot of the whole fleet, at no cost. What it is above 1 is the tail: slots "
        "that are idle while the last samples end",
    )
    return Table("makespan", rows, facts)


async def _finish(place: Place, mixture: Mixture, overcommit: int, groups: int) -> Sequence[Row]:
    scale = ALL / SAMPLES_PER_SECOND / mixture.mean()
    trial = Trial(place, mixture, Size(SLOTS, N, "sample", overcommit), scale)
    lengths = [length for group in range(groups) for length in trial.seconds(str(group))]
    nominal = sum(lengths) / ALL
    async with trial.fleet(groups) as (_, meter):
        start = time.monotonic()
        began = meter.area()
        end = await until_completed(meter, groups, 10 * nominal + 60)
        ideal = (meter.area() - began) / ALL
    what = f"{mixture.name}, over-commit {overcommit / 1000:g}: makespan / ideal"
    return [
        Row(what, (end - start) / ideal, target=at_most(1.05)),
        Row("    list scheduling of the same samples", list_schedule(lengths, ALL) / nominal),
        Row("    late wake-ups of samples, share of their length", sum(meter.late) / sum(lengths)),
    ]


def list_schedule(lengths: Sequence[float], slots: int) -> float:
    """Makespan when each sample, in this order, goes to the slot that is free first."""
    free = [0.0] * slots
    for length in lengths:
        heapq.heapreplace(free, free[0] + length)
    return max(free)
