"""How many of the fleet's slots are busy, in the middle of a run."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Mapping, Sequence

from bench import processes
from bench.fleet import Auto, Meter, Size
from bench.mixtures import Mixture, default, independent
from bench.place import Place
from bench.rows import Row, Table, at_least, near
from bench.trial import ENGINES, SLOTS, N, Trial
from rolloutfleet.window import Refill, sample_refill_share

CUT = 8.0  # means; far out, so that it hardly changes E[max of 8]
SAMPLES_PER_SECOND: Mapping[Refill, int] = {
    "sample": 450,  # as many as one event loop serves without being late
    "group": 250,  # there each ms between a freed place and the next claim is missing, as it is not with long samples
}
ALL = ENGINES * SLOTS


async def measure(place: Place) -> Table:
    rows: list[Row] = []
    late: list[float] = []
    sizes: list[tuple[Refill, int | Auto]] = [
        ("sample", "auto"),
        ("sample", 1000),
        ("group", 1000),
        ("group", 1500),
        ("group", 2000),
    ]
    for mixture in (independent(CUT), default(CUT)):
        for refill, overcommit in place.pick(sizes, [sizes[0], sizes[3]]):
            found = await _steady(place, mixture, Size(SLOTS, N, refill, overcommit))
            rows += found[0]
            late.append(found[1])
    if not place.quick:
        rows += await processes.measure(place, "sample", "auto")
    facts = (
        f"{ENGINES} engines x {SLOTS} slots, n = {N}; real claims on a real server; samples are sleeps (constant "
        "speed) but in the last row, where workers are processes and engines speak HTTP",
        f"lengths are cut at {CUT:g} means; the bound of group refill is min(1, f E[L] / E[max of 8]) of the groups "
        "that were completed while it was measured",
        "over-commit auto: a run with no settings but n and refill",
        "a group runs beside the worker that claimed it: with over-commit 1 the window holds just as many samples as "
        "there are slots, and those that wait at one engine are missing at another. Even if the neediest engine were "
        "always first, the free slots of each would go up to n/2 + n/2E and down by n, over and over",
        f"the loop woke samples late by {statistics.mean(late):.1%} of their length: that counts as busy",
    )
    return Table("slots", rows, facts)


async def _steady(place: Place, mixture: Mixture, size: Size) -> tuple[Sequence[Row], float]:
    """Rows of one fleet, and how late its samples ended (share of their length)."""
    bound = min(1.0, _over(size) * mixture.group_bound(N)) if size.refill == "group" else 1.0
    rate = SAMPLES_PER_SECOND[size.refill]
    scale = bound * ALL / rate / mixture.mean()
    # The bound is that of some thousand groups: over fewer, chance makes more of a difference than the target allows.
    warm, span = place.pick((4.0, 10.0) if size.refill == "sample" else (8.0, 30.0), (1.0, 1.5))
    trial = Trial(place, mixture, size, scale)
    async with trial.fleet(round(1.4 * (warm + span + 1) * rate / N)) as (_, meter):
        await asyncio.sleep(warm)
        start, area, samples = time.monotonic(), meter.area(), len(meter.late)
        await asyncio.sleep(span)
        busy = (meter.area() - area) / (time.monotonic() - start) / ALL
        late = statistics.mean(meter.late[samples:]) / (scale * mixture.mean())
    return _rows(mixture, size, busy, _drawn_bound(meter, start, mixture)), late


def _rows(mixture: Mixture, size: Size, busy: float, drawn: float) -> Sequence[Row]:
    over = _over(size)
    what = f"{mixture.name}, refill {size.refill}, over-commit {'auto' if size.overcommit == 'auto' else f'{over:g}'}"
    if size.overcommit == "auto":
        return [Row(what, busy, target=at_least(0.97))]
    if size.refill == "sample":
        even = sample_refill_share(ALL, N, ALL, ENGINES)
        return [Row(what, busy), Row("    the most that claims of whole groups allow", even)]
    return [
        Row(what, busy, target=near(min(1.0, over * drawn), 0.02)),
        Row("    the bound of the distribution itself", min(1.0, over * mixture.group_bound(N))),
    ]


def _over(size: Size) -> float:
    return size.config(ENGINES).permille / 1000


def _drawn_bound(meter: Meter, start: float, mixture: Mixture) -> float:
    groups = [mixture.lengths(group_id, N) for at, group_id in meter.completed if at >= start]
    return sum(sum(group) / N for group in groups) / sum(max(group) for group in groups)
