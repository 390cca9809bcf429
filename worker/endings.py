"""How the hold on a group ends, and the words for it."""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal, cast

from rolloutfleet.broker import Release
from rolloutfleet.errors import BrokerUnavailable
from rolloutfleet.lengths import Loss

log = logging.getLogger("worker.group")

# The reasons of failures that a worker gives begin so: other reasons (lease expired, the process died) are crashes.
OUR_WORDS = ("sample ", "group ")
FULL_CONTEXT = ("engine's context of", "the context of", "context length")

type EndsBy = Literal["free", "died", "died_alone", "lost", "gone", "cancelled"]
type Kind = Literal["completed", "dropped", "lost", "gone", "cancelled"] | Release


@dataclass(frozen=True, slots=True)
class Ending:
    """How a hold on a group ends. completed, dropped, cancelled: done; lost, gone: not ours; else released so."""

    kind: Kind
    reason: str = ""
    cause: Loss = "other"


class Over(Exception):
    """The group is not ours any more."""

    def __init__(self, kind: Literal["lost", "gone"]) -> None:
        super().__init__(kind)
        self.kind: Literal["lost", "gone"] = kind


def cause_of(reason: str) -> Loss:
    """Of a lost group, for the counts by length: our own words, and the engine's."""
    return "context" if any(words in reason for words in FULL_CONTEXT) else "other"


def first_of(error: BaseException | None) -> BaseException | None:
    """The first error inside of a task group's."""
    first: Any = error
    while isinstance(first, BaseExceptionGroup):
        first = cast(BaseExceptionGroup[BaseException], first).exceptions[0]
    return first


async def until_answered[T](call: Callable[[], Awaitable[T]]) -> T:
    """Calls a step until the broker answers: it is the same step each time. Who needs an end cancels."""
    while True:
        try:
            return await call()
        except BrokerUnavailable as error:
            log.debug("%s", error)  # the heartbeat says it, once for all groups
