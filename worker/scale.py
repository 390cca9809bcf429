"""Whether an engine's log-probabilities are what a trainer takes them for: nats, and scaled by the temperature.

Two requests of one token ask for the likeliest tokens at two temperatures. Probabilities that add up to more than 1 are
of another base, or none at all; logs that don't shrink as the temperature grows were not scaled with it.

Invariants: a worker claims only while this has been seen of the weights in use: it is looked at once the first ones are
there, after each change of them, and after the engine was down; a look that weights overtook counts for nothing.
"""

import asyncio
import logging
import math
from typing import Any

from rolloutfleet.errors import EngineRejected, EngineUnavailable
from worker.engine import EngineClient
from worker.health import Fitness
from worker.waits import any_within

log = logging.getLogger("worker.scale")

UNCHECKED = "the engine's log-probabilities were not checked yet"
TEMPERATURES = (1.0, 2.0)
LIKELIEST = 20  # never more than the vocabulary has: that would end the engine
_MOST_MASS = 1.01
_SCALE, _TOLERANCE = TEMPERATURES[0] / TEMPERATURES[1], 0.1  # engines compute in 16 bits

type Logprobs = dict[int, float]


class Scale:
    """Looks at one engine's log-probabilities whenever that is asked for, until they are right."""

    def __init__(self, engine: EngineClient, fitness: Fitness, seconds: float) -> None:
        self.over = asyncio.Event()
        self._engine = engine
        self._fitness = fitness
        self._seconds = seconds  # between two looks
        self._asked = asyncio.Event()  # since the last look began

    def ask(self) -> None:
        """The weights, or the engine, are others: nothing is claimed until its log-probabilities were seen."""
        self._asked.set()
        self._fitness.begin("logprobs", UNCHECKED)

    async def run(self) -> None:
        while not self.over.is_set():
            self._asked.clear()
            if self._fitness.has("logprobs") and self._engine.gate.is_open and not self._fitness.has("engine_down"):
                reason = await self.check()
                if not self._asked.is_set():
                    self._tell(reason)
            await any_within(self._seconds, self._asked, self.over)

    def _tell(self, reason: str) -> None:
        if reason:
            self._fitness.restate("logprobs", reason)
        else:
            self._fitness.end("logprobs")

    async def check(self) -> str:
        """What is wrong; empty: nothing."""
        count = min(LIKELIEST, self._engine.vocab_size or LIKELIEST)
        try:
            cold, hot = [read(await self._engine.likeliest(heat, count)) for heat in TEMPERATURES]
        except (EngineUnavailable, EngineRejected, ValueError, LookupError, TypeError) as error:
            return f"{UNCHECKED}: {error}"
        return judge(cold, hot)


def read(meta: dict[str, Any]) -> tuple[Logprobs, tuple[int, float]]:
    """The likeliest tokens, and the one that was drawn. Errors: ValueError."""
    try:
        likeliest = {entry[1]: float(entry[0]) for entry in meta["output_top_logprobs"][0]}
        number, token = meta["output_token_logprobs"][0][:2]
        drawn = (token, float(number))
    except (LookupError, TypeError, ValueError) as error:
        raise ValueError(f"it does not tell its likeliest tokens ({type(error).__name__})") from error
    if not all(map(math.isfinite, [*likeliest.values(), drawn[1]])):
        raise ValueError("a log-probability is not finite")
    return likeliest, drawn


def judge(cold: tuple[Logprobs, tuple[int, float]], hot: tuple[Logprobs, tuple[int, float]]) -> str:
    """What is wrong with what an engine said at the two temperatures; empty: nothing."""
    for likeliest, (token, number) in (cold, hot):
        mass = math.fsum(math.exp(min(it, 1.0)) for it in likeliest.values())
        if mass > _MOST_MASS:
            return (
                f"the engine's log-probabilities are not nats: its {len(likeliest)} likeliest tokens have "
                f"a probability of {mass:.3g} together"
            )
        if abs(likeliest.get(token, number) - number) > _TOLERANCE:
            return "the engine says two log-probabilities of one token at one place"
    both = sorted(cold[0].keys() & hot[0].keys())
    scale = _slope([cold[0][it] for it in both], [hot[0][it] for it in both])
    if scale is not None and abs(scale - _SCALE) > _TOLERANCE:
        return (
            f"the engine's log-probabilities don't follow the temperature (by {scale:.2f} where {_SCALE} is right): "
            "start it without SGLANG_RETURN_ORIGINAL_LOGPROB"
        )
    return ""


def _slope(before: list[float], after: list[float]) -> float | None:
    """By how much the second numbers grow with the first; None: the first are all equal."""
    if not before:
        return None
    middle_before, middle_after = math.fsum(before) / len(before), math.fsum(after) / len(after)
    spread = math.fsum((it - middle_before) ** 2 for it in before)
    if spread < 1e-6:
        return None
    shared = math.fsum((a - middle_before) * (b - middle_after) for a, b in zip(before, after, strict=True))
    return shared / spread
