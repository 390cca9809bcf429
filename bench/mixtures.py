"""The answers' lengths that the fleet is measured with, in units of the mean before the cut."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from deploy.simulator.lengths import LengthModel, Lognormal

_MEAN_TOKENS = 1000


@dataclass(frozen=True, slots=True)
class Mixture:
    """Lengths of groups; each is cut at `cut` means, as max_new_tokens cuts real ones."""

    name: str
    model: LengthModel
    cut: float

    def lengths(self, group_id: str, n: int) -> Sequence[float]:
        """In means, of the n samples of a group; always the same for an id."""
        return _draw(self, group_id, n)

    def mean(self) -> float:
        return self.model.mean(self.cap) / _MEAN_TOKENS

    def group_bound(self, n: int) -> float:
        """E[L] / E[max of n]."""
        return self.model.group_bound(n, self.cap)

    @property
    def cap(self) -> int:
        return round(self.cut * _MEAN_TOKENS)


@lru_cache(maxsize=100_000)
def _draw(mixture: Mixture, group_id: str, n: int) -> Sequence[float]:
    drawn = (mixture.model.draw(group_id.encode(), index) for index in range(n))
    return tuple(min(mixture.cap, length) / _MEAN_TOKENS for length in drawn)


def independent(cut: float) -> Mixture:
    """Samples that have nothing to do with each other: the worst for group refill."""
    return Mixture("independent, sigma 1", LengthModel(Lognormal.with_mean(_MEAN_TOKENS, 1.0), 0.0, 1), cut)


def default(cut: float) -> Mixture:
    """What the simulator draws by default: half of the variance lies between prompts."""
    return Mixture("default mixture", LengthModel(Lognormal.with_mean(_MEAN_TOKENS, 0.9), 0.5, 1), cut)
