"""Prompts as the engine takes them: chat messages become token ids through the model's own template; ids are checked.

Invariants: no id outside of the vocabulary leaves here (one would end the whole engine); prompt and budget fit into the
context; text goes to the engine as it is. transformers is imported only where a tokenizer is needed.
"""

import asyncio
import hashlib
import importlib
import json
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from rolloutfleet.errors import InvalidGroup
from rolloutfleet.messages import PromptGroup
from rolloutfleet.sampling import cuts_off
from worker.model import read_end_ids

type Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Limits:
    """What the engine can take; None: unknown, not checked."""

    context_length: int | None = None
    vocab_size: int | None = None


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling parameters of groups that don't say their own."""

    max_new_tokens: int
    temperature: float


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt ready for the engine: `ids`, or `text` where the engine makes them; a budget that fits."""

    ids: tuple[int, ...] | None
    text: str
    params: Mapping[str, Any]

    @property
    def budget(self) -> int:
        return self.params["max_new_tokens"]


class Tokenizer:
    """transformers' AutoTokenizer, loaded at the first use. Its calls run one by one on a thread of their own."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._loaded: Any | None = None
        # One thread: the tokenizers of transformers must not be used by two at once.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tokenizer")

    async def render(self, messages: Sequence[Json], tools: Sequence[Json] | None) -> list[int]:
        """The ids of a chat, ready for the model's turn. Errors: InvalidGroup with the template's words."""
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._thread, self._render, list(messages), tools)
        except InvalidGroup:
            raise
        except Exception as error:  # a template is the model's own program: it may raise anything
            raise InvalidGroup(f"messages: the chat template of {self.path} refuses them: {error}") from error

    @property
    def is_loaded(self) -> bool:
        return self._loaded is not None

    async def encode(self, text: str, special: bool = True) -> list[int]:
        """The ids that the engine would make of a text; those of the text alone without `special` ones around it."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._encode, text, special)

    async def fingerprint(self) -> str:
        """16 hex digits of vocabulary, its size, template and end ids. Errors: OSError where there is none."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._fingerprint)

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _load(self) -> Any:
        if not self.path:
            raise OSError("the engine names none")
        if self._loaded is None:
            try:
                self._loaded = self._read()
            except Exception as error:  # what is malformed raises whatever its library raises
                raise OSError(str(error)) from error
        return self._loaded

    def _read(self) -> Any:
        """A folder; or a name, from the cache that the engine has just filled, else from the hub."""
        os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")  # that there is no torch: none is needed
        # Takes seconds. By name: a type checker that follows the import reads the whole library for half of its time.
        transformers: Any = importlib.import_module("transformers")
        load = transformers.AutoTokenizer.from_pretrained
        try:
            return load(self.path, local_files_only=True)
        except (OSError, ValueError):
            return load(self.path)

    def _render(self, messages: list[Json], tools: Sequence[Json] | None) -> list[int]:
        try:
            tokenizer = self._load()
        except OSError as error:
            raise InvalidGroup(
                f"messages need a tokenizer, and {self.path!r} is none: set tokenizer ({error})"
            ) from error
        ids: Any = tokenizer.apply_chat_template(
            messages, tools=list(tools) if tools else None, add_generation_prompt=True, tokenize=True, return_dict=False
        )
        return [int(token) for token in ids]

    def _encode(self, text: str, special: bool) -> list[int]:
        ids: list[int] = self._load().encode(text, add_special_tokens=special)
        return ids

    def _fingerprint(self) -> str:
        tokenizer = self._load()
        template: Any = getattr(tokenizer, "chat_template", None)
        backend: Any = getattr(tokenizer, "backend_tokenizer", None)
        vocabulary = backend.to_str() if backend is not None else json.dumps(tokenizer.get_vocab(), sort_keys=True)
        ends = [tokenizer.eos_token_id, *read_end_ids(self.path)]
        told = json.dumps([vocabulary, template, len(tokenizer), ends], sort_keys=True)
        return hashlib.sha256(told.encode()).hexdigest()[:16]


class Prompts:
    """Makes prompts of prompt groups."""

    def __init__(self, tokenizer: Tokenizer, limits: Limits, sampling: Sampling) -> None:
        self.tokenizer = tokenizer
        self.limits = limits
        self._sampling = sampling

    async def make(self, group: PromptGroup) -> Prompt:
        """Errors: InvalidGroup, where the engine could never take the prompt."""
        given = dict(group.sampling_params or {})
        budget = given.get("max_new_tokens", self._sampling.max_new_tokens)
        if type(budget) is not int or budget < 1:
            raise InvalidGroup(f"max_new_tokens is {budget!r}: use an integer of at least 1")
        ids = tuple(await self.ids(group, budget))
        check_ids(ids, self.limits.vocab_size)
        length = len(ids) if ids else 0
        params = {"temperature": self._sampling.temperature, **given}
        params["max_new_tokens"] = fit(length, budget, "max_new_tokens" in given, self.limits.context_length)
        return Prompt(ids or None, group.prompt or "", params)

    async def ids(self, group: PromptGroup, budget: int) -> Sequence[int]:
        """Ids of the prompt; none where it is text, and short enough to need no counting."""
        if group.messages is not None:
            return await self.tokenizer.render(group.messages, group.tools)
        text, context = group.prompt or "", self.limits.context_length
        # A token has at least one byte. Without a tokenizer the engine has the last word, and may refuse.
        if text and context is not None and len(text.encode()) + budget > context and self.tokenizer.is_loaded:
            return await self.tokenizer.encode(text)
        return group.input_ids or ()


def check_ids(ids: Sequence[int], vocab_size: int | None) -> None:
    """Errors: InvalidGroup for an id outside of the vocabulary."""
    highest = min(vocab_size or 2**31, 2**31)
    if ids and not (min(ids) >= 0 and max(ids) < highest):
        bad = next(token for token in ids if not 0 <= token < highest)
        raise InvalidGroup(f"input_ids: {bad} is outside of the engine's vocabulary of {highest}")


# Of sampling parameters, what sglang-router 0.3.2 leaves out of the request that it forwards.
_DROPPED_BY_ROUTERS = (
    "stop_regex",
    "structural_tag",
    "spaces_between_special_tokens",
    "custom_params",
    "logit_bias",
    "stream_interval",
)


def check_routed(params: Json) -> None:
    """Errors: InvalidGroup for parameters that would be left out on the way, so that the answer is another one's."""
    dropped = [name for name in _DROPPED_BY_ROUTERS if params.get(name) is not None]
    if dropped or cuts_off(params):
        names = ", ".join(dropped) or "the sampling mask of top_p, top_k or min_p"
        raise InvalidGroup(f"sampling_params: a router drops {names}: leave it out, or give the engine itself")


def fit(length: int, budget: int, is_explicit: bool, context_length: int | None) -> int:
    """The budget for an answer to a prompt of `length` tokens. Errors: InvalidGroup where the context has no room."""
    if context_length is None or length + budget <= context_length:
        return budget
    room = context_length - length
    if is_explicit or room < 1:
        raise InvalidGroup(
            f"a prompt of {length} tokens and max_new_tokens {budget if is_explicit else 1} do not fit into the "
            f"engine's context of {context_length}: shorten the one or lower the other"
        )
    return room
