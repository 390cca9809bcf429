"""Rewards of stored samples, of groups, and the group filter.

A reward hook is `reward(prompt: PromptGroup, sample: Sample) -> float`; a group reward hook is
`group_reward(prompt, samples, rewards) -> number (the group's own reward) or list (in place of the n rewards)`; a group
filter hook is `group_filter(prompt, samples, rewards) -> "keep" or ("drop", reason)`. Each may be sync or async. A hook
that needs a service says that it is away by a ConnectionError, its own or below what its HTTP library raises: then
nothing counts against the group.

Invariants: a reward is a finite number; a reward that fails is tried again apart from generation; while a reward
service is away its samples wait here, the worker claims no more, and no attempt is counted.
"""

import asyncio
import math
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, cast

import aiohttp

from rolloutfleet.errors import InvalidGroup
from rolloutfleet.messages import PromptGroup, Sample
from rolloutfleet.metrics import WorkerMetrics
from worker.health import Fitness
from worker.hooks import Hook, HookFailed, HookRunner, load_hook
from worker.settings import WorkerSettings
from worker.waits import back_off

_NUMBER = re.compile(r"[-+]?(?:\d[\d,]*(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d+)?")
_LONGEST_WAIT = 5.0

type Reward = Callable[[PromptGroup, Sample], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Scores:
    """What a completed group is handed on with; `dropped`: the filter's reason, if it refused the group."""

    rewards: list[float] | None
    group_reward: float | None = None
    dropped: str | None = None


class Scorer:
    """Scores samples and groups, as the settings say. Errors of its methods: HookFailed; InvalidGroup (no label)."""

    def __init__(self, settings: WorkerSettings, runner: HookRunner, fitness: Fitness, metrics: WorkerMetrics) -> None:
        self._runner = runner
        self._fitness = fitness
        self._metrics = metrics
        self._tries = settings.reward_tries
        self.needs_label = settings.reward in ("exact_match", "math") and not settings.reward_url
        self._service = RewardService(settings) if settings.reward_url else None
        self._reward = self._choose(settings)
        self._group_reward = _hook("group_reward", settings.group_reward)
        self._filter = _hook("group_filter", settings.group_filter)

    @property
    def is_away(self) -> bool:
        """Whether samples wait for a reward service."""
        return self._fitness.has("reward_down")

    async def close(self) -> None:
        if self._service is not None:
            await self._service.close()

    def check(self, prompt: PromptGroup) -> None:
        """Errors: InvalidGroup, if this group could never be scored."""
        if self.needs_label and prompt.label is None:
            raise InvalidGroup("no label, and the reward compares with one: add it, or choose another reward")

    async def score(self, prompt: PromptGroup, sample: Sample) -> float:
        """The reward of one stored sample; its own, if generate made one."""
        if sample.reward is not None:
            return as_reward("generate", sample.reward)
        with self._metrics.reward_seconds.time():
            return await self._try(lambda: self._reward(prompt, sample))

    async def _try[T](self, ask: Callable[[], Awaitable[T]]) -> T:
        """Asks again after a failure, a few times; for as long as it takes while a service is away."""
        failures = waits = 0
        while True:
            try:
                answer = await ask()
            except HookFailed as error:
                failures += not error.is_away
                waits += 1
                self._metrics.retries.labels("reward").inc()
                if error.is_away and waits >= self._tries:
                    self._fitness.begin("reward_down", str(error))
                if failures >= self._tries:
                    raise HookFailed(f"{error}, {failures} tries") from None
            else:
                self._fitness.end("reward_down")
                return answer
            await asyncio.sleep(back_off(waits, longest=_LONGEST_WAIT))

    async def score_group(self, prompt: PromptGroup, samples: Sequence[Sample], rewards: list[float] | None) -> Scores:
        """The group's own reward and the filter's word, both of stored samples."""
        scores = Scores(rewards)
        group_reward, refuses = self._group_reward, self._filter
        if group_reward is not None:
            scores = await self._try(lambda: self._ask_group_reward(group_reward, prompt, samples, rewards))
        if refuses is not None:
            kept = list(scores.rewards or ())
            dropped = await self._try(lambda: self._ask_filter(refuses, prompt, samples, kept))
            scores = replace(scores, dropped=dropped)
        return scores

    async def _ask_group_reward(
        self, hook: Hook, prompt: PromptGroup, samples: Sequence[Sample], rewards: list[float] | None
    ) -> Scores:
        given = await self._runner.call(hook, prompt, tuple(samples), list(rewards or ()))
        return _group_scores(hook.name, given, len(samples), rewards)

    async def _ask_filter(
        self, hook: Hook, prompt: PromptGroup, samples: Sequence[Sample], rewards: list[float]
    ) -> str | None:
        return _refusal(hook.name, await self._runner.call(hook, prompt, tuple(samples), rewards))

    def _choose(self, settings: WorkerSettings) -> Reward:
        if self._service is not None:
            return self._service.score
        match settings.reward:
            case "exact_match":
                return _exact_match
            case "math":
                return self._from_hook(Hook("reward math", math_match))
            case "":
                return _nothing
            case path:
                return self._from_hook(load_hook("reward", path))

    def _from_hook(self, hook: Hook) -> Reward:
        async def score(prompt: PromptGroup, sample: Sample) -> float:
            return as_reward(hook.name, await self._runner.call(hook, prompt, sample))

        return score


class RewardService:
    """POST reward_url {id, prompt, messages, input_ids, label, metadata, text, finish, ids}.

    Its answer is a number, or {"reward": number}. No connection, a timeout, 429 and 5xx mean that the service is away.
    """

    def __init__(self, settings: WorkerSettings) -> None:
        self._url = settings.reward_url
        self._permits = asyncio.Semaphore(settings.reward_concurrency)
        self._timeout = aiohttp.ClientTimeout(total=settings.reward_timeout_seconds)
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def score(self, prompt: PromptGroup, sample: Sample) -> float:
        if self._session is None:
            self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=self._timeout)
        asked = prompt.model_dump(include={"id", "prompt", "messages", "input_ids", "label", "metadata"})
        asked |= {"text": sample.text, "finish": sample.finish, "ids": [row.ids.tolist() for row in sample.rows]}
        async with self._permits:
            try:
                async with self._session.post(self._url, json=asked) as response:
                    status, answer = response.status, await _read_json(response)
            except (aiohttp.ClientError, OSError) as error:
                words = str(error) or type(error).__name__
                raise HookFailed(f"reward_url {self._url} does not answer: {words}", is_away=True) from error
        if status != 200:
            away = status == 429 or status >= 500
            raise HookFailed(f"reward_url {self._url} answers {status}: {str(answer)[:200]}", is_away=away)
        fields = cast(dict[str, Any], answer) if isinstance(answer, dict) else {"reward": answer}
        return as_reward(f"reward_url {self._url}", fields.get("reward"))


