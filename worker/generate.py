"""How one sample is made: the default is one turn; a custom function makes several, with tools in between.

    async def generate(session: Session) -> None:
        turn = await session.generate()                     # through a slot; its tokens are appended, mask 1
        session.append(tool_ids, mask=0)                    # what a tool said; no slot is held meanwhile
        await session.generate(max_new_tokens=64)           # goes on after all of it
        session.finish(reward=1.0, metadata={"turns": 2})   # both optional; the reward replaces the worker's own

`session.prompt` is the PromptGroup, `session.prompt_ids` its ids (None until the engine has told them, if it is text),
`session.index` the number of the sample in its group, `session.attempt` that of the group's attempt. What generate
returns is ignored. The sample is one row: turns append ids and never render the text again. When the group's time is
nearly over, a turn ends with what it has (`finish` is "timeout"), and there are no more.

Invariants: a slot is held for one request and nothing else; ids, log-probabilities, mask and spans of a session always
agree; what ends a sample for good is kept in the session, whatever the custom function makes of the exception.
"""

import asyncio
import time
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from rolloutfleet.errors import EngineRejected, InvalidGroup
from rolloutfleet.messages import UNKNOWN_VERSION, PromptGroup, Row, Sample, Span
from rolloutfleet.metrics import EngineFault, WorkerMetrics
from rolloutfleet.sampling import Bent, check_sampling, cuts_off, facts, join_facts, seed_of
from worker.answers import Fault, Kept, Piece, join_spans
from worker.engine import EngineBusy, EngineClient, NoAnswer
from worker.health import EngineHealth
from worker.slots import Slots
from worker.tokens import Limits, Prompt, check_ids, fit
from worker.waits import back_off

type Ended = Literal["stop", "length", "timeout"]

MOST_ABORTS = 8

_USELESS_ABORT = Fault("abort_without_tokens", "aborted without tokens")
_NOTHING = Piece(np.empty(0, "<i4"), np.empty(0, "<f4"), (), "abort", "")
_TOO_MANY_ABORTS = Fault("aborted_too_often", "aborted too often")


class SampleFailed(Exception):
    """This attempt at the sample is over; the message says why, without the sample's number."""


@dataclass(frozen=True, slots=True)
class Sampler:
    """What sessions need of their worker."""

    engine: EngineClient
    health: EngineHealth
    slots: Slots
    limits: Limits
    metrics: WorkerMetrics
    counters: Counter[str]
    max_tries: int

    def count_retry(self, cause: str) -> None:
        self.counters["retries"] += 1
        self.metrics.retries.labels(cause).inc()

    def count_fault(self, name: EngineFault) -> None:
        self.metrics.engine_faults.labels(name).inc()


@dataclass(frozen=True, slots=True)
class Terms:
    """How the run wants its samples. `ends_at`: until when (the loop's time); `truncates`: what is there then is kept,
    and masked."""

    bent_sampling: Bent = "refuse"
    ends_at: float | None = None
    truncates: bool = False


