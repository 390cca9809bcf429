"""The atomic steps: reads scripts/*.lua, puts the parts that a step names before it, and knows its hash.

Invariants: a script is loaded by content (EVALSHA), so two versions of the fleet can share a Redis; a server that does
not know the `#!lua flags=` line gets the same script without it.
"""

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Self

_WITH = re.compile(r"^-- with: (.+)$", re.MULTILINE)
_FLAGS = re.compile(r"^-- flags: (.+)$", re.MULTILINE)

STEPS = (
    "submit",
    "claim",
    "heartbeat",
    "put",
    "keep",
    "complete",
    "release",
    "drop",
    "reap",
    "evict",
    "drain",
    "take",
    "begin",
    "touch",
    "adopt",
    "ack",
    "judge",
    "cancel",
    "recycle",
    "publish",
    "update",
    "requeue_dead",
    "repair_groups",
    "repair_leases",
    "repair_samples",
    "configure",
)


@dataclass(frozen=True, slots=True)
class Script:
    """One step. `text` is what the server runs, `sha` the name under which it keeps it."""

    name: str
    text: str
    sha: str

    @classmethod
    def make(cls, name: str, text: str) -> Self:
        return cls(name, text, hashlib.sha1(text.encode()).hexdigest())


def source(path: str) -> str:
    """The text of a file under scripts/, as it lies there."""
    return (files("rolloutfleet") / "scripts" / path).read_text()


def compose(step: str, flags: bool) -> str:
    """A step's text after its parts. With `flags`, the first line tells the server what it may do when full."""
    text = source(f"{step}.lua")
    names = _WITH.search(text)
    parts = [source(f"parts/{name}.lua") for name in (names[1].split() if names else [])]
    allowed = _FLAGS.search(text)
    first = f"#!lua flags={allowed[1]}\n" if allowed and flags else "#!lua\n" if flags else ""
    return first + "\n".join([*parts, text])


@cache
def scripts(flags: bool = True) -> dict[str, Script]:
    """All steps by name."""
    return {step: Script.make(step, compose(step, flags)) for step in STEPS}
