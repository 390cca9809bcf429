"""Checks what an engine answered: JSON in, a piece of a sample or a named fault out. Pure.

Invariants: a piece is the answer to the request that was made; its ids, log-probabilities and version spans agree in
length, ids are within the vocabulary, and every log-probability is a finite number; what a trainer would stumble over
never gets further than this file.
"""

import json
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np

from rolloutfleet.arrays import Floats, Ints
from rolloutfleet.messages import UNKNOWN_VERSION, Span
from rolloutfleet.metrics import EngineFault

type Finish = Literal["stop", "length", "abort"]

FINISHES: tuple[Finish, ...] = ("stop", "length", "abort")
_MOST_DIGITS = 18  # of a version: what 64 bits hold


@dataclass(frozen=True, slots=True)
class Asked:
    """What an answer must fit. `has_text`: the engine turns tokens into text (it does, unless started without).

    `wants_mask`: it was asked which tokens its sampling left.
    """

    rid: str
    vocab_size: int | None = None
    has_text: bool = True
    wants_mask: bool = False


@dataclass(frozen=True, slots=True)
class Kept:
    """What the sampling left to draw from, token by token. `ids`: the kept tokens of all places, one after the other;
    `lengths`: how many of them each place has; `logprobs`: of the drawn token among the kept ones."""

    ids: Ints
    lengths: Ints
    logprobs: Floats


@dataclass(frozen=True, slots=True)
class Piece:
    """What one request brought. `ids` and `logprobs` (nats) have the same length; `spans` cover them, from 0.

    An aborted piece may be empty. `prompt_ids` are there where the engine was asked for them. `for_update`: it was
    aborted since new weights are loaded, which is nobody's fault.
    """

    ids: Ints
    logprobs: Floats
    spans: tuple[Span, ...]
    finish: Finish
    text: str
    prompt_ids: tuple[int, ...] | None = None
    kept: Kept | None = None
    for_update: bool = False


@dataclass(frozen=True, slots=True)
class Fault:
    """Why an answer is unsound: the name under which it is counted, and words."""

    name: EngineFault
    words: str


class Unsound(Exception):
    """Inside of this file's checks only: leaves `check_answer` as a Fault."""

    def __init__(self, name: EngineFault, words: str) -> None:
        super().__init__(words)
        self.fault = Fault(name, words)


def check_answer(body: bytes, asked: Asked) -> Piece | Fault:
    """The answer to POST /generate with `return_logprob`."""
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        if body.lstrip().startswith(b"{"):
            return Fault("cut_off", "JSON that is cut off")
        return Fault("not_json", "not JSON")
    try:
        return _check(answer, asked)
    except Unsound as unsound:
        return unsound.fault
    except (ValueError, RecursionError) as error:  # numbers of thousands of digits, lists in lists in lists
        return Fault("wrong_type", f"it can't be read: {type(error).__name__}")


def read_unfinished(body: bytes, asked: Asked) -> Piece | None:
    """What an event of a stream says of a sample that is not finished; None: nothing sound."""
    try:
        return _check(json.loads(body), asked, is_finished=False)
    except (Unsound, ValueError, RecursionError):
        return None


def version_number(version: object) -> int:
    """A weight version as the engine says it; UNKNOWN_VERSION where it is no number."""
    text = str(version)
    return int(text) if len(text) <= _MOST_DIGITS and text.isascii() and text.isdigit() else UNKNOWN_VERSION


def _check(answer: Any, asked: Asked, is_finished: bool = True) -> Piece:
    if not isinstance(answer, dict):
        raise Unsound("wrong_type", f"not a JSON object but {type(answer).__name__}")
    fields = cast(dict[str, Any], answer)
    meta = _field(fields, "meta_info", dict)
    if _field(meta, "id", str) != asked.rid:
        raise Unsound("other_request", "the answer to another request")
    finish = _finish(meta) if is_finished else "abort"
    prompt_ids = _prompt_ids(fields, asked.vocab_size)
    if finish == "abort" and not fields.get("output_ids"):
        return Piece(np.empty(0, "<i4"), np.empty(0, "<f4"), (), finish, "", prompt_ids)
    ids = _ids(_field(fields, "output_ids", list), "output_ids", asked.vocab_size)
    if not len(ids):
        raise Unsound("no_tokens", "no tokens")
    logprobs = _logprobs(_field(meta, "output_token_logprobs", list), ids)
    # A reward that is computed from a text that isn't there would be wrong, and nobody would see it.
    text = _field(fields, "text", str) if asked.has_text else ""
    kept = _kept(meta, ids, asked.vocab_size) if asked.wants_mask else None
    return Piece(ids, logprobs, _spans(meta, len(ids)), finish, text, prompt_ids, kept)


