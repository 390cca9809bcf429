"""The life of one group on this worker: from the grant to its end.

Invariants: a group ends in exactly one way (see Ending); it is completed only with n stored samples, its rewards
computed from the stored bytes; a finished sample is stored at once, whatever becomes of its siblings; after `lost` or
`gone` nothing is decided any more. A fault of our own fails this group, not its neighbours.
"""

import asyncio
import json
import logging
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from redis.exceptions import RedisError

from rolloutfleet.broker import Begun, Broker, Finished, Release
from rolloutfleet.errors import BrokerUnavailable, EngineRejected, InvalidGroup, ProtocolMismatch
from rolloutfleet.lengths import completed_field, lost_field
from rolloutfleet.messages import UNKNOWN_VERSION, Grant, PromptGroup, Sample
from rolloutfleet.settings import RunConfig
from worker.asking import Sampler
from worker.endings import Ending, EndsBy, Over, cause_of, first_of, until_answered
from worker.environments import play
from worker.generate import Brief, SampleFailed, Session, Terms, one_turn
from worker.health import Fitness
from worker.hooks import Hook, HookFailed, HookRunner
from worker.partials import unpack
from worker.race import Race, redundant_of
from worker.rewards import Scorer
from worker.store import SampleStore
from worker.tokens import Prompt, Prompts

log = logging.getLogger("worker.group")

LEAVE_SECONDS = 4.0  # for the engine to tell what it has, and to store that

type Scored = tuple[Sample, float | None]


@dataclass(frozen=True, slots=True)
class Parts:
    """What every group of a worker works with. `changed` is set when places of the worker may have become free."""

    broker: Broker
    store: SampleStore
    prompts: Prompts
    sampler: Sampler
    scorer: Scorer
    runner: HookRunner
    generate: Hook | None
    fitness: Fitness
    counters: Counter[str]
    changed: asyncio.Event
    proof: dict[str, str] = field(default_factory=dict[str, str])  # goes into each entry: fingerprint, dtype


