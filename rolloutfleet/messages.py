"""Values and wire format: prompt groups (JSON), samples (msgpack around raw arrays), completed groups.

Invariants: a prompt group's text is kept as it came and never encoded again; arrays are little-endian and decoded
without copying; a sample that decodes has rows whose lengths agree, with finite log-probabilities. No pickle.
"""

import json
import math
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, NoReturn, Self, cast

import msgpack
import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from rolloutfleet.arrays import Bytes, Floats, Ints, pack_array, unpack_array
from rolloutfleet.errors import InvalidGroup, ProtocolMismatch

FORMAT = 1  # of a sample
UNKNOWN_VERSION = -1  # a weight version that is no number; never counts as fresh
MAX_ID_BYTES = 256
_SURROGATES = "text holds lone surrogates, which are no characters: replace them"

# Of SGLang's SamplingParams. `n` is not among them: each sample is a request of its own, so that it can be aborted.
SAMPLING_PARAMS = frozenset(
    [
        "max_new_tokens",
        "min_new_tokens",
        "stop",
        "stop_token_ids",
        "stop_regex",
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "frequency_penalty",
        "presence_penalty",
        "repetition_penalty",
        "json_schema",
        "regex",
        "ebnf",
        "structural_tag",
        "ignore_eos",
        "skip_special_tokens",
        "spaces_between_special_tokens",
        "no_stop_trim",
        "custom_params",
        "logit_bias",
        "sampling_seed",
        "stream_interval",
    ]
)


