"""Faults that a simulated engine can be told to have, and the seeded draw of which request meets which.

- At most one fault per request; the rates are shares of all accepted requests and sum to at most 1.
- The k-th accepted request of an engine meets the same fault whenever seed and rates are the same.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import cast

from deploy.simulator.lengths import uniform

RATE = "_rate"


@dataclass(frozen=True, slots=True)
class Faults:
    """Each `*_rate` is the share of requests that meet this fault.

    error: HTTP 500. queue_full: HTTP 503. hang: never answered. abort: HTTP 200, finish reason abort after some
    tokens. disconnect: the connection is closed in the middle of the body. The others spoil a good answer (HTTP
    200): a field left out, one log-probability too few, NaN in place of one, a finish reason that doesn't exist, a
    body that is cut off, a page of HTML. `slow_factor` divides the decode speed; `stalled` stops it; `die_after`
    kills the engine at its k-th request from then on.
    """

    error_rate: float = 0.0
    queue_full_rate: float = 0.0
    hang_rate: float = 0.0
    abort_rate: float = 0.0
    disconnect_rate: float = 0.0
    missing_output_ids_rate: float = 0.0
    missing_logprobs_rate: float = 0.0
    short_logprobs_rate: float = 0.0
    nan_logprob_rate: float = 0.0
    unknown_finish_rate: float = 0.0
    truncated_body_rate: float = 0.0
    html_body_rate: float = 0.0
    slow_factor: float = 1.0
    stalled: bool = False
    die_after: int | None = None

    def __post_init__(self) -> None:
        for name, rate in self.rates():
            if not 0 <= rate <= 1:
                raise ValueError(f"{name}{RATE} must be in 0 to 1, not {rate}")
        if sum(rate for _, rate in self.rates()) > 1 + 1e-9:
            raise ValueError("the rates of the faults must sum to at most 1")
        if not self.slow_factor > 0:
            raise ValueError(f"slow_factor must be above 0, not {self.slow_factor}")
        if self.die_after is not None and self.die_after < 1:
            raise ValueError(f"die_after must be at least 1, not {self.die_after}")

    def rates(self) -> list[tuple[str, float]]:
        """(fault, share), in the order in which they are drawn."""
        return [(name.removesuffix(RATE), cast(float, getattr(self, name))) for name in RATE_NAMES]

    def draw(self, seed: int, request: int) -> str | None:
        """Which fault the request of this number meets; None: none."""
        place = uniform(seed, b"fault", b"%d" % request)
        for name, rate in self.rates():
            place -= rate
            if place < 0:
                return name
        return None

    def changed(self, changes: Mapping[str, object]) -> "Faults":
        """These faults with some settings replaced. Raises ValueError for an unknown name or a wrong type."""
        for name, value in changes.items():
            if name not in _TYPES:
                raise ValueError(f"unknown fault {name}; known are {', '.join(_TYPES)}")
            if not _fits(name, value):
                raise ValueError(f"{name} can't be {value!r}")
        return replace(self, **changes)  # pyright: ignore[reportArgumentType]


_TYPES = {field.name: field.type for field in fields(Faults)}
RATE_NAMES = tuple(name for name in _TYPES if name.endswith(RATE))


def _fits(name: str, value: object) -> bool:
    if name == "stalled":
        return isinstance(value, bool)
    if name == "die_after":
        return value is None or (isinstance(value, int) and not isinstance(value, bool))
    return isinstance(value, int | float) and not isinstance(value, bool)
