"""Small scopes of the protocol, exhausted: in every world the invariants hold, and from every world rest is near."""

from functools import cache

import pytest

from tests.model.environment import moves
from tests.model.explore import SEEN_AT_NEXT_POLL, Outcome, explore
from tests.model.scopes import QUICK
from tests.model.steps import WAKES
from tests.model.world import start, swapped


@cache
def explored(name: str) -> Outcome:
    return explore(QUICK[name], seconds=100)


@pytest.mark.parametrize("name", QUICK)
def test_no_world_of_the_scope_breaks_an_invariant(name: str) -> None:
    outcome = explored(name)

    assert outcome.broken == {}
    assert outcome.is_exhausted


@pytest.mark.parametrize("name", QUICK)
def test_the_scope_comes_to_rest_in_more_than_one_way(name: str) -> None:
    assert explored(name).at_rest > 1


def test_each_step_that_wakes_opens_the_gate_in_some_world() -> None:
    opened_by = {step for name in QUICK for step in explored(name).opened_by}

    assert opened_by - set(SEEN_AT_NEXT_POLL) == WAKES


def test_exchanging_the_workers_twice_changes_nothing() -> None:
    scope = QUICK["two-samples"]
    world = start(scope)
    for _ in range(12):
        world = list(moves(world, scope))[-1].after

        assert swapped(swapped(world)) == world


def test_what_can_happen_in_a_world_can_happen_in_its_mirror() -> None:
    scope = QUICK["two-samples"]
    world = start(scope)
    for _ in range(12):
        world = list(moves(world, scope))[-1].after
        mirrored = {swapped(move.after) for move in moves(world, scope)}

        assert {move.after for move in moves(swapped(world), scope)} == mirrored
