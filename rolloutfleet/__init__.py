"""Rollouts for reinforcement learning of language models, generated on a fleet behind one exact window in Redis.

A trainer needs `Trainer` (or `SyncTrainer`) and `PromptGroup`; everything else is for those who build on the broker.
"""

from rolloutfleet.batch import Batch
from rolloutfleet.errors import (
    BrokerUnavailable,
    EngineRejected,
    EngineUnavailable,
    InvalidGroup,
    ProtocolMismatch,
    RolloutFleetError,
    RunMissing,
    VersionAhead,
    WrongWeights,
)
from rolloutfleet.messages import CompletedGroup, PromptGroup, Row, Sample
from rolloutfleet.settings import RunConfig
from rolloutfleet.sync import SyncTrainer
from rolloutfleet.trainer import Trainer

__all__ = [
    "Batch",
    "BrokerUnavailable",
    "CompletedGroup",
    "EngineRejected",
    "EngineUnavailable",
    "InvalidGroup",
    "PromptGroup",
    "ProtocolMismatch",
    "RolloutFleetError",
    "Row",
    "RunConfig",
    "RunMissing",
    "Sample",
    "SyncTrainer",
    "Trainer",
    "VersionAhead",
    "WrongWeights",
]