class OutOfTime(TimeoutError):
    """The group's time is over."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What one `session.generate()` made; `finish` is "stop", "length" or "timeout"."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    text: str
    finish: Ended


class Session:
    """One sample in the making."""

    def __init__(
        self, sampler: Sampler, group: PromptGroup, prompt: Prompt, index: int, attempt: int, terms: Terms = Terms()
    ) -> None:
        self.prompt = group
        self.prompt_ids = prompt.ids
        self.index = index
        self.attempt = attempt
        self.failure: Exception | None = None
        self._sampler = sampler
        self._start = prompt
        self._terms = terms
        self._row = RowBuilder()
        self._texts: list[str] = []
        self._sampling: list[dict[str, Any]] = []  # of each turn
        self._finish: Ended | None = None
        self._reward: float | None = None
        self._metadata: Mapping[str, Any] = {}
        self._closed = False

    # For generate functions

    @property
    def ids(self) -> list[int]:
        """The tokens after the prompt so far."""
        return self._row.ids

    @property
    def room(self) -> int | None:
        """Tokens that still fit into the engine's context; None if that is not known."""
        context = self._sampler.limits.context_length
        return None if context is None else context - len(self.prompt_ids or ()) - len(self._row.ids)

    async def generate(self, input_ids: Sequence[int] | None = None, **sampling_params: Any) -> Turn:
        """One turn of the model, appended to the row. `sampling_params` win over the group's.

        `input_ids`, if given, is the whole input, and must begin with all ids so far; what it adds is appended with
        mask 0. Errors: EngineRejected, SampleFailed, InvalidGroup, OutOfTime; any of them ends the sample.
        """
        if self._closed:
            raise SampleFailed("generate was called on a session that is over")
        if self.is_cut_short:
            raise OutOfTime("the group's time is over: the turn before was the last")
        try:
            self._extend(input_ids)
            params = self._params(sampling_params)
            self._sampling.append(facts(params))
            turn = await self._turn(params)
        except (EngineRejected, SampleFailed, InvalidGroup, OutOfTime) as error:
            self.failure = self.failure or error
            raise
        self._texts.append(turn.text)
        self._finish = turn.finish
        return turn

    def append(self, ids: Sequence[int], mask: int = 0) -> None:
        """Tokens that the model did not make now. Errors: InvalidGroup for an id outside of the vocabulary."""
        try:
            check_ids(ids, self._sampler.limits.vocab_size)
        except InvalidGroup as error:
            self.failure = self.failure or error
            raise
        self._row.append(ids, mask)

    def finish(self, reward: float | None = None, metadata: Mapping[str, Any] | None = None) -> None:
        """Says what goes with the sample: a reward of its own, and plain data."""
        self._reward = reward
        self._metadata = metadata or {}

    # For the worker

    @property
    def is_cut_short(self) -> bool:
        """Whether the group's time ended it; what it has is kept."""
        return self._finish == "timeout"

    def close(self) -> None:
        self._closed = True

    def sample(self) -> Sample:
        """Errors: SampleFailed if nothing was generated."""
        if self._finish is None:
            raise SampleFailed("generate ended without a turn of the model")
        row, text = self._row.build(is_masked=self.is_cut_short), "".join(self._texts)
        metadata, sampling = dict(self._metadata), join_facts(self._sampling)
        return Sample(self.index, self._finish, (row,), text, self._reward, metadata, sampling)

    # One turn

    def _extend(self, input_ids: Sequence[int] | None) -> None:
        if input_ids is None:
            return
        known = [*(self.prompt_ids or ()), *self._row.ids]
        if self.prompt_ids is None or list(input_ids[: len(known)]) != known:
            raise SampleFailed("input_ids do not begin with the ids so far: append ids, never render the text again")
        self.append(input_ids[len(known) :])

    def _params(self, given: Mapping[str, Any]) -> dict[str, Any]:
        params: dict[str, Any] = {**self._start.params, **given}
        check_sampling(params, self._terms.bent_sampling)
        seed = params.get("sampling_seed")
        if type(seed) is int and "sampling_seed" not in given:
            params["sampling_seed"] = seed_of(seed, self.prompt.id, self.index)
        held = len(self.prompt_ids or ()) + len(self._row.ids)
        context = self._sampler.limits.context_length
        if context is not None and self._row.ids and held >= context:
            raise SampleFailed(f"the context of {context} tokens is full: look at session.room before the next turn")
        params["max_new_tokens"] = fit(held, params["max_new_tokens"], "max_new_tokens" in given, context)
        return params

    async def _turn(self, params: dict[str, Any]) -> Turn:
        """Requests until the turn ends; an abort goes on from the tokens it has, too many of them from the start."""
        faults = aborts = 0
        begin = len(self._row.ids)
        texts: list[str] = []
        while True:
            made = len(self._row.ids) - begin
            left = params["max_new_tokens"] - made
            piece = await self._piece(_less(params, made))
            if self._is_late and (isinstance(piece, Fault) or piece.finish == "abort"):
                return self._cut_short(begin, texts, piece)
            if isinstance(piece, Piece) and piece.for_update and self._is_useless(piece):
                continue
            aborts += isinstance(piece, Piece) and piece.finish == "abort" and not piece.for_update
            if isinstance(piece, Fault) or (piece.finish == "abort" and self._is_useless(piece)):
                faults += 1
                fault = piece if isinstance(piece, Fault) else _USELESS_ABORT
                await self._after_fault(fault, faults)
                continue
            if aborts > MOST_ABORTS:
                aborts, texts = 0, []
                self._row.cut(begin)
                await self._after_fault(_TOO_MANY_ABORTS, faults := faults + 1)
                continue
            self._row.extend(piece)
            texts.append(piece.text)
            finish = "length" if piece.finish == "abort" and len(piece.ids) >= left else piece.finish
            if finish != "abort":
                return self._row.turn(begin, "".join(texts), finish)
            self._sampler.count_retry("abort")

    @property
    def _is_late(self) -> bool:
        return self._terms.ends_at is not None and asyncio.get_running_loop().time() >= self._terms.ends_at

    def _cut_short(self, begin: int, texts: Sequence[str], piece: Piece | Fault) -> Turn:
        """The turn with what it has. Errors: OutOfTime, where the run doesn't want that, or the policy made nothing."""
        if isinstance(piece, Piece) and len(piece.ids):
            self._row.extend(piece)
            texts = [*texts, piece.text]
        if not self._terms.truncates or not self._row.has_made_tokens:
            raise OutOfTime
        return self._row.turn(begin, "".join(texts), "timeout")

    def _is_useless(self, piece: Piece) -> bool:
        # Without the prompt's ids nothing can be continued: text plus ids is no input.
        return not len(piece.ids) or (self.prompt_ids is None and piece.prompt_ids is None)

    async def _after_fault(self, fault: Fault, faults: int) -> None:
        self._sampler.count_retry("unsound")
        self._sampler.count_fault(fault.name)
        if faults >= self._sampler.max_tries:
            raise SampleFailed(f"{fault.words}, {faults} tries")
        await asyncio.sleep(back_off(faults))

    async def _piece(self, params: dict[str, Any]) -> Piece | Fault:
        """One answer; while the engine is unavailable, asks again (the group's deadline ends that)."""
        tries, since = 0, 0.0
        sampler = self._sampler
        while not (tries and self._is_late):
            try:
                piece = await self._request(params)
            except EngineBusy as error:
                sampler.count_retry("busy")
                sampler.count_fault(error.fault)
                sampler.health.succeeded()
            except NoAnswer as error:
                since = since or time.monotonic()
                sampler.count_retry("unavailable")
                sampler.count_fault(error.fault)
                sampler.health.failed(error, tries + 1, since)
            except EngineRejected:
                sampler.count_fault("rejected")
                raise
            else:
                sampler.health.succeeded()
                return piece
            tries += 1
            await asyncio.sleep(back_off(tries))
        return _NOTHING

    async def _request(self, params: dict[str, Any]) -> Piece | Fault:
        request: dict[str, Any] = {"rid": uuid.uuid4().hex, "sampling_params": params, "return_logprob": True}
        if self.prompt_ids is None and self._row.ids:
            raise SampleFailed("the engine does not tell the ids of a text prompt: give input_ids or messages")
        if self.prompt_ids is None:
            request |= {"text": self._start.text, "return_prompt_token_ids": True}
        else:
            request["input_ids"] = [*self.prompt_ids, *self._row.ids]
        if cuts_off(params):
            request["return_sampling_mask"] = True
        async with AsyncExitStack() as held:
            try:
                async with asyncio.timeout_at(self._terms.ends_at):
                    await held.enter_async_context(self._sampler.slots.hold())
            except TimeoutError:
                return _NOTHING
            with self._sampler.metrics.engine_seconds.time():
                piece = await self._sampler.engine.generate(request, self._terms.ends_at)
        if isinstance(piece, Piece) and self.prompt_ids is None:
            self.prompt_ids = piece.prompt_ids
        return piece


