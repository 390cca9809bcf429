"""Checks what an engine answered: JSON in, a piece of a sample or a named fault out. Pure.

Invariants: the ids, log-probabilities and version spans of a piece agree in length, ids are within the vocabulary, and
every log-probability is a finite number; what a trainer would stumble over never gets further than this file.
"""

import json
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np

from rolloutfleet.messages import UNKNOWN_VERSION, Floats, Ints, Span

type Finish = Literal["stop", "length", "abort"]

FINISHES: tuple[Finish, ...] = ("stop", "length", "abort")


@dataclass(frozen=True, slots=True)
class Piece:
    """What one request brought. `ids` and `logprobs` (nats) have the same length; `spans` cover them, from 0.

    An aborted piece may be empty. `prompt_ids` are there where the engine was asked for them.
    """

    ids: Ints
    logprobs: Floats
    spans: tuple[Span, ...]
    finish: Finish
    text: str
    prompt_ids: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Fault:
    """Why an answer is unsound, in words."""

    name: str


class Unsound(Exception):
    """Inside of this file's checks only: leaves `check_answer` as a Fault."""


def check_answer(body: bytes, vocab_size: int | None = None) -> Piece | Fault:
    """The answer to POST /generate with `return_logprob`."""
    try:
        return _check(json.loads(body), vocab_size)
    except (ValueError, RecursionError):
        return Fault("not JSON, or cut off")
    except Unsound as unsound:
        return Fault(str(unsound))


def version_number(version: object) -> int:
    """A weight version as the engine says it; UNKNOWN_VERSION where it is no number."""
    text = str(version)
    return int(text) if text.isascii() and text.isdigit() else UNKNOWN_VERSION


def _check(answer: Any, vocab_size: int | None) -> Piece:
    if not isinstance(answer, dict):
        raise Unsound(f"not a JSON object but {type(answer).__name__}")
    fields = cast(dict[str, Any], answer)
    meta = _field(fields, "meta_info", dict)
    finish = _finish(meta)
    if finish == "abort" and not fields.get("output_ids"):
        return Piece(np.empty(0, "<i4"), np.empty(0, "<f4"), (), finish, "", _prompt_ids(fields))
    ids = _ids(_field(fields, "output_ids", list), vocab_size)
    if not len(ids):
        raise Unsound("no tokens")
    logprobs = _logprobs(_field(meta, "output_token_logprobs", list), ids)
    text = fields.get("text")
    return Piece(
        ids, logprobs, _spans(meta, len(ids)), finish, text if isinstance(text, str) else "", _prompt_ids(fields)
    )


def _field(fields: dict[str, Any], name: str, kind: type) -> Any:
    value = fields.get(name)
    if not isinstance(value, kind):
        raise Unsound(f"no {name}" if value is None else f"{name} is no {kind.__name__}")
    return value


def _finish(meta: dict[str, Any]) -> Finish:
    reason: Any = _field(meta, "finish_reason", dict).get("type")
    if reason not in FINISHES:
        raise Unsound(f"unknown finish reason {str(reason)[:100]!r}")
    return reason


def _prompt_ids(fields: dict[str, Any]) -> tuple[int, ...] | None:
    given: Any = fields.get("prompt_token_ids")
    if not isinstance(given, list) or not given:
        return None
    ids = cast(list[Any], given)
    return tuple(ids) if all(type(token) is int for token in ids) else None


def _ids(given: list[Any], vocab_size: int | None) -> Ints:
    if set(map(type, given)) - {int}:
        raise Unsound("output_ids are no integers")
    highest = min(vocab_size or 2**31, 2**31)
    if given and not 0 <= min(given) <= max(given) < highest:
        raise Unsound(f"a token id is outside of the vocabulary of {highest}")
    return np.asarray(given, dtype="<i4")


def _logprobs(entries: list[Any], ids: Ints) -> Floats:
    if len(entries) != len(ids):
        which = "fewer" if len(entries) < len(ids) else "more"
        raise Unsound(f"{which} log-probabilities than tokens")
    try:
        numbers = [entry[0] for entry in entries]
        named = [entry[1] for entry in entries]
    except (TypeError, IndexError, KeyError):
        raise Unsound("output_token_logprobs are no pairs") from None
    if named != ids.tolist():
        raise Unsound("the ids of the log-probabilities are not those of the tokens")
    if set(map(type, numbers)) - {float, int}:
        raise Unsound("a log-probability is no number")
    logprobs = np.asarray(numbers, dtype="<f4")
    if not np.isfinite(logprobs).all():
        raise Unsound("a log-probability is not finite")
    return logprobs


def _spans(meta: dict[str, Any], length: int) -> tuple[Span, ...]:
    given = meta.get("weight_versions")
    if not isinstance(given, list) or not given:
        return ((version_number(meta.get("weight_version")), 0, length),)
    spans: list[Span] = []
    for span in cast(list[Any], given):
        try:
            start, end, version = span["start"], span["end"], version_number(span["version"])
        except (TypeError, KeyError):
            raise Unsound("weight_versions are no spans") from None
        if start != (spans[-1][2] if spans else 0) or type(end) is not int or end < start:
            raise Unsound("weight_versions do not cover the tokens")
        if end > start:
            spans.append((version, start, end))
    if not spans or spans[-1][2] != length:
        raise Unsound("weight_versions do not cover the tokens")
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
