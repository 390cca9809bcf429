"""Every key of a run, on one page.

All keys of a run share the hash tag `{run}`, so that a run lives in one cluster slot and a script may touch all of its
keys. The prefix carries the version of the layout. docs/protocol.md says what is in each.
"""

import re
from dataclasses import dataclass

VERSION = "rf1"
RUN_NAME = re.compile(r"[A-Za-z0-9._-]+")
CONFIGS = f"{VERSION}:{{*}}:config"  # matches the config of every run

# The order in which every script gets its KEYS (scripts/parts/keys.lua binds them). The first two are a lane's.
NAMES = (
    "prompts",  # LIST    prompt groups that wait: @id, or JSON that any producer RPUSHed
    "completed",  # STREAM  completed groups; consumer group `trainer`
    "again",  # ZSET    id -> ms (run clock) from which it may be claimed again; 0: at once
    "leases",  # ZSET    id -> deadline in ms (run clock); its cardinality is the number of active groups
    "grants",  # HASH    token -> id
    "outstanding",  # STRING  sum of max(1, samples left) over the leases
    "trained",  # ZSET    id -> number of its ack; only where commits are asked for
    "done",  # ZSET    id -> ms; bounded memory of what is over
    "dead",  # STREAM  dead letters: id, reason, attempts, text
    "state",  # HASH    what the steps keep: epoch, born, seen_at, shift, slots, gate, the books of `pace`
    "config",  # HASH    what the user sets: see RunConfig
    "policy",  # HASH    weight version, where the weights lie, and how they are to be loaded
    "workers",  # ZSET    worker -> deadline in ms (run clock)
    "capacity",  # HASH    worker -> its sample slots; worker:facts -> JSON
    "draining",  # ZSET    worker -> ms: told to drain
    "barred",  # ZSET    worker -> ms: evicted; kept a day
    "stats",  # HASH    counters, and ms behind each reason
    "wake",  # LIST    at most one hint that a claim may succeed
    "updating",  # ZSET    worker, version and engine -> deadline in ms (run clock): whose turn it is to load weights
)


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one run. `run` is `[A-Za-z0-9._-]+`; anything else is a ValueError that says so."""

    run: str

    def __post_init__(self) -> None:
        if not RUN_NAME.fullmatch(self.run):
            raise ValueError(f"run name {self.run!r}: use letters, digits, dot, underscore and hyphen only")

    @property
    def prefix(self) -> str:
        return f"{VERSION}:{{{self.run}}}:"

    def named(self, name: str) -> str:
        if name not in NAMES:
            raise ValueError(f"no key is named {name!r}")
        return self.prefix + name

    def all(self) -> list[str]:
        """What every script is given as KEYS."""
        return [self.prefix + name for name in NAMES]

    def group(self, group_id: str) -> str:
        """HASH: all about one group, until it is acked, dropped or dead."""
        return f"{self.prefix}group:{group_id}"

    def samples(self, group_id: str, born: str) -> str:
        """HASH: index -> finished sample (binary) of one incarnation; `prompt` -> prompt ids as rendered."""
        return f"{self.prefix}samples:{group_id}:{born}"

    def partial(self, group_id: str, born: str) -> str:
        """HASH: index -> the first tokens of a sample that is not finished (binary), of one incarnation."""
        return f"{self.prefix}partial:{group_id}:{born}"


def run_of(config_key: str) -> str:
    """The run whose config this key is."""
    return config_key.removeprefix(f"{VERSION}:{{").removesuffix("}:config")
