"""Sampling parameters that bend the distribution: what the engine draws from is then not what the policy says.

Log-probabilities are of the temperature-scaled distribution. Temperature therefore bends nothing; what cuts tokens off
(top_p, top_k, min_p) does, and so does what changes logits (penalties, biases, grammars, a least length). A trainer
that does not correct for it learns from ratios that are wrong, so a run refuses such groups unless it allows them.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from rolloutfleet.errors import InvalidGroup

type Bent = Literal["refuse", "allow"]

# What each says when it does nothing.
_NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "top_p": (None, 1),
    "top_k": (None, -1),
    "min_p": (None, 0),
    "frequency_penalty": (None, 0),
    "presence_penalty": (None, 0),
    "repetition_penalty": (None, 1),
    "min_new_tokens": (None, 0),  # until then it forbids what ends the answer
    "logit_bias": (None, {}),
    "json_schema": (None,),
    "regex": (None,),
    "ebnf": (None,),
    "structural_tag": (None,),
    "custom_params": (None, {}),
}
_CUT_OFF = ("top_p", "top_k", "min_p")
MOST_TOP_K = 4096  # SGLang's sampling_mask_max_tokens: beyond it there is no mask


def bent(params: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the sampling parameters that bend the distribution."""
    return {name: value for name, value in params.items() if value not in _NEUTRAL.get(name, (value,))}


def cuts_off(params: Mapping[str, Any]) -> bool:
    """Whether tokens are cut off, so that a trainer needs to know which were left: the sampling mask."""
    return any(name in _CUT_OFF for name in bent(params))


def check_sampling(params: Mapping[str, Any], allowed: Bent) -> None:
    """Errors: InvalidGroup, where the run does not allow the parameters, or the engine could not take or prove them."""
    found = bent(params)
    names = ", ".join(found)
    if found and allowed == "refuse":
        raise InvalidGroup(
            f"sampling_params: {names} would bend the distribution that the log-probabilities are of: "
            "leave it out, or set the run's bent_sampling to allow"
        )
    if "min_p" in found and params.get("sampling_seed") is not None:
        raise InvalidGroup("sampling_params: min_p and sampling_seed together end the engine: give one of them")
    if cuts_off(params) and not _has_mask(params.get("top_k")):
        raise InvalidGroup(
            f"sampling_params: {names}: give a top_k of 1 to {MOST_TOP_K} with it: "
            "only then the engine tells which tokens were left"
        )


def facts(params: Mapping[str, Any]) -> dict[str, Any]:
    """What goes with a sample: the temperature, what bends the distribution, and the seed if there is one."""
    seed = params.get("sampling_seed")
    known = {"temperature": params.get("temperature", 1.0)}
    return known | bent(params) | ({} if seed is None else {"sampling_seed": seed})


def join_facts(turns: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Those of a sample of several turns: a parameter that changed between them becomes a list, None where it was not
    given."""
    found = {name: [turn.get(name) for turn in turns] for turn in turns for name in turn}
    return {
        name: values[0] if all(value == values[0] for value in values) else values for name, values in found.items()
    }


def seed_of(seed: int, group_id: str, index: int) -> int:
    """The seed of one sample, of 31 bits: the same seed for all would make equal samples."""
    text = f"{seed}/{group_id}/{index}".encode(errors="surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=4).digest()) >> 1


def _has_mask(top_k: object) -> bool:
    return type(top_k) is int and 1 <= top_k <= MOST_TOP_K
