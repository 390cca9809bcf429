"""Every guard is needed: without it the invariant that its row names is broken, in a scope that is otherwise clean."""

import pytest

from tests.model.explore import explore
from tests.model.guards import GUARDS
from tests.model.mutations import MUTATIONS, Mutation
from tests.model.scopes import described
from tests.model.world import Scope


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda row: f"{row.off} breaks {row.breaks}")
def test_without_the_guard_the_invariant_breaks(mutation: Mutation) -> None:
    outcome = explore(mutation.scope, off=(mutation.off,), seconds=100, stop_at=mutation.breaks)

    assert mutation.breaks in outcome.broken


@pytest.mark.parametrize("scope", sorted({row.scope for row in MUTATIONS}, key=repr), ids=described)
def test_with_all_guards_the_same_scope_is_clean(scope: Scope) -> None:
    outcome = explore(scope, seconds=100)

    assert outcome.broken == {}
    assert outcome.is_exhausted


def test_the_table_has_every_guard() -> None:
    assert {row.off for row in MUTATIONS} == GUARDS.keys()
