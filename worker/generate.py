"""How one sample is made: the default is one turn; a custom function makes several, with tools in between.

    async def generate(session: Session) -> None:
        turn = await session.generate()                     # through a slot; its tokens are appended, mask 1
        session.append(await session.encode("4"), mask=0)   # what a tool said; no slot is held meanwhile
        await session.generate(max_new_tokens=64)           # goes on after all of it
        session.finish(reward=1.0, metadata={"turns": 2})   # both optional; the reward replaces the worker's own

docs/generate.md is for authors of such functions. Next turns append ids. Where an input does not begin with the ids so
far (the template rewrote the history), the sample gets another row. When the group's time is nearly over, a turn ends
with what it has (`finish` is "timeout"), and there are no more.

Invariants: ids, log-probabilities, mask and spans of a session always agree; no token is in two rows as one to train
on; what ends a sample for good is kept in the session, whatever the custom function makes of the exception.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from rolloutfleet.errors import EngineRejected, InvalidGroup
from rolloutfleet.messages import PromptGroup, Row, Sample
from rolloutfleet.sampling import Bent, check_sampling, cuts_off, facts, join_facts, seed_of
from worker.answers import Fault, Piece
from worker.asking import Asker, Sampler
from worker.partials import can_continue, is_of, made_of, pack, resume
from worker.rows import RowBuilder
from worker.tokens import Prompt, check_ids, check_routed, fit
from worker.waits import back_off

type Ended = Literal["stop", "length", "timeout"]
type Keep = Callable[[int, bytes], None]

MOST_ABORTS = 8

_USELESS_ABORT = Fault("abort_without_tokens", "aborted without tokens")
_TOO_MANY_ABORTS = Fault("aborted_too_often", "aborted too often")


class SampleFailed(Exception):
    """This attempt at the sample is over; the message says why, without the sample's number."""


class OutOfTime(TimeoutError):
    """The group's time is over."""


@dataclass(frozen=True, slots=True)
class Terms:
    """How the run wants its samples. `ends_at`: until when (the loop's time); `truncates`: what is there then is kept,
    and masked."""

    bent_sampling: Bent = "refuse"
    ends_at: float | None = None
    truncates: bool = False


