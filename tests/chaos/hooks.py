"""What chaos runs hang into the worker: a reward that proves from which samples it was computed, and a deadly group."""

import os
from collections.abc import Iterable

from rolloutfleet.messages import PromptGroup, Sample
from tests.chaos.soundness import score
from worker.generate import Session

_PRIME = 1009


def checksum(ids: Iterable[int]) -> float:
    """A reward that no other sample's ids are likely to have."""
    return (sum((position + 1) * token for position, token in enumerate(ids)) % _PRIME) / _PRIME


async def generate(session: Session) -> None:
    """One turn; but a group that is marked as poison kills its worker, as a crash in native code would."""
    if session.prompt.metadata == "poison":
        os._exit(9)
    await session.generate()


def reward(prompt: PromptGroup, sample: Sample) -> float:
    """Of a run beside a hostile engine: the checker knows what it must be."""
    (row,) = sample.rows
    return score(row.ids.tolist())
