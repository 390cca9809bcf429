"""What a hostile engine makes of a good answer: each kind of lie, and the name under which a worker must count it.

Invariants: a lie is never a sound answer to the request; it draws its variant from the random that it is given.
"""

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from rolloutfleet.metrics import EngineFault

VOCABULARY = 30_000

type Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Reply:
    """An HTTP answer. `cut`: the connection ends in the middle of the body."""

    body: bytes
    status: int = 200
    cut: bool = False


type Lie = Callable[[Random, Json], Json | Reply]

_HTML = b"<html><head><title>Bad Gateway</title></head><body>nginx</body></html>"


def missing_field(random: Random, answer: Json) -> Json:
    name = random.choice(["text", "output_ids", "meta_info", "id", "finish_reason", "output_token_logprobs"])
    del (answer if name in answer else answer["meta_info"])[name]
    return answer


def wrong_type(random: Random, answer: Json) -> Json:
    meta, ids = answer["meta_info"], answer["output_ids"]
    change = random.choice(
        [
            lambda: answer.update(text=17),
            lambda: answer.update(meta_info=[meta]),
            lambda: answer.update(output_ids=" ".join(map(str, ids))),
            lambda: answer.update(output_ids=[float(token) for token in ids]),
            lambda: meta.update(finish_reason="stop"),
            lambda: meta.update(weight_versions="7"),
            lambda: meta.update(output_token_logprobs=[entry[0] for entry in meta["output_token_logprobs"]]),
            lambda: meta.update(output_token_logprobs=[[None, token, None] for token in ids]),
            lambda: meta.update(output_token_logprobs=[["-0.5", token, None] for token in ids]),
        ]
    )
    change()
    return answer


def no_tokens(_: Random, answer: Json) -> Json:
    answer["meta_info"] |= {"output_token_logprobs": [], "completion_tokens": 0, "weight_versions": []}
    return answer | {"output_ids": [], "text": ""}


def few_logprobs(random: Random, answer: Json) -> Json:
    entries = answer["meta_info"]["output_token_logprobs"]
    del entries[random.randrange(len(entries)) :]
    return answer


def many_logprobs(random: Random, answer: Json) -> Json:
    entries = answer["meta_info"]["output_token_logprobs"]
    entries += entries[: random.randint(1, len(entries))]
    return answer


def logprobs_of_other_ids(random: Random, answer: Json) -> Json:
    entry = random.choice(answer["meta_info"]["output_token_logprobs"])
    entry[1] = (entry[1] + 1) % VOCABULARY
    return answer


def no_finite_logprob(random: Random, answer: Json) -> Json:
    entry = random.choice(answer["meta_info"]["output_token_logprobs"])
    entry[0] = random.choice([float("nan"), float("inf"), float("-inf"), -1e300, -(10**400)])
    return answer


def outside_vocabulary(random: Random, answer: Json) -> Json:
    at, bad = random.randrange(len(answer["output_ids"])), random.choice([VOCABULARY, -1, 2**31, 2**40])
    answer["output_ids"][at] = bad
    answer["meta_info"]["output_token_logprobs"][at][1] = bad
    return answer


def spans_beside_the_tokens(random: Random, answer: Json) -> Json:
    length = len(answer["output_ids"])
    answer["meta_info"]["weight_versions"] = random.choice(
        [
            [],
            [{"version": "3", "start": 0, "end": length - 1}],
            [{"version": "3", "start": 0, "end": length + 1}],
            [{"version": "3", "start": 1, "end": length}],
            [{"version": "3", "start": 0, "end": length}, {"version": "4", "start": length - 1, "end": length}],
            [{"version": "3", "start": -1, "end": length}],
            [{"version": "3", "start": 0.0, "end": length}],
            [{"start": 0, "end": length}],
            [["3", 0, length]],
        ]
    )
    return answer


def unknown_finish(random: Random, answer: Json) -> Json:
    answer["meta_info"]["finish_reason"] = {"type": random.choice(["bewildered", "", None, 7, ["stop"]])}
    return answer


def abort_without_tokens(random: Random, answer: Json) -> Json:
    """As the real engine says it of a request in its queue, with fewer fields; or with empty ones."""
    meta = {"id": answer["meta_info"]["id"], "finish_reason": {"type": "abort", "message": "Abort in waiting queue"}}
    more: Json = {"output_token_logprobs": [], "weight_versions": []}
    return {"text": "", "output_ids": [], "meta_info": meta | more if random.random() < 0.5 else meta}


def html(_: Random, _answer: Json) -> Reply:
    return Reply(_HTML)


def cut_body(random: Random, answer: Json) -> Reply:
    body = json.dumps(answer).encode()
    return Reply(body[: random.randrange(1, len(body))])


def cut_connection(_: Random, answer: Json) -> Reply:
    return Reply(json.dumps(answer).encode(), cut=True)


def _says(status: int, *bodies: Json | bytes) -> Lie:
    def lie(random: Random, _: Json) -> Reply:
        body = random.choice(bodies)
        return Reply(body if isinstance(body, bytes) else json.dumps(body).encode(), status)

    return lie


def _in_three_shapes(message: str) -> tuple[Json, ...]:
    return {"error": {"message": message}}, {"error": message}, {"object": "error", "message": message}


REFUSAL = "top_p must be in (0, 1], got 7"
FULL = "The request queue is full."

# Needs more than the answer to the one request: made by the engine itself.
OTHER_REQUEST, SILENCE, HANG_UP = "another request's answer", "silence", "no answer, closed"

LIES: dict[str, tuple[EngineFault, Lie | None]] = {
    "a field is missing": ("missing_field", missing_field),
    "a field of another type": ("wrong_type", wrong_type),
    "no tokens": ("no_tokens", no_tokens),
    "too few log-probabilities": ("logprobs_few", few_logprobs),
    "too many log-probabilities": ("logprobs_many", many_logprobs),
    "log-probabilities of other ids": ("logprobs_of_other_ids", logprobs_of_other_ids),
    "NaN and its like": ("logprob_not_finite", no_finite_logprob),
    "ids out of range": ("token_outside_vocabulary", outside_vocabulary),
    "spans don't cover": ("spans", spans_beside_the_tokens),
    "unknown finish reason": ("unknown_finish", unknown_finish),
    "abort without tokens": ("abort_without_tokens", abort_without_tokens),
    OTHER_REQUEST: ("other_request", None),
    "HTML": ("not_json", html),
    "a cut body": ("cut_off", cut_body),
    "a cut connection": ("cut_off", cut_connection),
    HANG_UP: ("unreachable", None),
    SILENCE: ("timeout", None),
    "500": ("error_500", _says(500, {"error": {"message": "CUDA error"}}, b"Internal Server Error")),
    "503": ("error_503", _says(503, b"", _HTML)),
    "503, queue full": ("full_503", _says(503, *_in_three_shapes(FULL))),
    "429": ("full_429", _says(429, b"", *_in_three_shapes("too many requests"))),
    "502": ("error_other", _says(502, _HTML)),
    "400": ("rejected", _says(400, *_in_three_shapes(REFUSAL))),
    "400 of somebody else": ("refused_without_words", _says(400, _HTML, b"", {"detail": "no"}, {"error": None})),
}


def tell(kind: str, random: Random, answer: Json) -> Reply:
    """The lie of this kind about a good answer, which stays as it is."""
    _, lie = LIES[kind]
    assert lie is not None, kind
    told = lie(random, copy.deepcopy(answer))
    return told if isinstance(told, Reply) else Reply(json.dumps(told).encode())
