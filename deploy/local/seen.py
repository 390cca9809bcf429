"""What the trainer of the main job saw: which groups came, how long their samples were, how old they were.

Invariant: everything is counted from completed groups as they were handed out, nothing from what was intended.
"""

from bisect import bisect
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from rolloutfleet.messages import CompletedGroup


@dataclass(slots=True)
class Seen:
    """Counts over the groups that were trained on. Times are server time in ms."""

    times: Counter[str] = field(default_factory=Counter[str])  # how often each id was trained on
    samples: int = 0
    tokens: int = 0
    longest: int = 0  # sum of each group's longest sample, in tokens
    rewards: float = 0.0
    scored: int = 0  # samples that have a reward
    steps: list[float] = field(default_factory=list[float])  # when each step ended
    steps_behind: list[int] = field(default_factory=list[int])  # steps that ended since a group was claimed
    began_ms: float = 0.0
    first_claim_ms: int | None = None
    last_completion_ms: int | None = None

    def train(self, groups: Sequence[CompletedGroup]) -> None:
        """A step with these groups begins."""
        for group in groups:
            self._add(group)

    def end_step(self, now_ms: float) -> None:
        self.steps.append(now_ms)

    @property
    def groups(self) -> int:
        """Groups that were trained on, each counted as often as it was."""
        return self.times.total()

    @property
    def doubled(self) -> int:
        """Groups that were trained on more than once."""
        return sum(1 for count in self.times.values() if count > 1)

    def makespan_seconds(self, stopped_ms: float | None = None) -> float:
        """From the first claim to the last completion, or to the end of the workers where they were stopped early.

        A group that an earlier job claimed counts from the beginning of this one.
        """
        end = stopped_ms or self.last_completion_ms
        if self.first_claim_ms is None or end is None:
            return 0.0
        return max(0.0, end - max(self.first_claim_ms, self.began_ms)) / 1000

    def _add(self, group: CompletedGroup) -> None:
        lengths = [sample.length for sample in group.samples]
        self.times[group.id] += 1
        self.samples += len(lengths)
        self.tokens += sum(lengths)
        self.longest += max(lengths)
        self.rewards += sum(group.rewards or ())
        self.scored += len(group.rewards or ())
        self.steps_behind.append(len(self.steps) - bisect(self.steps, group.claimed_ms))
        self.first_claim_ms = min(group.claimed_ms, self.first_claim_ms or group.claimed_ms)
        self.last_completion_ms = max(group.completed_ms, self.last_completion_ms or 0)
