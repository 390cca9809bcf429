"""What a chaos run does, and to whom. All counts are of faults spread evenly over the run's groups."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True, slots=True)
class ChaosSettings:
    """A frozen worker must outlast `lease_seconds` to lose its groups. The defaults are a short run."""

    groups: int = 200
    n: int = 4
    window: int = 24
    refill: Literal["group", "sample"] = "sample"
    workers: int = 4
    engines: int = 2
    slots: int = 16
    lease_seconds: float = 3.0
    kills: int = 4
    freezes: int = 1
    terms: int = 1
    broker_kills: int = 1
    lost_replies: int = 2
    engine_kills: int = 1
    engine_hangs: int = 1
    trainer_crashes: int = 2
    reward_away_seconds: float = 4.0
    poison: int = 1
    seed: int = 1
    minutes: float = 40.0  # at most; what is not over by then is lost
    json: Path | None = None

    @property
    def sample_concurrency(self) -> int:
        return self.window * self.n


# What `make chaos` does.
LONG = ChaosSettings(
    groups=2000,
    kills=20,
    freezes=4,
    terms=4,
    broker_kills=2,
    lost_replies=10,
    engine_kills=3,
    engine_hangs=3,
    trainer_crashes=5,
    reward_away_seconds=60,
    poison=3,
)
