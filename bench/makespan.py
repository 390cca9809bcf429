"""How long a fleet takes for 2,000 groups, against the sum of their lengths over its slots."""

from __future__ import annotations

import heapq
import statistics
import time
from collections.abc import Sequence

from bench.fleet import Size
from bench.mixtures import default, independent
from bench.place import Place
from bench.rows import Row, Table, at_most
from bench.trial import ENGINES, SLOTS, N, Trial, until_completed

CUT = 3.0  # means: thinking models' answers are cut at 2.6 to 3.4 means (GPQA, LiveCodeBench)
SAMPLES_PER_SECOND = 500
ALL = ENGINES * SLOTS
OVERCOMMIT = 1250  # permille: what `auto` is


async def measure(place: Place) -> Table:
    rows: list[Row] = []
    groups, times = place.pick(2000, 100), place.pick(3, 1)
    size = Size(SLOTS, N, "sample", OVERCOMMIT)
    for mixture in place.pick([independent(CUT), default(CUT)], [default(CUT)]):
        trial = Trial(place, mixture, size, ALL / SAMPLES_PER_SECOND / mixture.mean())
        rows += _rows(trial, groups, [await _finish(trial, groups) for _ in range(times)])
    facts = (
        "ideal: the time that samples really held slots, over the slots (a loop that wakes late makes them longer)",
        f"{groups} groups of {N} on {ENGINES} engines x {SLOTS} slots, refill sample; lengths are cut at {CUT:g} means",
        f"median of {times}: the same samples each time, but which of them come last is chance",
        "the third row is what no scheduler that doesn't know the lengths can beat by much: each sample, in the order "
        "of the prompts, to the first free slot of the whole fleet, at no cost. What it is above 1 is the tail: slots "
        "that are idle while the last samples end",
    )
    return Table("makespan", rows, facts)


def _lengths(trial: Trial, groups: int) -> list[float]:
    return [length for group in range(groups) for length in trial.seconds(str(group))]


async def _finish(trial: Trial, groups: int) -> tuple[float, float]:
    """Makespan over the ideal one, and by which share of their lengths samples woke late."""
    nominal = sum(_lengths(trial, groups)) / ALL
    async with trial.fleet(groups) as (_, meter):
        start = time.monotonic()
        began = meter.area()
        end = await until_completed(meter, groups, 10 * nominal + 60)
        ideal = (meter.area() - began) / ALL
    return (end - start) / ideal, sum(meter.late) / nominal / ALL


def _rows(trial: Trial, groups: int, found: Sequence[tuple[float, float]]) -> Sequence[Row]:
    ratios, lengths = [ratio for ratio, _ in found], _lengths(trial, groups)
    what = f"{trial.mixture.name}, over-commit {OVERCOMMIT / 1000:g}: makespan / ideal"
    return [
        Row(what, statistics.median(ratios), target=at_most(1.05)),
        Row("    the longest", max(ratios)),
        Row("    list scheduling of the same samples", list_schedule(lengths, ALL) * ALL / sum(lengths)),
        Row("    late wake-ups of samples, share of their length", statistics.median(late for _, late in found)),
    ]


def list_schedule(lengths: Sequence[float], slots: int) -> float:
    """Makespan when each sample, in this order, goes to the slot that is free first."""
    free = [0.0] * slots
    for length in lengths:
        heapq.heapreplace(free, free[0] + length)
    return max(free)
