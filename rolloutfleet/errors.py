"""Errors, named by what the caller can do. A bad rollout is data (a dead letter with its reason), never an exception.

RolloutFleetError
├── BrokerUnavailable   Redis does not answer, or refuses: nothing is lost; try again later
├── InvalidGroup        this prompt group (or sample) can never work: mend the input
├── EngineUnavailable   the engine does not answer: give the group back, back off
├── EngineRejected      the engine will never take this request: fail the group, no retry
├── WrongWeights        the folder of weights is not whole, or not what was published: publish again, in a new folder
├── RunMissing          the run has no config: create it, or mend the name
├── VersionAhead        newer weights made a group than the trainer says it has: hand in the version that it has
└── ProtocolMismatch    the other side speaks another version of the keys or messages: upgrade one of them
"""


class RolloutFleetError(Exception):
    """What every error of this project derives from."""


class BrokerUnavailable(RolloutFleetError):
    """Redis did not answer within the time given, or answered that it cannot serve now (loading, read only, full)."""


class InvalidGroup(RolloutFleetError):
    """A prompt group or a sample breaks the wire format; the message says which field and the mend."""


class EngineUnavailable(RolloutFleetError):
    """The engine refuses connections, answers 429 or 5xx, or not at all."""


class EngineRejected(RolloutFleetError):
    """The engine answered 4xx, or something that is no answer to the request."""


class WrongWeights(RolloutFleetError):
    """The folder is not there, not whole, or not what was published; the message names the file."""


class RunMissing(RolloutFleetError):
    """The run has no config yet: `Trainer.connect(..., config=RunConfig(...))` or `rolloutfleet configure` makes it."""


class VersionAhead(RolloutFleetError):
    """The version that a trainer handed in is older than what made some of the groups. All of them stay its own."""


class ProtocolMismatch(RolloutFleetError):
    """A message of a newer format, or another fingerprint of tokenizer and template than the run's."""
