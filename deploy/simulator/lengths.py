"""How long a sampled answer is: a pure, seeded model, shared by the simulator and the benchmarks.

A length is `quantile(sqrt(b) * Z_prompt + sqrt(1 - b) * Z_sample)` for two standard normals: `b`, the share between
prompts, makes the samples of one prompt resemble each other as real groups do. With the lognormal quantile this is
log length = mu + between + within; with a trace's quantile it is the trace's distribution with the same
correlation.

- The same (seed, prompt, sample) always gives the same length, in every process and Python version.
- Lengths are whole tokens, at least 1, and not cut: cutting at a budget is the caller's (`min(length, cap)`).
"""

import csv
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from statistics import NormalDist
from typing import Protocol

_NORMAL = NormalDist()
_GRID_REACH = 8.0
_GRID_STEPS = 160


class Quantile(Protocol):
    """The inverse of a distribution's cumulative function, over standard normal deviates instead of probabilities."""

    def at(self, deviate: float) -> float:
        """Length in tokens at the probability Phi(deviate); not rounded."""
        ...


@dataclass(frozen=True, slots=True)
class Lognormal:
    """Log length is normal with mean `mu` and standard deviation `sigma`."""

    mu: float
    sigma: float

    @classmethod
    def with_mean(cls, mean: float, sigma: float) -> "Lognormal":
        """The lognormal whose mean length is `mean` tokens, before any cut."""
        return cls(math.log(mean) - sigma * sigma / 2, sigma)

    def at(self, deviate: float) -> float:
        return math.exp(self.mu + self.sigma * deviate)


@dataclass(frozen=True, slots=True)
class Trace:
    """The empirical distribution of measured lengths, linear between neighbours."""

    lengths: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.lengths:
            raise ValueError("a trace of lengths needs at least one row")
        if any(left > right for left, right in pairwise(self.lengths)):
            raise ValueError("the lengths of a trace must be sorted")

    @classmethod
    def read(cls, path: Path) -> "Trace":
        """From a CSV with a column `output_len`, and `count` where the file is a histogram. Raises ValueError for any
        other file."""
        return cls(tuple(sorted(_read_lengths(path))))

    def at(self, deviate: float) -> float:
        place = _NORMAL.cdf(deviate) * (len(self.lengths) - 1)
        below = int(place)
        above = min(below + 1, len(self.lengths) - 1)
        return self.lengths[below] + (place - below) * (self.lengths[above] - self.lengths[below])


def _read_lengths(path: Path) -> Iterator[float]:
    with path.open(newline="") as file:
        rows = csv.DictReader(file)
        columns = rows.fieldnames or ()
        if "output_len" not in columns:
            raise ValueError(f"{path} has no column output_len; it has {', '.join(columns) or 'none'}")
        for row in rows:
            yield from [float(row["output_len"])] * int(row.get("count") or 1)


@dataclass(frozen=True, slots=True)
class LengthModel:
    """Lengths of samples by prompt and number of the sample. `between` is the share of the variance between prompts, 0
    to 1."""

    quantile: Quantile
    between: float = 0.5
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.between <= 1:
            raise ValueError(f"the share of the variance between prompts must be in 0 to 1, not {self.between}")

    def draw(self, prompt: bytes | int, sample: int) -> int:
        """Tokens of one sample, at least 1."""
        key = prompt if isinstance(prompt, bytes) else b"%d" % prompt
        shared = deviate(self.seed, b"prompt", key)
        own = deviate(self.seed, b"sample", key, b"%d" % sample)
        return max(1, round(self.quantile.at(math.sqrt(self.between) * shared + math.sqrt(1 - self.between) * own)))

    def mean(self, cap: int | None = None) -> float:
        """E[min(L, cap)] of a sample, in tokens."""
        return self.mean_longest(1, cap)

    def mean_longest(self, n: int, cap: int | None = None) -> float:
        """E[max of the n samples of one prompt, each cut at `cap`], in tokens."""
        if n < 1:
            raise ValueError(f"a group has at least one sample, not {n}")
        if self.between == 1:
            n = 1
        shared, own = math.sqrt(self.between), math.sqrt(1 - self.between)
        total = 0.0
        for z, weight in _density_of_longest(1):
            for y, weight_y in _density_of_longest(n):
                length = max(1.0, self.quantile.at(shared * z + own * y))
                total += weight * weight_y * (length if cap is None else min(length, cap))
        return total

    def group_bound(self, n: int, cap: int | None = None) -> float:
        """E[L] / E[max of n]: the share of its slots that a refill by whole groups can keep busy."""
        return self.mean(cap) / self.mean_longest(n, cap)


def uniform(seed: int, *parts: bytes) -> float:
    """A number strictly between 0 and 1 that depends on nothing but the arguments."""
    digest = blake2b(b"\0".join(parts), digest_size=8, key=b"%d" % seed).digest()
    return ((int.from_bytes(digest, "little") >> 12) + 0.5) / (1 << 52)


def deviate(seed: int, *parts: bytes) -> float:
    """A standard normal number that depends on nothing but the arguments."""
    return _NORMAL.inv_cdf(uniform(seed, *parts))


@lru_cache(maxsize=64)
def _density_of_longest(n: int) -> Sequence[tuple[float, float]]:
    """Points and weights to integrate over the largest of n standard normals; the weights sum to 1."""
    step = 2 * _GRID_REACH / _GRID_STEPS
    points = [-_GRID_REACH + step * (index + 0.5) for index in range(_GRID_STEPS)]
    weights = [n * _NORMAL.cdf(z) ** (n - 1) * _NORMAL.pdf(z) for z in points]
    total = sum(weights)
    return [(z, weight / total) for z, weight in zip(points, weights, strict=True) if weight > 1e-14 * total]