async def _read_json(response: aiohttp.ClientResponse) -> Any:
    try:
        return await response.json(content_type=None)
    except ValueError:
        return None


def as_reward(name: str, value: object) -> float:
    """Errors: HookFailed, naming the hook, unless it is a finite number."""
    if not isinstance(value, Real):
        raise HookFailed(f"{name} returned {_show(value)}, which is no number")
    number = float(value)
    if not math.isfinite(number):
        raise HookFailed(f"{name} returned {number}, which is not finite")
    return number


def exact_match(label: object, text: str) -> float:
    """1.0 if an answer ends as the label does: what follows the last `####`, else the last number, else the whole text.

    Numbers are compared as numbers ("1,250" is "1250.0"), everything else as text without surrounding space.
    """
    wanted = _final(str(label))
    marked = text.rpartition("####")[2] if "####" in text else None
    said = [marked] if marked is not None else [*_NUMBER.findall(text)[-1:], text]
    return float(any(_same(wanted, one.strip()) for one in said))


def _final(label: str) -> str:
    return label.rpartition("####")[2].strip()


def _same(wanted: str, said: str) -> bool:
    if wanted == said:
        return True
    try:
        return float(wanted.replace(",", "")) == float(said.replace(",", "").rstrip(". "))
    except ValueError:
        return False


def math_match(prompt: PromptGroup, sample: Sample) -> float:
    """1.0 if the answer's last mathematical expression equals the label's, by the library math-verify."""
    from math_verify import parse, verify  # brings sympy, a second of import: only where it is used

    # Its own timeouts are signals of the main thread: none of them here, where our timeout ends the call.
    untimed: Any = {"parsing_timeout": None}
    label = str(prompt.label)
    bare = "$" not in label and "\\boxed" not in label
    wanted = cast(list[Any], parse(f"${label}$" if bare else label, **untimed))
    return float(verify(wanted, cast(list[Any], parse(sample.text, **untimed)), timeout_seconds=None))


async def _exact_match(prompt: PromptGroup, sample: Sample) -> float:
    # Ours, and microseconds: needs neither a thread nor a permit.
    return exact_match(prompt.label, sample.text)


async def _nothing(prompt: PromptGroup, sample: Sample) -> float:
    raise HookFailed("no reward is configured: set reward or reward_url")


def _hook(setting: str, path: str) -> Hook | None:
    return load_hook(setting, path) if path else None


def _group_scores(name: str, given: Any, n: int, rewards: list[float] | None) -> Scores:
    if isinstance(given, Real):
        return Scores(rewards, as_reward(name, given))
    if not isinstance(given, list | tuple):
        raise HookFailed(f"{name} returned {_show(given)}: a number, or a list of {n} numbers")
    values = cast(Sequence[Any], given)
    if len(values) != n:
        raise HookFailed(f"{name} returned {len(values)} rewards for {n} samples")
    return Scores([as_reward(name, value) for value in values])


def _refusal(name: str, given: Any) -> str | None:
    match given:
        case "keep":
            return None
        case ("drop", str(reason)):
            return reason[:200]
        case _:
            raise HookFailed(f'{name} returned {_show(given)}: "keep", or ("drop", reason)')


def _show(value: object) -> str:
    try:
        return repr(value)[:100]
    except Exception:  # a stranger's __repr__
        return f"a {type(value).__name__}"