def _field(fields: dict[str, Any], name: str, kind: type) -> Any:
    value = fields.get(name)
    if value is None:
        raise Unsound("missing_field", f"no {name}")
    if not isinstance(value, kind):
        raise Unsound("wrong_type", f"{name} is no {kind.__name__}")
    return value


def _finish(meta: dict[str, Any]) -> Finish:
    reason: Any = _field(meta, "finish_reason", dict).get("type")
    if reason not in FINISHES:
        raise Unsound("unknown_finish", f"unknown finish reason {str(reason)[:100]!r}")
    return reason


def _prompt_ids(fields: dict[str, Any], vocab_size: int | None) -> tuple[int, ...] | None:
    """None where the engine does not tell them. They go back to the engine when a sample is continued."""
    if not fields.get("prompt_token_ids"):
        return None
    given = _field(fields, "prompt_token_ids", list)
    return tuple(_ids(given, "prompt_token_ids", vocab_size).tolist())


def _ids(given: list[Any], name: str, vocab_size: int | None) -> Ints:
    if set(map(type, given)) - {int}:
        raise Unsound("wrong_type", f"{name} are no integers")
    highest = min(vocab_size or 2**31, 2**31)
    if given and not 0 <= min(given) <= max(given) < highest:
        raise Unsound("token_outside_vocabulary", f"a token id is outside of the vocabulary of {highest}")
    return np.asarray(given, dtype="<i4")


def _logprobs(entries: list[Any], ids: Ints) -> Floats:
    if len(entries) < len(ids):
        raise Unsound("logprobs_few", "fewer log-probabilities than tokens")
    if len(entries) > len(ids):
        raise Unsound("logprobs_many", "more log-probabilities than tokens")
    try:
        numbers = [entry[0] for entry in entries]
        named = [entry[1] for entry in entries]
    except (TypeError, IndexError, KeyError):
        raise Unsound("wrong_type", "output_token_logprobs are no pairs") from None
    if named != ids.tolist():
        raise Unsound("logprobs_of_other_ids", "the ids of the log-probabilities are not those of the tokens")
    if set(map(type, numbers)) - {float, int}:
        raise Unsound("wrong_type", "a log-probability is no number")
    return _finite(numbers)


def _kept(meta: dict[str, Any], ids: Ints, vocab_size: int | None) -> Kept:
    places = _field(meta, "output_token_sampling_mask", list)
    numbers = _field(meta, "output_token_sampling_logprobs", list)
    if not len(places) == len(numbers) == len(ids):
        raise Unsound("sampling_mask", "the sampling mask does not cover the tokens")
    if set(map(type, places)) - {list} or set(map(type, numbers)) - {float, int}:
        raise Unsound("sampling_mask", "the sampling mask holds no lists of ids and no numbers")
    if any(token not in place for token, place in zip(ids.tolist(), places, strict=True)):
        raise Unsound("sampling_mask", "a token is not among those that the sampling left")
    flat = [token for place in places for token in place]
    lengths = np.asarray([len(place) for place in places], dtype="<i4")
    return Kept(_ids(flat, "output_token_sampling_mask", vocab_size), lengths, _finite(numbers))


def _finite(numbers: list[float]) -> Floats:
    try:
        with np.errstate(over="ignore"):  # what float32 can't hold becomes infinite
            logprobs = np.asarray(numbers, dtype="<f4")
    except OverflowError:  # an integer that no float can hold
        logprobs = np.asarray([np.inf], dtype="<f4")
    if not np.isfinite(logprobs).all():
        raise Unsound("logprob_not_finite", "a log-probability is not finite")
    return logprobs


def _spans(meta: dict[str, Any], length: int) -> tuple[Span, ...]:
    if meta.get("weight_versions") is None:
        return ((version_number(meta.get("weight_version")), 0, length),)
    spans: list[Span] = []
    for span in _field(meta, "weight_versions", list):
        try:
            start, end, version = span["start"], span["end"], version_number(span["version"])
        except (TypeError, KeyError):
            raise Unsound("spans", "weight_versions are no spans") from None
        is_next = type(start) is int and type(end) is int and start == (spans[-1][2] if spans else 0)
        if not is_next or end < start:
            raise Unsound("spans", "weight_versions do not cover the tokens")
        if end > start:
            spans.append((version, start, end))
    if not spans or spans[-1][2] != length:
        raise Unsound("spans", "weight_versions do not cover the tokens")
    return join_spans(spans)


def join_spans(spans: list[Span]) -> tuple[Span, ...]:
    """Neighbours of the same version become one span."""
    joined: list[Span] = []
    for version, start, end in spans:
        if joined and joined[-1][0] == version and joined[-1][2] == start:
            joined[-1] = (version, joined[-1][1], end)
        else:
            joined.append((version, start, end))
    return tuple(joined)
