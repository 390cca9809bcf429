"""The bodies of a simulated engine's answers, as bytes.

Log-probabilities are most of an answer, and encoding them is most of the work: they are joined from ready texts
instead of going through a JSON encoder.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from deploy.simulator.engine import End, Span
from deploy.simulator.service import Plan
from deploy.simulator.tokens import TokenModel

Finish = dict[str, Any] | None

ABORT_TEXT = {End.ABORTED: "Aborted", End.ABORTED_IN_QUEUE: "Abort in waiting queue"}
QUEUE_FULL_TEXT = "The request queue is full."


def aborted(message: str, status_code: int | None = None, err_type: str | None = None) -> dict[str, Any]:
    return {"type": "abort", "message": message, "status_code": status_code, "err_type": err_type}


def finish_reason(plan: Plan, how: End, fault: str | None) -> dict[str, Any]:
    """Of a request that ended; a queued request's abort has fewer fields."""
    if fault == "unknown_finish":
        return {"type": "bewildered"}
    if how is End.ABORTED_IN_QUEUE:
        return {"type": "abort", "message": ABORT_TEXT[how]}
    if how is End.ABORTED or fault == "abort":
        return aborted(ABORT_TEXT[End.ABORTED])
    if plan.stopped_by is not None:
        return {"type": "stop", "matched": plan.stopped_by}
    return {"type": "length", "length": len(plan.tokens)}


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a request is: tokens made, with which weights, and how it ended if it did."""

    made: int
    spans: Sequence[Span]
    finish: Finish
    is_queued_abort: bool
    weight_version: str
    retractions: int
    seconds: float


def answer(plan: Plan, progress: Progress, tokens: TokenModel, fault: str | None = None) -> bytes:
    """The JSON of one answer, or of one event of a stream. `fault` leaves out or spoils what it names."""
    ids = plan.tokens[: progress.made]
    is_whole = plan.stopped_by is not None and progress.made == len(plan.tokens)
    fields = [f'"text":{json.dumps(plan.text if is_whole else plan.text_after(progress.made))}']
    if fault != "missing_output_ids":
        fields.append(f'"output_ids":{ids!r}')
    if plan.request.wants_prompt_ids:
        fields.append(f'"prompt_token_ids":{plan.request.prompt_ids!r}')
    fields.append(f'"meta_info":{_meta_info(plan, progress, ids, tokens, fault)}')
    return ("{" + ",".join(fields) + "}").encode()


def _meta_info(plan: Plan, progress: Progress, ids: list[int], tokens: TokenModel, fault: str | None) -> str:
    meta: dict[str, Any] = {
        "id": plan.request.rid,
        "finish_reason": progress.finish,
        "weight_version": progress.weight_version,
        "completion_tokens": progress.made,
        "e2e_latency": round(progress.seconds, 6),
        "weight_versions": [{"version": span.version, "start": span.start, "end": span.end} for span in progress.spans],
    }
    if not progress.is_queued_abort:
        meta |= {
            "prompt_tokens": len(plan.request.prompt_ids),
            "reasoning_tokens": 0,
            "cached_tokens": 0,
            "num_retractions": progress.retractions,
        }
    text = json.dumps(meta)
    if not plan.request.wants_logprobs or fault == "missing_logprobs":
        return text
    entries = _logprobs(plan, progress.spans, ids, tokens, fault)
    more = json.dumps(_beside(plan, progress.spans, ids, tokens))
    return (
        f'{text[:-1]},"input_token_logprobs":[],"output_token_logprobs_length":{len(entries)},'
        f'"output_token_logprobs":[{",".join(entries)}]{", " if len(more) > 2 else ""}{more[1:]}'
    )


def _beside(plan: Plan, spans: Sequence[Span], ids: list[int], tokens: TokenModel) -> dict[str, Any]:
    """What is asked for rarely: the likeliest tokens, and those that the sampling left."""
    request, fields = plan.request, dict[str, Any]()
    if request.top_logprobs:
        top = [tokens.top_logprobs(token, request.top_logprobs, request.temperature) for token in ids]
        fields["output_top_logprobs"] = [[[number, token, None] for token, number in place] for place in top]
    if request.wants_mask:
        most = 1 if request.temperature == 0 else request.top_k
        places = [tokens.neighbours(token, most) for token in ids]
        numbers = [tokens.logprob(ids[at], at, span.version) for span in spans for at in range(span.start, span.end)]
        fields["output_token_sampling_mask"] = places
        # Of the drawn token among a few: likelier than among all.
        fields["output_token_sampling_logprobs"] = [0.0 if most == 1 else number / 2 for number in numbers]
        fields["output_token_sampling_mask_length"] = len(places)
    return fields


def _logprobs(plan: Plan, spans: Sequence[Span], ids: list[int], tokens: TokenModel, fault: str | None) -> list[str]:
    numbers: list[str] = []
    for span in spans:
        numbers += tokens.logprob_texts(ids[span.start : span.end], span.start, span.version)
    if fault == "nan_logprob" and numbers:
        numbers[len(numbers) // 2] = "NaN"
    if fault == "short_logprobs" and numbers:
        numbers.pop()
    if plan.request.wants_token_texts:
        return [f'[{number},{token},"<{token}>"]' for number, token in zip(numbers, ids, strict=False)]
    return [f"[{number},{token},null]" for number, token in zip(numbers, ids, strict=False)]
