"""Which sampling parameters bend the distribution, and who says so."""

from typing import Any

import pytest

from rolloutfleet.errors import InvalidGroup
from rolloutfleet.messages import PromptGroup
from rolloutfleet.sampling import bent, check_sampling, cuts_off, facts, join_facts, seed_of
from rolloutfleet.settings import RunConfig
from rolloutfleet.trainer import check_groups

BENDING: list[dict[str, Any]] = [
    {"top_p": 0.9},
    {"top_k": 20},
    {"min_p": 0.1},
    {"frequency_penalty": 0.5},
    {"presence_penalty": -0.5},
    {"repetition_penalty": 1.1},
    {"min_new_tokens": 4},
    {"logit_bias": {"5": 1.0}},
    {"regex": "[0-9]+"},
]
NEUTRAL: list[dict[str, Any]] = [
    {},
    {"temperature": 0.7, "max_new_tokens": 9, "stop": ["\n"], "sampling_seed": 3},
    {"top_p": 1, "top_k": -1, "min_p": 0, "frequency_penalty": 0.0, "repetition_penalty": 1.0, "logit_bias": None},
]


@pytest.mark.parametrize("params", BENDING)
def test_a_run_refuses_what_bends_the_distribution_unless_it_allows_it(params: dict[str, Any]) -> None:
    (name,) = params
    assert bent(params) == params
    with pytest.raises(InvalidGroup, match=rf"{name} .*bent_sampling to allow"):
        check_sampling(params, "refuse")
    check_sampling(params | ({"top_k": 50} if cuts_off(params) else {}), "allow")


@pytest.mark.parametrize("params", NEUTRAL)
def test_what_bends_nothing_is_taken(params: dict[str, Any]) -> None:
    assert bent(params) == {}
    check_sampling(params, "refuse")


@pytest.mark.parametrize("top_k", [None, -1, 5000])
def test_cut_off_tokens_need_a_top_k_for_which_the_engine_tells_what_was_left(top_k: int | None) -> None:
    with pytest.raises(InvalidGroup, match="give a top_k of 1 to 4096"):
        check_sampling({"top_p": 0.9, "top_k": top_k}, "allow")


def test_min_p_with_a_seed_would_end_the_engine() -> None:
    with pytest.raises(InvalidGroup, match="give one of them"):
        check_sampling({"min_p": 0.1, "top_k": 9, "sampling_seed": 1}, "allow")


def test_the_facts_are_the_temperature_the_seed_and_what_bends() -> None:
    params: dict[str, Any] = {"temperature": 0.7, "max_new_tokens": 9, "top_p": 1.0, "top_k": 3, "sampling_seed": 5}
    assert facts(params) == {"temperature": 0.7, "top_k": 3, "sampling_seed": 5}
    assert facts({}) == {"temperature": 1.0}


def test_facts_that_changed_between_turns_are_lists() -> None:
    turns = [{"temperature": 1.0, "top_k": 3}, {"temperature": 1.0}]
    assert join_facts(turns) == {"temperature": 1.0, "top_k": [3, None]}


def test_seeds_are_the_same_again_and_others_for_other_groups_indices_and_seeds() -> None:
    seeds = {seed_of(seed, group, index) for seed in (0, 1) for group in ("a", "b") for index in range(8)}
    assert len(seeds) == 32
    assert seed_of(0, "a", 0) in seeds
    assert all(0 <= seed < 2**31 for seed in seeds)


def test_a_ledger_with_a_bending_group_is_refused_and_the_group_named() -> None:
    groups = [PromptGroup(id="good", prompt="a"), PromptGroup(id="bad", prompt="a", sampling_params={"top_p": 0.5})]
    with pytest.raises(InvalidGroup, match=r"group bad: .*top_p"):
        check_groups(groups, RunConfig())
