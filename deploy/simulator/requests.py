"""The body of /generate: what a simulated engine takes, and in which words it refuses the rest."""

import json
import math
import uuid
from array import array
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, cast

from deploy.simulator.tokens import text_to_ids

DEFAULT_MAX_NEW_TOKENS = 128
MASK_TOP_K = 4096
SAMPLING_PARAMETERS = frozenset(
    {
        "beam_width", "choice", "custom_params", "ebnf", "frequency_penalty", "ignore_eos", "json_schema", "logit_bias",
        "max_new_tokens", "min_new_tokens", "min_p", "n", "no_stop_trim", "presence_penalty", "regex",
        "repetition_penalty", "sampling_seed", "skip_special_tokens", "spaces_between_special_tokens", "stop",
        "stop_regex", "stop_token_ids", "stream_interval", "structural_tag", "temperature", "top_k", "top_p",
        "watermark",
    }
)  # fmt: skip
# (lowest, highest) that the engine takes; the first bool says whether the lowest itself is taken.
_RANGES = {
    "temperature": (True, 0.0, math.inf),
    "top_p": (False, 0.0, 1.0),
    "min_p": (True, 0.0, 1.0),
    "frequency_penalty": (True, -2.0, 2.0),
    "presence_penalty": (True, -2.0, 2.0),
    "repetition_penalty": (False, 0.0, 2.0),
    "max_new_tokens": (True, 0, math.inf),
    "min_new_tokens": (True, 0, math.inf),
    "sampling_seed": (True, -(2**63), 2**63 - 1),
}
_WHOLE = frozenset({"max_new_tokens", "min_new_tokens", "sampling_seed", "top_k", "n"})

Json = dict[str, Any]


class BadRequest(ValueError):
    """The engine answers 400 with this message."""


class MalformedBody(BadRequest):
    """The body isn't JSON, or a field of it has a wrong type: 400 by the server's own validation, in a stream, too."""


class ContractViolation(BadRequest):
    """A sampling parameter that doesn't exist or has a wrong type: 400 with the bare message, in a stream, too."""


class DeadlyRequest(Exception):
    """An id outside of the vocabulary, or an empty text: the real engine's process ends by it, and so does ours."""


@dataclass(frozen=True, slots=True)
class GenerateRequest:
    """One /generate that the engine takes. `prompt_key` is the same for the same prompt in the same form."""

    rid: str
    prompt_ids: list[int]
    prompt_key: bytes
    text: str | None
    max_new_tokens: int
    min_new_tokens: int
    stop_token_ids: frozenset[int]
    stops: tuple[str, ...]
    keeps_stop: bool
    ignore_eos: bool
    sampling_seed: int | None
    temperature: float
    top_k: int
    top_logprobs: int
    wants_mask: bool
    wants_logprobs: bool
    wants_token_texts: bool
    wants_prompt_ids: bool
    stream: bool


def read_json(body: bytes) -> Json:
    """Raises MalformedBody, also when it isn't an object."""
    try:
        value: Any = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise MalformedBody(f"the body isn't JSON: {error}") from error
    if not isinstance(value, dict):
        raise MalformedBody("the request body must be a JSON object")
    return cast(Json, value)


def read_generate(body: Json, context_length: int, vocabulary: int) -> GenerateRequest:
    """Raises BadRequest for what the engine answers with 400, DeadlyRequest for what ends it."""
    ids, text = _read_prompt(body, vocabulary)
    sampling = _read_sampling(body)
    budget = _read_budget(sampling, len(ids), context_length)
    if not 0 <= min(ids) <= max(ids) < vocabulary:
        raise DeadlyRequest(f"a token id outside of 0 to {vocabulary - 1}")
    return GenerateRequest(
        rid=_read_rid(body),
        prompt_ids=ids,
        prompt_key=_key(ids),
        text=text,
        max_new_tokens=budget,
        min_new_tokens=sampling.get("min_new_tokens") or 0,
        stop_token_ids=_read_stop_ids(sampling.get("stop_token_ids")),
        stops=_read_stops(sampling.get("stop")),
        keeps_stop=_read_switch(sampling, "no_stop_trim"),
        ignore_eos=_read_switch(sampling, "ignore_eos"),
        sampling_seed=sampling.get("sampling_seed"),
        temperature=_given(sampling, "temperature", 1.0),
        top_k=_given(sampling, "top_k", -1),
        top_logprobs=_read_top_logprobs(body),
        wants_mask=_read_mask(body, sampling),
        wants_logprobs=_read_flag(body, "return_logprob"),
        wants_token_texts=_read_flag(body, "return_text_in_logprobs"),
        wants_prompt_ids=_read_flag(body, "return_prompt_token_ids"),
        stream=_read_flag(body, "stream"),
    )


def _read_prompt(body: Json, vocabulary: int) -> tuple[list[int], str | None]:
    text, ids = body.get("text"), body.get("input_ids")
    if text is None and ids is None:
        raise BadRequest("Either text, input_ids or input_embeds should be provided.")
    if not isinstance(text, str | None):
        raise MalformedBody("text must be a string; the simulator takes no batches")
    if ids is not None:
        prompt_ids = _read_ids(ids, "input_ids")
        if not prompt_ids:
            raise BadRequest("input_ids cannot be empty.")
        return prompt_ids, None
    if not text:
        raise DeadlyRequest("an empty text")
    return text_to_ids(text, vocabulary), text


