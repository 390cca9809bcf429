"""Simulated engines, too slow to finish anything until they are told to hurry, and checks of what they labelled.

Their log-probabilities say which weights made a token, so that every label can be checked.
"""

from collections.abc import Sequence

import numpy as np

from deploy.simulator import Faults, Simulator, SimulatorSettings
from rolloutfleet.messages import CompletedGroup, Row

SLOTS = 4
SETTINGS = SimulatorSettings(
    slots=SLOTS,
    speed=2000,
    half=0,
    faults=Faults(slow_factor=1000),
    any_weights=True,
    health_seconds=0,
    health_timeout_seconds=1,
    weight_version="0",
)


def hurry(*simulators: Simulator) -> None:
    """From here on they are fast: until then no request ends by itself while a test waits for something."""
    for simulator in simulators:
        simulator.service.set_faults(Faults())


def rows(groups: Sequence[CompletedGroup]) -> list[Row]:
    return [sample.rows[0] for group in groups for sample in group.samples]


def versions(groups: Sequence[CompletedGroup]) -> set[tuple[int, ...]]:
    return {tuple(version for version, _, _ in row.spans) for row in rows(groups)}


def is_labelled_right(row: Row, simulator: Simulator, begins_anew: bool) -> bool:
    """`begins_anew`: each span was a request of its own, in which places are counted from 0."""
    expected = [
        simulator.service.tokens.logprob(int(row.ids[at]), at - start * begins_anew, str(version))
        for version, start, end in row.spans
        for at in range(start, end)
    ]
    return np.allclose(row.logprobs, expected)
