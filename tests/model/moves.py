"""A move: one thing that can happen next in a world, and how callers fare whose call is answered, or lost."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from tests.model.world import Call, World, lose, perform, settled, spend

Answered = Callable[[World, object], World]
"""What the caller does with the answer."""


class Move(NamedTuple):
    label: str
    is_faultless: bool
    after: World
    call: Call | None = None
    """The broker's step in it, if there is one."""


def ignore(world: World, _: object) -> World:
    return world


def call(world: World, label: str, what: Call, answered: Answered = ignore, *, event: str = "") -> Iterator[Move]:
    """The call is answered; or it is lost, acts later, and its caller goes on as if it had not called.

    With an event, the call is bought from its budget.
    """
    paid = spend(world, event) if event else world
    if paid is None:
        return
    after, answer = perform(paid, what)
    yield Move(label, not event, settled(answered(after, answer)), what)
    lost = spend(paid, "lose")
    if lost is not None:
        yield Move(f"{label}, lost", False, lose(lost, what))
