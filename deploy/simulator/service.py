"""One simulated engine without its HTTP: what it will answer to a request, and what it knows about its weights.

- An answer depends on settings, prompt, and the number of the sample (or the sampling seed) alone, not on when or
  beside what it runs.
- `weight_version`, which the engine reports, and `engine.version`, which makes the tokens, differ only after an
  update while paused in place: the real engine contradicts itself in that case.
"""

import asyncio
import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

from deploy.simulator.answers import Answers
from deploy.simulator.engine import Engine, Job, Pace
from deploy.simulator.faults import Faults
from deploy.simulator.lengths import uniform
from deploy.simulator.requests import GenerateRequest
from deploy.simulator.settings import SimulatorSettings
from deploy.simulator.tokens import TokenModel, ids_to_text
from rolloutfleet.weights import MANIFEST

# Prompts whose samples are counted; older ones start again at 0, so that a run of days stays small.
_MOST_COUNTED_PROMPTS = 1 << 17


class UpdateRefused(Exception):
    """The engine answers 400 to the weight update with this message."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a request will be answered when nothing stops it: tokens, text, and the id of the token or the string that
    ends it, if one does."""

    request: GenerateRequest
    tokens: list[int]
    text: str
    natural_length: int
    stopped_by: int | str | None

    def text_after(self, made: int) -> str:
        """The part of the text that stands when `made` tokens are made."""
        return self.text[: len(self.text) * made // self.natural_length]


class Service:
    """The simulated engine behind its routes. `changed` is called after whatever may move the next end of a request."""

    def __init__(self, settings: SimulatorSettings, changed: Callable[[], None]) -> None:
        self.settings = settings
        self.faults = settings.faults
        self.engine = Engine(
            settings.slots,
            Pace(settings.speed, settings.half),
            settings.weight_version,
            settings.max_queued_requests,
            time.monotonic,
            changed,
        )
        self.tokens = TokenModel(settings.seed, settings.vocabulary, settings.stop_token)
        self.weight_version = settings.weight_version
        self.model_path = settings.model_path
        self.is_healthy = True
        self.is_draining = False
        self.requests = 0
        self.prompt_tokens = 0
        self.aborted = 0
        self._requests_to_death = self.faults.die_after
        self._lengths = settings.length_model()
        self._answers = _read_answers(settings)
        self._counts: dict[bytes, int] = {}
        self._update = asyncio.Lock()
        self.set_faults(settings.faults)

    # Requests

    def plan(self, request: GenerateRequest) -> Plan:
        settings, key = self.settings, request.prompt_key
        sample = self._count(key) if request.sampling_seed is None else request.sampling_seed
        drawn = max(self._lengths.draw(key, sample), request.min_new_tokens)
        goes_on = request.ignore_eos or drawn > request.max_new_tokens
        total = request.max_new_tokens if goes_on else drawn
        stops = {settings.stop_token, *request.stop_token_ids}
        tokens = self.tokens.sequence(uniform(settings.seed, b"tokens", key, b"%d" % sample), total, stops)
        stopped_by = None
        if not goes_on:
            stopped_by = tokens[-1] = self._stop_of(request)
        text = self._answers.write(key, sample, self._right_answer(request), drawn)
        plan = Plan(request, tokens, text, max(drawn, total, 1), stopped_by)
        return _cut_at_string(plan) if request.stops else plan

    def job(self, plan: Plan, fault: str | None, request_number: int) -> Job:
        """The request for the scheduler; with the fault `abort` it ends early."""
        total = len(plan.tokens)
        if fault == "abort":
            total = math.ceil(total * uniform(self.settings.seed, b"cut", b"%d" % request_number))
        ended = asyncio.get_running_loop().create_future()
        return Job(plan.request.rid, len(plan.request.prompt_ids), total, ended)

    def count_request(self, prompt_tokens: int) -> int:
        """The number of this request, from 0."""
        self.requests += 1
        self.prompt_tokens += prompt_tokens
        return self.requests - 1

    def draw_fault(self, request_number: int) -> str | None:
        """Which fault this request meets; None: none."""
        return self.faults.draw(self.settings.seed, request_number) if self._meets_faults else None

    def is_time_to_die(self) -> bool:
        """Counts down the requests that `die_after` leaves."""
        if self._requests_to_death is None:
            return False
        self._requests_to_death -= 1
        return self._requests_to_death <= 0

    def _count(self, key: bytes) -> int:
        sample = self._counts.pop(key, 0)
        self._counts[key] = sample + 1
        if len(self._counts) > _MOST_COUNTED_PROMPTS:
            del self._counts[next(iter(self._counts))]
        return sample

    def _stop_of(self, request: GenerateRequest) -> int:
        known = [token for token in request.stop_token_ids if 0 <= token < self.settings.vocabulary]
        return min(known, default=self.settings.stop_token)

    def _right_answer(self, request: GenerateRequest) -> str | None:
        if not self._answers.knows_any:
            return None
        return self._answers.find(request.text or ids_to_text(request.prompt_ids))

    # Control

    def set_faults(self, faults: Faults) -> None:
        if faults.die_after != self.faults.die_after:
            self._requests_to_death = faults.die_after
        self.faults = faults
        self._meets_faults = any(rate for _, rate in faults.rates())
        self.engine.set_pace(replace(self.engine.pace, slow_factor=faults.slow_factor, stalled=faults.stalled))

    def slow_down(self, step_seconds: float | None) -> None:
        """Each step of the model takes this much longer; None or 0: no longer."""
        self.engine.set_pace(replace(self.engine.pace, step_seconds=max(0.0, step_seconds or 0.0)))

    async def update_weights(self, model_path: str, version: str | None) -> None:
        """Not paused, waits for all that runs or is queued, and holds what comes meanwhile. Raises UpdateRefused."""
        async with self._update:
            if not self.settings.any_weights and not await asyncio.to_thread(os.path.exists, model_path):
                raise UpdateRefused(f"Failed to load weights: {model_path} does not exist.")
            self.engine.hold_new(True)
            try:
                await self._wait_for_unfinished()
                self._load(model_path, version)
            finally:
                self.engine.hold_new(False)

    async def _wait_for_unfinished(self) -> None:
        while not self.engine.paused and (jobs := self.engine.unfinished()):
            await asyncio.wait([job.ended for job in jobs])

    def _load(self, model_path: str, version: str | None) -> None:
        if version is not None:
            self.engine.set_version(version)
        if self.engine.paused == "in_place" and self.engine.running:
            raise UpdateRefused("Weights were updated, but the cache was not flushed: requests are running.")
        self.model_path = model_path
        self.weight_version = self.engine.version

    def checksum(self) -> str:
        """Of the weights: equal where seed and published weights are, or the path where it has no manifest."""
        manifest = Path(self.model_path) / MANIFEST
        weights = manifest.read_bytes() if manifest.is_file() else self.model_path.encode()
        return sha256(b"%d " % self.settings.seed + weights).hexdigest()

    def set_version(self, version: str) -> None:
        """The name alone changes; nothing is loaded."""
        self.engine.set_version(version)
        self.weight_version = version


def _cut_at_string(plan: Plan) -> Plan:
    """Ended by the first of its stop strings, if one of them comes within the tokens; the text is trimmed of it.

    min_new_tokens holds back stop tokens only, and an empty string is found at once.
    """
    text, request = plan.text, plan.request
    found = [(at + len(stop), at, stop) for stop in request.stops if (at := text.find(stop)) >= 0]
    if not found:
        return plan
    end, at, stop = min(found)
    total = max(1, math.ceil(end * plan.natural_length / len(text)))
    if total > len(plan.tokens):
        return plan
    return Plan(request, plan.tokens[:total], text[: end if request.keeps_stop else at], total, stop)


def _read_answers(settings: SimulatorSettings) -> Answers:
    if settings.answers is None:
        return Answers({}, settings.accuracy, settings.seed)
    return Answers.read(settings.answers, settings.prompt_key, settings.label_key, settings.accuracy, settings.seed)
