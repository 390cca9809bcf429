"""The policy that a run generates with: the version that was published last, and how it gets into the engines."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Self, get_args

from rolloutfleet.errors import ProtocolMismatch

type Mode = Literal["retract", "abort", "drain", "external"]
MODES: tuple[Mode, ...] = get_args(Mode.__value__)


@dataclass(frozen=True, slots=True)
class Policy:
    """What lies in the key `policy`. `version` is the broker's, `label` the trainer's own name for it.

    `mode` says what becomes of running requests: they go on under the new weights (retract), or are aborted and
    continued from their tokens (abort), or finish first (drain); external: the trainer updates the engines itself.
    `at_once`: at most so many workers load at a time, 0: all. `manifest`: the hash of the folder's manifest; "": nobody
    checks. `loaded`: how many workers have loaded it. `published_ms` is server time.
    """

    version: int
    path: str = ""
    label: str = ""
    mode: Mode = "retract"
    at_once: int = 0
    manifest: str = ""
    loaded: int = 0
    published_ms: int = 0

    @property
    def is_external(self) -> bool:
        return self.mode == "external"

    @classmethod
    def from_fields(cls, fields: Mapping[str, str]) -> Self | None:
        """As read from Redis; None: nothing was published. Errors: ProtocolMismatch for the mode of a newer one."""
        if not fields.get("version"):
            return None
        return cls(
            version=int(fields["version"]),
            path=fields.get("path", ""),
            label=fields.get("label", ""),
            mode=_read_mode(fields.get("mode", "retract")),
            at_once=int(fields.get("at_once", 0)),
            manifest=fields.get("manifest", ""),
            loaded=int(fields.get("loaded", 0)),
            published_ms=int(fields.get("published", 0)),
        )


@dataclass(frozen=True, slots=True)
class Publication:
    """Weights on their way to the broker; its version is what `publish` answers."""

    path: str
    label: str = ""
    mode: Mode = "retract"
    at_once: int = 0
    manifest: str = ""

    def __post_init__(self) -> None:
        as_mode(self.mode)
        if self.at_once < 0:
            raise ValueError(f"at_once is {self.at_once}: give how many workers load at a time, or 0 for all")
        if not self.path and self.mode != "external":
            raise ValueError("no path: workers load weights from a folder; give one, or mode='external'")


def _read_mode(text: str) -> Mode:
    try:
        return as_mode(text)
    except ValueError as error:
        raise ProtocolMismatch(f"{error}, or upgrade this process") from error


def as_mode(text: str) -> Mode:
    """Errors: ValueError for a word that is no mode."""
    for mode in MODES:
        if mode == text:
            return mode
    raise ValueError(f"the mode of an update is {text!r}: give one of {', '.join(MODES)}")
