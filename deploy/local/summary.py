"""What a run of the main job came to: the arithmetic, pure, and how it is shown.

Invariant: every number is measured (by the trainer, or counted by the broker's steps) or computed from what was
measured; one that nobody knows is None.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from rolloutfleet.window import Refill, sample_refill_share, window_size


@dataclass(frozen=True, slots=True)
class Facts:
    """What was measured. Counts are of this job alone, also where the run is older. Times are seconds."""

    n: int
    slots: int  # of all engines
    engines: int
    concurrency: int  # samples; what "auto" came to
    overcommit: int  # permille
    refill: Refill
    submitted: int
    trained: int  # distinct groups
    doubled: int
    unfinished: int  # groups that the broker still holds; 0 unless the job was stopped
    samples: int
    tokens: int
    longest: int  # sum of each group's longest sample, in tokens
    makespan: float
    busy: float  # slot time that workers report, over all slots
    full_speed: float | None  # tokens per second of a slot while all are busy
    counters: Mapping[str, int] = field(default_factory=dict[str, int])  # the broker's
    behind: Mapping[str, float] = field(default_factory=dict[str, float])  # by reason

    def count(self, name: str) -> int:
        return self.counters.get(name, 0)


@dataclass(frozen=True, slots=True)
class Extras:
    """What is only shown. `steps_behind`: steps of the trainer that ended since each group was claimed."""

    run: str = ""
    seconds: float = 0.0
    steps: int = 0
    mean_reward: float | None = None
    steps_behind_mean: float | None = None
    steps_behind_max: int | None = None
    worker_kills: int = 0
    deaths: int = 0  # of workers, engines and broker, that nobody asked for
    bad_lines: int = 0
    finished_before: int = 0
    dead_reasons: Mapping[str, int] = field(default_factory=dict[str, int])
    stopped: bool = False


@dataclass(frozen=True, slots=True)
class Summary:
    facts: Facts
    extras: Extras = field(default_factory=Extras)

    @property
    def window(self) -> int:
        facts = self.facts
        return window_size(facts.concurrency, facts.n, facts.overcommit)

    @property
    def dead(self) -> int:
        return self.facts.count("dead")

    @property
    def dropped(self) -> int:
        return self.facts.count("dropped")

    @property
    def lost(self) -> int:
        """Groups that were submitted, and are neither trained, dead, dropped nor held by the broker."""
        facts = self.facts
        return facts.submitted - facts.trained - self.dead - self.dropped - facts.unfinished

    @property
    def ideal_seconds(self) -> float:
        """Makespan if every slot were busy all the time.

        From the lengths, where the engines' speed is known (simulated ones): the tokens of what was trained on, at the
        speed of a full engine. Otherwise from the slot time that workers measured, which counts what was thrown away,
        too, and time on the wire.
        """
        facts = self.facts
        needed = facts.tokens / facts.full_speed if facts.full_speed else facts.busy
        return needed / facts.slots

    @property
    def utilisation(self) -> float | None:
        """Share of the slots' time, from the first claim to the last completion, in which a sample was in flight.

        A worker that is killed does not report what was since its last heartbeat: with kills this is a little low.
        """
        whole = self.facts.slots * self.facts.makespan
        return self.facts.busy / whole if whole else None

    @property
    def utilisation_bound(self) -> float | None:
        """What the window lets the slots reach, from the lengths that were seen."""
        return bound(self.facts, self.facts.refill)

    def to_json(self) -> dict[str, Any]:
        facts, extras = self.facts, self.extras
        return {
            "submitted": facts.submitted,
            "completed": facts.trained,
            "dead": self.dead,
            "dropped": self.dropped,
            "lost": self.lost,
            "doubled": facts.doubled,
            "unfinished": facts.unfinished,
            "window": self.window,
            "most_active": facts.count("most_active"),
            "most_waiting": facts.count("most_waiting"),
            "makespan_seconds": round(facts.makespan, 3),
            "ideal_seconds": round(self.ideal_seconds, 3),
            "ideal_from": "lengths" if facts.full_speed else "busy slot time",
            "utilisation": rounded(self.utilisation),
            "utilisation_bound": rounded(self.utilisation_bound),
            "utilisation_bound_sample": rounded(bound(facts, "sample")),
            "seconds_behind": {reason: round(seconds, 3) for reason, seconds in facts.behind.items()},
            "samples_made": facts.count("samples"),
            "samples_made_again": facts.count("samples_made_again"),
            "samples_trained": facts.samples,
            "tokens_trained": facts.tokens,
            "retries": facts.count("retries"),
            "reaped": facts.count("reaped"),
            "evicted": facts.count("evicted"),
            "staleness": {"mean": rounded(extras.steps_behind_mean), "max": extras.steps_behind_max},
            "n": facts.n,
            "slots": facts.slots,
            "refill": facts.refill,
            "overcommit": facts.overcommit / 1000,
        } | {name: value for name, value in asdict(extras).items() if not name.startswith("steps_behind")}


def bound(facts: Facts, refill: Refill) -> float | None:
    """Share of the slots that a window can keep busy; None before anything was seen.

    group: a place works as long as its group's longest sample takes, and on average E[length] of that: places * n *
    E[length] / E[longest] samples are in flight. With W = overcommit * slots / n that is overcommit * E[length] /
    E[longest]. sample: groups come whole, and stay where they were claimed.
    """
    if not facts.samples or not facts.longest:
        return None
    room = facts.n * window_size(facts.concurrency, facts.n, facts.overcommit)
    if refill == "sample":
        return sample_refill_share(room, facts.n, facts.slots, facts.engines)
    mean, mean_longest = facts.tokens / facts.samples, facts.longest * facts.n / facts.samples
    return min(1.0, room / facts.slots * mean / mean_longest)


def rounded(number: float | None) -> float | None:
    return None if number is None else round(number, 4)