def _read_ids(value: Any, name: str) -> list[int]:
    if not isinstance(value, list) or not set(map(type, cast(list[Any], value))) <= {int}:
        raise MalformedBody(f"{name} must be a list of integers; the simulator takes no batches")
    return cast(list[int], value)


def _read_flag(body: Json, name: str) -> bool:
    value = body.get(name)
    if value not in (None, False, True):  # 0 and 1 are equal to the last two
        raise MalformedBody(f"{name} must be a valid boolean; the simulator takes no batches")
    return bool(value)


def _given(sampling: Json, name: str, default: float) -> Any:
    value = sampling.get(name)
    return default if value is None else value


def _read_mask(body: Json, sampling: Json) -> bool:
    wants = _read_flag(body, "return_sampling_mask")
    top_k = 1 if sampling.get("temperature") == 0 else _given(sampling, "top_k", -1)
    if wants and not 1 <= top_k <= MASK_TOP_K:
        raise BadRequest(
            f"return_sampling_mask requires top_k=1 for greedy sampling or finite 1 < top_k <= {MASK_TOP_K}; "
            f"got top_k={top_k}."
        )
    return wants


def _read_top_logprobs(body: Json) -> int:
    value = body.get("top_logprobs_num")
    if not isinstance(value, int | None):
        raise MalformedBody("top_logprobs_num must be an integer; the simulator takes no batches")
    return value or 0


def _read_switch(sampling: Json, name: str) -> bool:
    value = sampling.get(name)
    if not isinstance(value, bool | None):
        raise ContractViolation(f"invalid type of {name}: {value!r}, expected a boolean")
    return bool(value)


def _read_stop_ids(value: Any) -> frozenset[int]:
    if not isinstance(value, list | None) or not set(map(type, cast(list[Any], value or []))) <= {int}:
        raise ContractViolation(f"invalid type of stop_token_ids: {value!r}, expected a sequence of integers")
    return frozenset(cast(list[int], value or []))


def _read_stops(value: Any) -> tuple[str, ...]:
    stops: list[Any] = [value] if isinstance(value, str) else value or []
    if not isinstance(value, str | list | None) or not set(map(type, stops)) <= {str}:
        raise ContractViolation(f"invalid type of stop: {value!r}, expected a string or a list of strings")
    return tuple(stops)


def _read_rid(body: Json) -> str:
    rid = body.get("rid")
    if rid is None:
        return uuid.uuid4().hex
    if not isinstance(rid, str):
        raise MalformedBody("rid must be a string; the simulator takes no batches")
    return rid


def _read_sampling(body: Json) -> Json:
    value = body.get("sampling_params")
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise MalformedBody("sampling_params must be an object; the simulator takes no batches")
    sampling = cast(Json, value)
    for name, given in sampling.items():
        if name not in SAMPLING_PARAMETERS:
            raise ContractViolation(f"unknown field `{name}`, expected one of {', '.join(sorted(SAMPLING_PARAMETERS))}")
        _check_number(name, given)
    if sampling.get("n", 1) not in (1, None):
        raise BadRequest("n > 1 is unsupported by the simulator: send one request per sample")
    return sampling


def _check_number(name: str, given: Any) -> None:
    if given is None or (name not in _RANGES and name not in _WHOLE):
        return
    wanted = (int,) if name in _WHOLE else (int, float)
    if isinstance(given, bool) or not isinstance(given, wanted):
        raise ContractViolation(f"invalid type of {name}: {given!r}, expected a number")
    if name == "top_k" and (given < -1 or given == 0):
        raise BadRequest(f"top_k must be -1 (disable) or at least 1, got {given}.")
    takes_lowest, lowest, highest = _RANGES.get(name, (True, -math.inf, math.inf))
    if not (lowest <= given <= highest) or (given == lowest and not takes_lowest) or given == math.inf:
        raise BadRequest(f"{name} must be in {lowest} to {highest}, got {given}.")


def _read_budget(sampling: Json, prompt: int, context_length: int) -> int:
    """The most tokens that the answer may have; without a wish of the client's it also ends where the context does."""
    if prompt >= context_length:
        raise BadRequest(
            f"The input ({prompt} tokens) is longer than the model's context length ({context_length} tokens)."
        )
    room = context_length - prompt
    wanted: int | None = sampling.get("max_new_tokens", DEFAULT_MAX_NEW_TOKENS)
    if "max_new_tokens" in sampling and wanted is not None and wanted > room:
        raise BadRequest(
            f"Requested token count exceeds the model's maximum context length of {context_length} tokens: "
            f"{prompt} tokens from the input and {wanted} tokens for the completion."
        )
    least: int = sampling.get("min_new_tokens") or 0
    if wanted is not None and least > wanted:
        raise BadRequest(f"min_new_tokens must be in 0 to max_new_tokens({wanted}), got {least}.")
    return room if wanted is None else min(wanted, room)


def _key(ids: list[int]) -> bytes:
    return blake2b(array("q", ids).tobytes(), digest_size=16).digest()