@dataclass(frozen=True, slots=True)
class Brief:
    """What is to be made: which sample, of what, on which terms.

    `begun`: the tokens that an earlier holder made of it; `keep`: takes, by index, what the next holder may go on from.
    """

    group: PromptGroup
    prompt: Prompt
    index: int
    attempt: int = 1
    terms: Terms = Terms()
    begun: Sample | None = None
    keep: Keep | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """What one `session.generate()` made; `finish` is "stop", "length" or "timeout"."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    text: str
    finish: Ended


class Session:
    """One sample in the making. `prompt` is the PromptGroup, `prompt_ids` the ids after which the row begins (None
    until the engine has told them, if it is text), `index` the sample's number, `attempt` the group's."""

    def __init__(self, sampler: Sampler, brief: Brief) -> None:
        self.prompt = brief.group
        self.prompt_ids: Sequence[int] | None = brief.prompt.ids
        self.index = brief.index
        self.attempt = brief.attempt
        self.failure: Exception | None = None
        self.rendered = self.prompt_ids  # the group's prompt, where a custom generate gives its own
        self._sampler = sampler
        self._brief = brief
        self._asker = Asker(sampler, brief.terms.ends_at)
        self._turn_params: Mapping[str, Any] | None = None
        self._digest = ""
        self._rows: list[Row] = []  # those that are over: the history was rewritten after them
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
        """The tokens after `prompt_ids` so far."""
        return self._row.ids

    @property
    def room(self) -> int | None:
        """Tokens that still fit into the engine's context; None if that is not known."""
        context = self._sampler.limits.context_length
        return None if context is None else context - len(self.prompt_ids or ()) - len(self._row.ids)

    async def generate(self, input_ids: Sequence[int] | None = None, **sampling_params: Any) -> Turn:
        """One turn of the model, appended to the row. `sampling_params` win over the group's.

        `input_ids`, if given, is the whole input. What it adds to the ids so far is appended with mask 0; where it does
        not begin with them, another row begins after it. Errors: EngineRejected, SampleFailed, InvalidGroup, OutOfTime;
        any of them ends the sample.
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
        finally:
            self._asker.ended()
        self._texts.append(turn.text)
        self._finish = turn.finish
        return turn

    def append(self, ids: Sequence[int], mask: int = 0) -> None:
        """Tokens that the model did not make now. Errors: InvalidGroup for an id outside of the vocabulary."""
        self._check(ids)
        self._row.append(ids, mask)

    async def encode(self, text: str) -> list[int]:
        """The ids of a text, without special tokens around it. Errors: SampleFailed where there is no tokenizer."""
        tokenizer = self._sampler.tokenizer
        if tokenizer.is_loaded:
            return await tokenizer.encode(text, special=False)
        ids = await self._sampler.engine.encode(text)
        if ids is None:
            raise SampleFailed("encode: neither engine nor worker has a tokenizer: set tokenizer to a folder with one")
        return ids

    async def render(self, messages: Sequence[Mapping[str, Any]]) -> list[int]:
        """The ids of a whole chat, ready for the model's turn. Errors: InvalidGroup, in the template's words."""
        return await self._sampler.tokenizer.render(messages, self.prompt.tools)

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
        rows = (*self._rows, self._row.build(is_masked=self.is_cut_short))
        metadata, sampling = dict(self._metadata), join_facts(self._sampling)
        return Sample(self.index, self._finish, rows, "".join(self._texts), self._reward, metadata, sampling)

    async def halt(self) -> bytes | None:
        """Ends what the engine makes of it, and gives what it has, for the group's next holder; None: nothing."""
        await self._asker.halt()
        if self._closed or self._brief.keep is None or self._finish is not None:
            return None
        return self._packed(self._row.build())

    # Rows

    def _check(self, ids: Sequence[int]) -> None:
        try:
            check_ids(ids, self._sampler.limits.vocab_size)
        except InvalidGroup as error:
            self.failure = self.failure or error
            raise

    def _extend(self, input_ids: Sequence[int] | None) -> None:
        if input_ids is None:
            return
        known = [*(self.prompt_ids or ()), *self._row.ids]
        if self.prompt_ids is not None and list(input_ids[: len(known)]) == known:
            self.append(input_ids[len(known) :])
        else:
            self._check(input_ids)
            self._begin_row(list(input_ids))

    def _begin_row(self, prompt: list[int]) -> None:
        if self._row.has_made_tokens:
            self._rows.append(self._row.build())
            self._sampler.counters["rows_rewritten"] += 1
            self._sampler.metrics.rows_rewritten.inc()
        self.prompt_ids = prompt
        self._row = RowBuilder(prompt)

    # One turn

    def _params(self, given: Mapping[str, Any]) -> dict[str, Any]:
        params: dict[str, Any] = {**self._brief.prompt.params, **given}
        check_sampling(params, self._brief.terms.bent_sampling)
        if self._sampler.engine.is_router:
            check_routed(params)
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
        begin, self._turn_params = len(self._row.ids), params
        text = await self._take_up(params)
        while True:
            left = params["max_new_tokens"] - (len(self._row.ids) - begin)
            piece = await self._asker.piece(self._request(params, begin), self._tell if self._keeps else None)
            self._learn_prompt(piece)
            if self._asker.is_late and (isinstance(piece, Fault) or piece.finish == "abort"):
                return self._cut_short(begin, text, piece)
            if isinstance(piece, Piece) and piece.for_update and self._is_useless(piece):
                continue
            if isinstance(piece, Fault) or self._is_useless(piece):
                faults += 1
                await self._after_fault(piece if isinstance(piece, Fault) else _USELESS_ABORT, faults)
                continue
            self._row.extend(piece)
            if piece.finish != "abort":
                return self._made(begin, text + piece.text, piece.finish)
            await self._asker.stand_if_halted()
            aborts += not piece.for_update
            if aborts > MOST_ABORTS:
                aborts, text = 0, ""
                self._row.cut(begin)
                await self._after_fault(_TOO_MANY_ABORTS, faults := faults + 1)
                continue
            self._sampler.count_retry("abort")
            kept = await self._continue_from(begin, params)
            if kept is None and len(piece.ids) >= left:
                return self._made(begin, text + piece.text, "length")
            text = text + piece.text if kept is None else kept

    def _made(self, begin: int, text: str, finish: Ended) -> Turn:
        return Turn(*self._row.since(begin), text, finish)

    def _cut_short(self, begin: int, text: str, piece: Piece | Fault) -> Turn:
        """The turn with what it has. Errors: OutOfTime, where the run doesn't want that, or the policy made nothing."""
        if isinstance(piece, Piece) and len(piece.ids):
            self._row.extend(piece)
            text += piece.text
        if not self._brief.terms.truncates or not self._row.has_made_tokens:
            raise OutOfTime
        return self._made(begin, text, "timeout")

    def _is_useless(self, piece: Piece) -> bool:
        # Without the prompt's ids nothing can be continued: text plus ids is no input.
        return piece.finish == "abort" and (not len(piece.ids) or self.prompt_ids is None)

    async def _after_fault(self, fault: Fault, faults: int) -> None:
        self._sampler.count_retry("unsound")
        self._sampler.count_fault(fault.name)
        if faults >= self._sampler.max_tries:
            raise SampleFailed(f"{fault.words}, {faults} tries")
        await asyncio.sleep(back_off(faults))

    def _request(self, params: dict[str, Any], begin: int) -> dict[str, Any]:
        """What asks for the rest of a turn that began at this token of the row."""
        rest = _less(params, len(self._row.ids) - begin)
        request: dict[str, Any] = {"sampling_params": rest, "return_logprob": True}
        if self.prompt_ids is None and self._row.ids:
            raise SampleFailed("the engine does not tell the ids of a text prompt: give input_ids or messages")
        if self.prompt_ids is None:
            request |= {"text": self._brief.prompt.text, "return_prompt_token_ids": True}
        else:
            request["input_ids"] = [*self.prompt_ids, *self._row.ids]
        if cuts_off(params):
            request["return_sampling_mask"] = True
        if self._keeps:
            request["stream"] = True
            rest["stream_interval"] = self._sampler.partial_tokens
        return request

    def _learn_prompt(self, piece: Piece | Fault) -> None:
        if isinstance(piece, Piece) and self.prompt_ids is None:
            self.prompt_ids = self.rendered = piece.prompt_ids

    # What is there when a turn is broken off

    @property
    def _keeps(self) -> bool:
        return self._brief.keep is not None and self._sampler.partial_tokens > 0

    async def _continue_from(self, begin: int, params: Mapping[str, Any]) -> str | None:
        """Cuts the turn to the tokens from which it goes on; their text. None: it can only go on as it is."""
        if not can_continue(params):
            self._row.cut(begin)
            return ""
        before = [*(self.prompt_ids or ()), *self._row.ids[:begin]]
        found = await resume(self._sampler.engine, before, self._row.ids[begin:], params)
        if found is None:
            return None
        self._row.cut(begin + found.length)
        return found.text

    async def _take_up(self, params: dict[str, Any]) -> str:
        """Goes on from what an earlier holder made, if that was made of the same; its text."""
        begun = self._brief.begun
        if begun is None or self._row.ids:
            return ""
        row = RowBuilder.of(begun.rows[0])
        prompt = row.prompt if self.prompt_ids is None else self.prompt_ids
        if prompt is None or not is_of(begun, made_of(prompt, params)):
            return ""
        row.cut(params["max_new_tokens"])
        self.prompt_ids = self.rendered = prompt
        self._row, row.prompt = row, None
        text = await self._continue_from(0, params)
        if text is None:
            self._row.cut(0)
        self._sampler.counters["tokens_continued"] += len(self._row.ids)
        self._sampler.metrics.tokens_continued.inc(len(self._row.ids))
        return text or ""

    def _tell(self, piece: Piece) -> None:
        """The engine says what it has meanwhile."""
        self._learn_prompt(piece)
        data = self._packed(self._row.built_with(piece))
        if data is not None and self._brief.keep is not None:
            self._brief.keep(self.index, data)

    def _packed(self, row: Row) -> bytes | None:
        if self.prompt_ids is None or self._turn_params is None:
            return None
        self._digest = self._digest or made_of(self.prompt_ids, self._turn_params)
        # The next holder of a text prompt has no ids of it.
        own = None if self._brief.prompt.ids is not None else np.asarray(self.prompt_ids, dtype="<i4")
        return pack(self.index, replace(row, prompt=own), self._digest)


def _less(params: dict[str, Any], made: int) -> dict[str, Any]:
    """The parameters for the rest of a turn of which so many tokens are made."""
    rest = {name: params[name] - made for name in ("max_new_tokens", "min_new_tokens") if name in params}
    return params | {name: max(0, value) for name, value in rest.items()}


async def one_turn(session: Session) -> None:
    """The default."""
    await session.generate()