def _less(params: dict[str, Any], made: int) -> dict[str, Any]:
    """The parameters for the rest of a turn of which so many tokens are made."""
    rest = {name: params[name] - made for name in ("max_new_tokens", "min_new_tokens") if name in params}
    return params | {name: max(0, value) for name, value in rest.items()}


class RowBuilder:
    """A row that grows. Its parts always have the same length."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self._logprobs: list[float] = []
        self._mask = bytearray()
        self._kept: list[Sequence[int]] = []  # token by token, what the sampling left; empty: all, or no policy's
        self._kept_logprobs: list[float] = []
        # Tokens that no policy made are of the version beside them, so that they make nothing look older than it is;
        # None: those at the beginning, which wait for the first turn.
        self._spans: list[tuple[int | None, int, int]] = []

    @property
    def has_made_tokens(self) -> bool:
        """Whether the policy made any of the tokens."""
        return any(self._mask)

    def append(self, ids: Sequence[int], mask: int) -> None:
        if not ids:
            return
        version = self._spans[-1][0] if self._spans else None
        self._spans.append((version, len(self.ids), len(self.ids) + len(ids)))
        self.ids.extend(ids)
        self._logprobs.extend([0.0] * len(ids))
        self._mask.extend(bytes([1 if mask else 0]) * len(ids))
        self._extend_kept(None, len(ids))

    def extend(self, piece: Piece) -> None:
        at = len(self.ids)
        self._spans.extend((version, start + at, end + at) for version, start, end in piece.spans)
        self.ids.extend(piece.ids.tolist())
        self._logprobs.extend(piece.logprobs.tolist())
        self._mask.extend(b"\1" * len(piece.ids))
        self._extend_kept(piece.kept, len(piece.ids))

    def _extend_kept(self, kept: Kept | None, length: int) -> None:
        if kept is None:
            self._kept.extend([()] * length)
            self._kept_logprobs.extend([0.0] * length)
            return
        self._kept.extend(part.tolist() for part in np.split(kept.ids, np.cumsum(kept.lengths)[:-1]))
        self._kept_logprobs.extend(kept.logprobs.tolist())

    def cut(self, length: int) -> None:
        """Forgets everything after the first `length` tokens."""
        del self.ids[length:], self._logprobs[length:], self._mask[length:]
        del self._kept[length:], self._kept_logprobs[length:]
        self._spans = [(version, start, min(end, length)) for version, start, end in self._spans if start < length]

    def turn(self, begin: int, text: str, finish: Ended) -> Turn:
        return Turn(tuple(self.ids[begin:]), tuple(self._logprobs[begin:]), text, finish)

    def build(self, is_masked: bool = False) -> Row:
        first = next((version for version, _, _ in self._spans if version is not None), UNKNOWN_VERSION)
        spans: list[Span] = [(first if version is None else version, start, end) for version, start, end in self._spans]
        return Row(
            np.asarray(self.ids, dtype="<i4"),
            np.asarray(self._logprobs, dtype="<f4"),
            np.frombuffer(bytes(len(self._mask)) if is_masked else bytes(self._mask), dtype="u1"),
            join_spans(spans),
            extra=self._extra(),
        )

    def _extra(self) -> dict[str, npt.NDArray[Any]]:
        if not any(self._kept):
            return {}
        return {
            "sampling_mask": np.asarray([token for place in self._kept for token in place], dtype="<i4"),
            "sampling_mask_lengths": np.asarray([len(place) for place in self._kept], dtype="<i4"),
            "sampling_logprobs": np.asarray(self._kept_logprobs, dtype="<f4"),
        }


async def one_turn(session: Session) -> None:
    """The default."""
    await session.generate()
