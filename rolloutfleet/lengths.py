"""Whether groups are lost by their length: long ones to timeouts, say, which would teach a model to be brief. Pure.

A group's length is that of its longest sample, of a lost one as far as it came. Workers count lengths in `stats`, in
steps that double twice an octave; from these the deciles of the completed groups follow, to within a step.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

type Loss = Literal["timeout", "context", "stale", "other"]  # stale is counted by judge.lua

COMPLETED, LOST = "longest:", "lost:"
_STEPS, _MOST = 2, 44  # two steps for each doubling; the last holds all beyond 4 million tokens


@dataclass(frozen=True, slots=True)
class Losses:
    """Dead groups. `causes`: why; `unknown` are those whose worker died with them, or that were no groups. `deciles`:
    how many of those that had begun lie in each tenth of the completed groups' lengths; None: none was completed."""

    causes: Mapping[str, int]
    deciles: tuple[int, ...] | None

    @property
    def is_biased(self) -> bool:
        """Whether more than half of ten or more lost groups were as long as the longest tenth."""
        known = self.deciles or (0,) * 10
        return sum(known) >= 10 and known[-1] * 2 > sum(known)


def completed_field(length: int) -> str:
    """Of `stats`: a group of this length was completed."""
    return f"{COMPLETED}{_step(length)}"


def lost_field(cause: Loss, length: int) -> str:
    """Of `stats`: a group of this length became a dead letter."""
    return f"{LOST}{cause}:{_step(length)}"


def is_length(name: str) -> bool:
    """Whether a field of `stats` is one of these."""
    return name.startswith((COMPLETED, LOST))


def losses_of(stats: Mapping[str, str]) -> Losses:
    completed = {int(name.removeprefix(COMPLETED)): int(n) for name, n in stats.items() if name.startswith(COMPLETED)}
    causes: dict[str, int] = {}
    lost: dict[int, int] = {}
    for name, number in stats.items():
        if name.startswith(LOST):
            _, cause, step = name.split(":")
            causes[cause] = causes.get(cause, 0) + int(number)
            lost[int(step)] = lost.get(int(step), 0) + int(number)
    unknown = int(stats.get("dead", 0)) - sum(causes.values())
    lost.pop(0, None)  # had not begun: no length speaks of why
    return Losses(causes | ({"unknown": unknown} if unknown > 0 else {}), _deciles(completed, lost))


def _step(length: int) -> int:
    return min(_MOST, math.ceil(_STEPS * math.log2(length + 1)))


def _deciles(completed: Mapping[int, int], lost: Mapping[int, int]) -> tuple[int, ...] | None:
    total = sum(completed.values())
    if not total:
        return None
    found = [0] * 10
    for step, number in lost.items():
        # The middle of those in the same step: what is below counts whole, its own by half.
        below = sum(count for at, count in completed.items() if at < step) + completed.get(step, 0) / 2
        found[min(9, int(10 * below / total))] += number
    return tuple(found)