class GroupWork:
    """One granted group. `run` ends when the broker knows how it ended, or `stop` said that it needn't."""

    def __init__(self, parts: Parts, grant: Grant, config: RunConfig, worker: str) -> None:
        self.grant = grant
        self.unmade = _wanted(len(grant.missing), config)  # samples that still need a slot
        self.may_begin = asyncio.Event()
        self.oldest: int | None = None  # weight version that has made any of its tokens; None: not known
        self._parts = parts
        self._config = config
        self._worker = worker
        self._stopped: EndsBy | None = None
        self._why = ""
        self._work: asyncio.Task[Ending] | None = None
        self._finishing = False
        self._sends_prompt = True
        self._terms = Terms(config.bent_sampling)
        self._longest = 0  # tokens of its longest sample so far
        self._sessions: list[Session] = []  # of samples that are being made
        self._begun: dict[int, Sample] = {}
        self._leaving: asyncio.Task[None] | None = None

    async def run(self) -> Ending:
        began = time.monotonic()
        self._work = asyncio.get_running_loop().create_task(self._timed())
        if self._stopped is not None:
            self._work.cancel()
        try:
            await asyncio.wait({self._work})
        finally:
            self._work.cancel()
            if self._leaving is not None:
                self._leaving.cancel()
        ending = self._judge(self._work)
        if ending.kind not in ("completed", "dropped", "lost", "gone", "cancelled"):
            ending = await self._release(ending, ending.kind)
        self._parts.sampler.metrics.group_seconds.observe(time.monotonic() - began)
        self._parts.sampler.metrics.groups.labels(ending.kind).inc()
        return ending

    def stop(self, kind: EndsBy, why: str = "", *, keeps: bool = False) -> None:
        """Ends the work now: free gives the group back. One that is being completed goes on: the broker decides.

        `keeps`: the engine is asked for the tokens that it has made, so that the next holder goes on from there.
        """
        if self._stopped is None and not self._finishing:
            self._stopped, self._why = kind, why
            keeps = keeps and self._continues and not self._parts.sampler.engine.is_router
            if self._work is not None and keeps and self._sessions:
                self._leaving = asyncio.get_running_loop().create_task(self._leave(self._work))
            elif self._work is not None:
                self._work.cancel()

    async def _leave(self, work: asyncio.Task[Ending]) -> None:
        try:
            async with asyncio.timeout(LEAVE_SECONDS):
                found = await asyncio.gather(*(session.halt() for session in self._sessions))
                pairs = zip(self._sessions, found, strict=True)
                await self._parts.broker.keep(
                    [Begun(self.grant.token, session.index, data) for session, data in pairs if data is not None]
                )
        except (TimeoutError, BrokerUnavailable, RedisError) as error:
            log.warning("the tokens of %s are lost: %s", self.grant.id, error or "the engine did not tell them in time")
        finally:
            work.cancel()

    @property
    def _continues(self) -> bool:
        """Whether a sample may go on from another holder's tokens: the state of an environment is in its holder, and
        a redundant one has no index yet."""
        return self._parts.generate is None and not self._config.redundant

    # The work

    async def _timed(self) -> Ending:
        # A little before the broker's own hard deadline, so that the group ends with a reason that says more; the
        # engine is told to stop before that, for what is there to be known, stored and scored.
        longest = self._config.group_seconds
        hard = asyncio.get_running_loop().time() + longest - min(2.0, longest / 20)
        truncates = self._config.timeout == "truncate"
        self._terms = Terms(self._config.bent_sampling, hard - min(10.0, longest / 4), truncates)
        async with asyncio.timeout_at(hard):
            await self.may_begin.wait()
            given = PromptGroup.from_text(self.grant.text, self._config.max_bytes)
            group = given.model_copy(update={"id": self.grant.id, "n": self.grant.n})
            if self._config.reward == "worker":
                self._parts.scorer.check(group)
            prompt = await self._parts.prompts.make(group)
            stored = await self._stored() if self.grant.stored else {}
            self._begun = await self._read_begun() if self.grant.begun and self._continues else {}
            while (ending := await self._round(group, prompt, stored)) is None:
                stored = await self._stored()
                self.unmade = _wanted(self.grant.n - len(stored), self._config)
            return ending

    async def _round(self, group: PromptGroup, prompt: Prompt, stored: dict[int, bytes]) -> Ending | None:
        """Makes what is missing, scores, completes; None: the broker misses samples that we took to be stored."""
        race = Race(self.grant.n, self._config.redundant, stored)
        found: dict[int, Scored] = {}
        async with asyncio.TaskGroup() as tasks:
            for index, data in stored.items():
                tasks.create_task(self._score(group, index, data, found))
            for number in race.numbers:
                race.enter(number, tasks.create_task(self._run(group, prompt, number, race, found)))
        self._parts.counters["samples_surplus"] += race.surplus
        samples = [found[index][0] for index in range(self.grant.n)]
        given = [found[index][1] for index in range(self.grant.n)]
        rewards = [reward for reward in given if reward is not None] if self._config.reward == "worker" else None
        try:
            scores = await self._parts.scorer.score_group(group, samples, rewards)
        except HookFailed as error:
            raise SampleFailed(f"group {error}") from error
        self._finishing = True
        if scores.dropped is not None:
            return await self._drop(scores.dropped)
        oldest = min(sample.versions[0] for sample in samples)
        newest = max(sample.versions[1] for sample in samples)
        fields = {
            "rewards": json.dumps(scores.rewards),
            "group_reward": json.dumps(scores.group_reward),
            "lengths": json.dumps([sample.length for sample in samples]),
            "versions": json.dumps([oldest, newest]),
            "worker": self._worker,
            "equal": self._count_equal(samples),
            "redundant": max(redundant_of(sample, self.grant.n) for sample in samples),
            **self._parts.proof,
        }
        word = await until_answered(lambda: self._parts.broker.complete(self.grant, fields))
        if word == "missing":
            self._finishing = False
            return None
        if word == "ok":
            self._parts.counters[completed_field(self._longest)] += 1
        return Ending("completed" if word == "ok" else word)

    def _count_equal(self, samples: Sequence[Sample]) -> int:
        """How many samples say the same as another one: the engine's seed, or its temperature, may be wrong."""
        equal = len(samples) - len({b"/".join(row.ids.tobytes() for row in sample.rows) for sample in samples})
        if equal:
            self._parts.counters["equal_samples"] += equal
            self._parts.sampler.metrics.equal.inc(equal)
        return equal

    async def _drop(self, reason: str) -> Ending:
        word = await until_answered(lambda: self._parts.broker.drop(self.grant.token, reason))
        return Ending("dropped", reason) if word == "ok" else Ending("lost")

    async def _stored(self) -> dict[int, bytes]:
        samples, prompt = await until_answered(lambda: self._parts.broker.samples(self.grant.id, self.grant.born))
        self._sends_prompt = self._sends_prompt and prompt is None
        return samples

    async def _read_begun(self) -> dict[int, Sample]:
        found = await until_answered(lambda: self._parts.broker.partials(self.grant.id, self.grant.born))
        samples = {index: unpack(data) for index, data in found.items()}
        return {index: sample for index, sample in samples.items() if sample is not None}

    def _keep(self, index: int, data: bytes) -> None:
        if len(data) <= self._config.partial_bytes:  # the step would refuse it; it needs not travel for that
            self._parts.store.keep(Begun(self.grant.token, index, data))

    # One sample

    async def _run(self, group: PromptGroup, prompt: Prompt, number: int, race: Race, found: dict[int, Scored]) -> None:
        try:
            session = self._open(group, prompt, number)
            sample = await self._make(session)
            index = race.place(number)
            if index is None:
                return
            sample = replace(sample, index=index, sampling={**sample.sampling, **race.facts(number)})
            data = await self._put(sample, session)
        except (SampleFailed, HookFailed, ProtocolMismatch) as error:
            raise SampleFailed(f"sample {number}: {error}") from error
        await self._score(group, index, data, found)

    async def _score(self, group: PromptGroup, index: int, data: bytes, found: dict[int, Scored]) -> None:
        """The reward of a sample is that of the bytes that are stored."""
        try:
            sample = Sample.decode(data)
            self._note_version(sample.versions[0])
            self._longest = max(self._longest, sample.length)
            is_ours = self._config.reward == "worker"
            found[index] = sample, await self._parts.scorer.score(group, sample) if is_ours else None
        except (SampleFailed, HookFailed, ProtocolMismatch) as error:
            raise SampleFailed(f"sample {index}: {error}") from error

    def _open(self, group: PromptGroup, prompt: Prompt, number: int) -> Session:
        begun, keep = self._begun.get(number), self._keep if self._continues else None
        if begun is not None:
            self._note_version(begun.versions[0])
        brief = Brief(group, prompt, number, self.grant.attempt, self._terms, begun, keep)
        return Session(self._parts.sampler, brief)

    async def _make(self, session: Session) -> Sample:
        self._sessions.append(session)
        try:
            return await self._generate(session)
        finally:
            self._sessions.remove(session)
            self.unmade -= 1
            self._parts.changed.set()

    async def _put(self, sample: Sample, session: Session) -> bytes:
        """Stores a sample. The bytes that are stored: another holder may have been first."""
        index = sample.index
        try:
            data = sample.encode()
        except (InvalidGroup, TypeError, ValueError, OverflowError) as error:
            raise SampleFailed(f"what generate made does not encode: {error}") from error
        try:
            word = await self._parts.store.put(Finished(*self._key, index, data, self._prompt_bytes(session)))
        except RedisError as error:
            raise SampleFailed(f"the broker refuses {len(data)} bytes: {error}") from error
        if word == "gone":
            raise Over("gone")
        if word == "had":
            return await self._first(index, data)
        self._count(sample)
        return data

    def _note_version(self, oldest: int) -> None:
        if self.oldest is not None:
            self.oldest = None if oldest == UNKNOWN_VERSION else min(self.oldest, oldest)

    @property
    def _key(self) -> tuple[str, str]:
        return self.grant.id, self.grant.born

    def _prompt_bytes(self, session: Session) -> bytes | None:
        if session.rendered is None or not self._sends_prompt:
            return None
        self._sends_prompt = False
        return np.asarray(session.rendered, dtype="<i4").tobytes()

    async def _first(self, index: int, ours: bytes) -> bytes:
        broker = self._parts.broker
        key = broker.keys.samples(*self._key)
        (first,) = await until_answered(lambda: broker.calls.read([["HGET", key, index]]))
        if first is None:
            raise Over("gone")
        if first != ours:
            self._parts.counters["samples_made_again"] += 1
            self._parts.sampler.metrics.samples_again.inc()
        return first

    def _count(self, sample: Sample) -> None:
        self._parts.counters["tokens"] += sample.length
        self._parts.sampler.metrics.samples.inc()
        self._parts.sampler.metrics.tokens.inc(sample.length)

    async def _generate(self, session: Session) -> Sample:
        hook = self._parts.generate
        try:
            if hook is None:
                await one_turn(session)
            else:
                await play(self._parts.runner, hook, session)
        except HookFailed as error:
            # What ended the sample inside of the session says more than what the hook made of it.
            if not session.is_cut_short:
                raise session.failure or SampleFailed(str(error)) from error
        finally:
            session.close()
            self._longest = max(self._longest, len(session.ids))
        if session.failure is not None:
            raise session.failure
        return session.sample()

    # The end

    def _judge(self, work: asyncio.Task[Ending]) -> Ending:
        if work.cancelled():
            return Ending(self._stopped or "free", self._why)
        error = first_of(work.exception())
        if error is None:
            return work.result()
        if self._stopped is not None:
            return Ending(self._stopped, self._why)
        match error:
            case Over(kind=kind):
                return Ending(kind)
            case InvalidGroup() | EngineRejected():
                return Ending("reject", str(error), cause_of(str(error)))
            case SampleFailed():
                return Ending("fail", str(error), cause_of(str(error)))
            case TimeoutError():
                return self._late()
            case _:
                log.error("group %s failed by a fault of the worker", self.grant.id, exc_info=error)
                return Ending("fail", f"group: a fault of the worker: {error!r}"[:1000])

    def _late(self) -> Ending:
        if not self.may_begin.is_set() or self._parts.sampler.health.is_down or self._parts.scorer.is_away:
            return Ending("free")
        return Ending("fail", f"group took longer than group_seconds = {self._config.group_seconds:g}", "timeout")

    async def _release(self, ending: Ending, kind: Release) -> Ending:
        word = await until_answered(lambda: self._parts.broker.release(self.grant.token, kind, ending.reason))
        level = logging.INFO if kind == "free" else logging.WARNING
        log.log(level, "released id=%s kind=%s answer=%s reason=%s", self.grant.id, kind, word, ending.reason or "-")
        if word == "dead":
            self._parts.counters[lost_field(ending.cause, self._longest)] += 1
        return Ending("lost") if word == "lost" else ending


def _wanted(missing: int, config: RunConfig) -> int:
    return missing + config.redundant if missing else 0
