"""What a sample has before it is finished: how it is stored for the group's next holder, and from where that goes on.

Invariants: only a prompt of the same ids under the same sampling parameters is continued; the place from which a sample
goes on does not depend on which tokens were drawn, so that continuing changes no distribution.
"""

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rolloutfleet.errors import InvalidGroup, ProtocolMismatch
from rolloutfleet.messages import Row, Sample
from worker.engine import EngineClient

log = logging.getLogger("worker.partials")

_MADE_OF = "made_of"
_TAIL = 5  # tokens of the prompt that decide how the first token of the answer is spelled
_LOOK_BACK = 4  # tokens; a character has at most four bytes
_TORN = "\ufffd"  # the end of a text whose last character is incomplete

# What these look at is the output of one request: asked to go on, the engine would begin with them anew.
_BOUND_TO_ONE_REQUEST: Mapping[str, tuple[Any, ...]] = {
    "frequency_penalty": (None, 0),
    "presence_penalty": (None, 0),
    "repetition_penalty": (None, 1),
    "json_schema": (None,),
    "regex": (None,),
    "ebnf": (None,),
    "structural_tag": (None,),
    "stop_regex": (None, [], ""),
    "custom_params": (None, {}),
}


@dataclass(frozen=True, slots=True)
class Resumption:
    """So many tokens are kept, and this is their text."""

    length: int
    text: str


def can_continue(params: Mapping[str, Any]) -> bool:
    """Whether a request that takes the tokens so far as its input continues the sample as if it had never ended."""
    return all(params.get(name) in neutral for name, neutral in _BOUND_TO_ONE_REQUEST.items())


async def resume(
    engine: EngineClient, prompt: Sequence[int], ids: Sequence[int], params: Mapping[str, Any]
) -> Resumption | None:
    """From where a turn that was broken off goes on. None: that can't be known, for want of the engine's tokenizer.

    The last token is made again. The engine does not look at the token that it makes while it aborts: it may be one
    that ends the answer, or completes a stop string, and nothing would say so. So are tokens that may be the beginning
    of a stop string, which the next request would not recognise, or of a character.
    """
    longest = max(0, len(ids) - 1 - _longest_stop(params))
    if not longest or not engine.has_text:
        return Resumption(longest, "")
    tail = list(prompt[-_TAIL:])
    lengths = range(longest, max(0, longest - _LOOK_BACK), -1)
    skip = bool(params.get("skip_special_tokens", True))
    texts = await engine.decode([tail, *(tail + list(ids[:length]) for length in lengths)], skip)
    if texts is None or len(texts) != len(lengths) + 1:
        return None
    begin = len(texts[0])
    for length, text in zip(lengths, texts[1:], strict=True):
        if not text.endswith(_TORN):
            return Resumption(length, text[begin:])
    return Resumption(lengths[0], texts[1][begin:])  # the model itself said what is no character


def _longest_stop(params: Mapping[str, Any]) -> int:
    """The most tokens that a stop string can have: one a byte."""
    stop: Any = params.get("stop") or ()
    texts: Sequence[Any] = (stop,) if isinstance(stop, str) else stop
    return max((len(text.encode(errors="surrogatepass")) for text in texts if isinstance(text, str)), default=0)


def made_of(prompt: Sequence[int], params: Mapping[str, Any]) -> str:
    """Tells prompts and parameters apart."""
    text = json.dumps([list(prompt), dict(params)], sort_keys=True, default=repr)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def pack(index: int, row: Row, digest: str) -> bytes | None:
    """The wire form; None where there is nothing worth it."""
    return Sample(index, "abort", (row,), metadata={_MADE_OF: digest}).encode() if len(row) else None


def unpack(data: bytes) -> Sample | None:
    """None where it does not decode: nothing is lost by that but time."""
    try:
        sample = Sample.decode(data)
    except (InvalidGroup, ProtocolMismatch) as error:
        log.warning("tokens of an earlier holder can't be read: %s", error)
        return None
    return sample if sample.finish == "abort" and len(sample.rows) == 1 and sample.rows[0].mask.all() else None


def is_of(sample: Sample, digest: str) -> bool:
    return sample.metadata.get(_MADE_OF) == digest