class PromptGroup(BaseModel):
    """One prompt, of which n samples are wanted. Exactly one of `prompt` (text), `messages` (chat) and `input_ids`.

    Unknown keys are kept (`model_extra`) and handed back with the completed group.
    """

    model_config = ConfigDict(frozen=True, extra="allow", strict=True, ser_json_inf_nan="constants")

    id: Annotated[str, Field(min_length=1)] = Field(default_factory=lambda: uuid.uuid4().hex)
    prompt: Annotated[str, Field(min_length=1)] | None = None
    messages: Annotated[list[dict[str, Any]], Field(min_length=1)] | None = None
    input_ids: Annotated[list[int], Field(min_length=1)] | None = None
    tools: list[dict[str, Any]] | None = None
    n: Annotated[int, Field(ge=1, le=4096)] | None = None
    sampling_params: dict[str, Any] | None = None
    metadata: Any = None
    label: Any = None

    @field_validator("id")
    @classmethod
    def _short(cls, value: str) -> str:
        if len(value.encode()) > MAX_ID_BYTES:
            raise ValueError(f"longer than {MAX_ID_BYTES} bytes")
        return value

    @field_validator("sampling_params")
    @classmethod
    def _known(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        unknown = sorted(set(value or ()) - SAMPLING_PARAMS)
        if unknown:
            mend = " (n is a field of the group)" if "n" in unknown else ""
            raise ValueError(f"unknown sampling parameters {', '.join(unknown)}{mend}")
        return value

    @model_validator(mode="after")
    def _one_prompt(self) -> Self:
        given = [name for name in ("prompt", "messages", "input_ids") if getattr(self, name) is not None]
        if len(given) != 1:
            has = " and ".join(given) or "none"
            raise ValueError(f"give exactly one of prompt, messages and input_ids (there is {has})")
        return self

    @classmethod
    def make(cls, value: Mapping[str, Any]) -> Self:
        """A prompt group from a mapping (a row of a data set). Errors: InvalidGroup, naming the field."""
        try:
            group = cls.model_validate({name: item for name, item in value.items() if item is not None})
            group.to_text()
        except (ValueError, RecursionError) as error:
            raise InvalidGroup(_why(error)) from error
        return group

    @classmethod
    def from_text(cls, text: bytes, max_bytes: int | None = None) -> Self:
        """Reads the JSON of a prompt group. Errors: InvalidGroup; a text that is too long is not decoded at all."""
        if max_bytes is not None and len(text) > max_bytes:
            raise InvalidGroup(f"{len(text)} bytes, and max_bytes is {max_bytes}: shorten the prompt, or raise it")
        try:
            value = json.loads(text, parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            raise InvalidGroup(f"not JSON: {error}") from error
        if not isinstance(value, dict):
            raise InvalidGroup(f"not a JSON object but {type(value).__name__}")
        return cls.make(cast(dict[str, Any], value))

    def to_text(self) -> bytes:
        """The JSON that is stored. Errors: ValueError (a lone surrogate, NaN)."""
        fields = {name: value for name, value in self.model_dump().items() if value is not None}
        return json.dumps(fields, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _why(error: Exception) -> str:
    if isinstance(error, UnicodeEncodeError):
        return _SURROGATES
    if isinstance(error, ValidationError):
        problems = error.errors(include_url=False, include_input=False)
        if any(problem["type"] == "string_unicode" for problem in problems):
            return _SURROGATES
        return "; ".join(
            ": ".join([*(str(part) for part in problem["loc"][:1]), problem["msg"].removeprefix("Value error, ")])
            for problem in problems[:3]
        )
    return str(error) or type(error).__name__


type Span = tuple[int, int, int]  # weight version, first token, token after the last


@dataclass(frozen=True, slots=True)
class Row:
    """What a trainer trains on. `ids`, `logprobs` and `mask` have the same length, in tokens after the prompt.

    logprobs are of the temperature-scaled distribution, in nats; mask is 1 where the policy made the token, 0 where a
    tool did (its log-probability is 0). `spans` cover the tokens with the weight versions that made them. `prompt`
    holds this row's own prompt ids where they differ from the group's.
    """

    ids: Ints
    logprobs: Floats
    mask: Bytes
    spans: tuple[Span, ...] = ()
    prompt: Ints | None = None
    extra: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict[str, npt.NDArray[Any]])

    @classmethod
    def make(cls, ids: Sequence[int], logprobs: Sequence[float], version: int = 0) -> Self:
        """A row that one policy made from beginning to end."""
        tokens = np.asarray(ids, dtype="<i4")
        spans = ((version, 0, len(tokens)),)
        return cls(tokens, np.asarray(logprobs, dtype="<f4"), np.ones(len(tokens), dtype="u1"), spans)

    def __len__(self) -> int:
        return len(self.ids)

    def check(self) -> None:
        """Errors: InvalidGroup: lengths disagree, a log-probability is not finite, spans do not cover the tokens."""
        if not len(self.ids) == len(self.logprobs) == len(self.mask):
            lengths = f"{len(self.ids)} ids, {len(self.logprobs)} log-probabilities, {len(self.mask)} mask"
            raise InvalidGroup(f"the lengths of a row disagree: {lengths}")
        if not np.isfinite(self.logprobs).all():
            raise InvalidGroup("a log-probability is not a finite number")
        ends = [0, *(end for _, _, end in self.spans)]
        if self.spans and (ends[-1] != len(self.ids) or any(s[1] != e for s, e in zip(self.spans, ends, strict=False))):
            raise InvalidGroup(f"the version spans do not cover the {len(self.ids)} tokens: {self.spans}")


@dataclass(frozen=True, slots=True)
class Sample:
    """One generated answer. `reward` is there only if generate itself made one.

    `finish` is "stop", "length", or "timeout": the group's time was over, and all tokens are masked. `sampling` has the
    temperature, the seed, and what else bent the distribution; parameters that changed between turns are lists.
    """

    index: int
    finish: str
    rows: tuple[Row, ...]
    text: str = ""
    reward: float | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    sampling: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def length(self) -> int:
        """Tokens after the prompt, over all rows."""
        return sum(len(row) for row in self.rows)

    @property
    def versions(self) -> tuple[int, int]:
        """Oldest and newest weight version; a version that is no number makes the oldest unknown."""
        found = [span[0] for row in self.rows for span in row.spans] or [UNKNOWN_VERSION]
        return min(found), max(found)

    def encode(self) -> bytes:
        """The wire form. Errors: InvalidGroup if the rows are unsound; TypeError if metadata is not plain data."""
        for row in self.rows:
            row.check()
        message = {
            "v": FORMAT,
            "index": self.index,
            "finish": self.finish,
            "text": self.text,
            "reward": self.reward,
            "metadata": dict(self.metadata),
            "rows": [_pack_row(row) for row in self.rows],
        }
        if self.sampling:
            message["sampling"] = dict(self.sampling)
        return bytes(msgpack.packb(message))

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Reads the wire form; arrays are views of `data`. Errors: ProtocolMismatch (newer), InvalidGroup (broken)."""
        try:
            message = msgpack.unpackb(data, strict_map_key=False)
            if message["v"] > FORMAT:
                raise ProtocolMismatch(f"a sample has format {message['v']}, this reads up to {FORMAT}: upgrade")
            _check_fields(message)
            rows = tuple(_unpack_row(row) for row in message["rows"])
            index, finish, text = message["index"], message["finish"], message["text"]
            sampling = message.get("sampling", {})
            sample = cls(index, finish, rows, text, message["reward"], message["metadata"], sampling)
        except (ValueError, LookupError, TypeError, AttributeError, OverflowError, msgpack.UnpackException) as error:
            raise InvalidGroup(f"a stored sample does not decode: {error!r}") from error
        for row in rows:
            row.check()
        return sample


def _check_fields(message: Mapping[str, Any]) -> None:
    """Errors: InvalidGroup where a foreign writer got a field's type wrong."""
    right = {
        "index": type(message["index"]) is int and message["index"] >= 0,
        "finish": isinstance(message["finish"], str),
        "text": isinstance(message["text"], str),
        "reward": message["reward"] is None or _is_finite(message["reward"]),
        "metadata": isinstance(message["metadata"], dict),
        "sampling": isinstance(message.get("sampling", {}), dict),
    }
    wrong = [name for name, is_right in right.items() if not is_right]
    if wrong:
        raise InvalidGroup(f"a stored sample has a wrong {' and '.join(wrong)}")


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _pack_row(row: Row) -> dict[str, Any]:
    packed: dict[str, Any] = {
        "ids": row.ids.astype("<i4", copy=False).tobytes(),
        "logprobs": row.logprobs.astype("<f4", copy=False).tobytes(),
        "mask": row.mask.astype("u1", copy=False).tobytes(),
        "spans": [list(span) for span in row.spans],
    }
    if row.prompt is not None:
        packed["prompt"] = row.prompt.astype("<i4", copy=False).tobytes()
    if row.extra:
        packed["extra"] = {name: pack_array(array) for name, array in row.extra.items()}
    return packed


def _unpack_row(packed: Mapping[str, Any]) -> Row:
    return Row(
        np.frombuffer(packed["ids"], dtype="<i4"),
        np.frombuffer(packed["logprobs"], dtype="<f4"),
        np.frombuffer(packed["mask"], dtype="u1"),
        tuple((int(span[0]), int(span[1]), int(span[2])) for span in packed["spans"]),
        np.frombuffer(packed["prompt"], dtype="<i4") if "prompt" in packed else None,
        {name: unpack_array(array) for name, array in packed.get("extra", {}).items()},
    )


@dataclass(frozen=True, slots=True)
class Grant:
    """A claimed group: the right to work on it until the lease ends.

    `stored`: indices that are finished already; `begun`: those of which an earlier holder left the first tokens.
    `deaths`: engines that died under it (see release.lua).
    """

    token: str
    id: str
    born: str
    n: int
    attempt: int
    text: bytes
    stored: frozenset[int]
    begun: frozenset[int] = frozenset()
    deaths: int = 0

    @property
    def missing(self) -> list[int]:
        return [index for index in range(self.n) if index not in self.stored]


@dataclass(frozen=True, slots=True)
class CompletedGroup:
    """What a trainer is handed: a prompt group, its n samples in order of index, and the rewards of exactly these.

    `entry` is its id in the stream, for ack and recycle. `rewards` is None where the trainer scores itself. Times are
    server time in ms. `prompt_ids` are the ids as rendered (None where the engine took text). `equal` samples say the
    same as another. `redundant`: so many answers more than n were asked for, and the first n won: the group favours
    short answers. `fingerprint` (of tokenizer, template, vocabulary size and end ids) and `dtype` are those of the
    worker and the engine that completed it; empty: unknown.
    """

    entry: str
    id: str
    born: str
    prompt: PromptGroup
    samples: tuple[Sample, ...]
    rewards: tuple[float, ...] | None
    group_reward: float | None
    prompt_ids: Ints | None
    worker: str
    attempts: int
    recycled: int
    submitted_ms: int
    claimed_ms: int
    completed_ms: int
    equal: int = 0
    redundant: int = 0
    fingerprint: str = ""
    dtype: str = ""
    is_stale: bool = False  # beyond the run's max_staleness for the version that the trainer handed in

    @property
    def versions(self) -> tuple[int, int]:
        """Oldest and newest weight version over the samples."""
        found = [sample.versions for sample in self.samples]
        return min(oldest for oldest, _ in found), max(newest for _, newest in found)

    def staleness(self, version: int) -> int | None:
        """How many versions the oldest token is behind the trainer's `version`; None if a version is unknown."""
        oldest = self.versions[0]
        return None if oldest == UNKNOWN_VERSION else version - oldest

    def to_json(self) -> dict[str, Any]:
        """Plain data, for a line of JSONL."""
        rewards: Sequence[float | None] = self.rewards or [None] * len(self.samples)
        return {
            "id": self.id,
            "prompt": self.prompt.prompt or self.prompt.messages or self.prompt.input_ids,
            "label": self.prompt.label,
            "metadata": self.prompt.metadata,
            "prompt_ids": None if self.prompt_ids is None else self.prompt_ids.tolist(),
            "group_reward": self.group_reward,
            "samples": [_sample_json(*pair) for pair in zip(self.samples, rewards, strict=True)],
            "versions": self.versions,
            "is_stale": self.is_stale,
            "worker": self.worker,
            "attempts": self.attempts,
            "recycled": self.recycled,
            "equal": self.equal,
            "redundant": self.redundant,
            "fingerprint": self.fingerprint,
            "dtype": self.dtype,
            "seconds": (self.completed_ms - self.submitted_ms) / 1000,
        }


def _sample_json(sample: Sample, reward: float | None) -> dict[str, Any]:
    return {
        "text": sample.text,
        "reward": reward,
        "finish": sample.finish,
        "length": sample.length,
        "sampling": dict(sample.sampling),
        "ids": [row.ids.tolist() for row in sample.rows],
        "logprobs": [[round(float(x), 5) for x in row.logprobs] for row in sample.rows],
        "mask": [row.mask.tolist() for row in sample.rows],
        "spans": [row.spans for row in sample.rows],
        "prompts": [None if row.prompt is None else row.prompt.tolist() for row in sample.rows],  # None: the group's
    }
