"""From stream entries to completed groups: reads prompts and samples, and lets nothing unsound through.

Invariant: a group is handed out only with all its n samples of the incarnation that its entry names, and the rewards
that were computed from them. An entry that can't be read so (the broker lost data) is recycled: its prompt is not lost.
"""

import json
import logging
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from rolloutfleet.answers import as_dict
from rolloutfleet.broker import Broker, Entry, split_samples
from rolloutfleet.errors import InvalidGroup
from rolloutfleet.messages import CompletedGroup, PromptGroup, Sample

log = logging.getLogger(__name__)

_DEAD_PAGE = 1000


@dataclass(frozen=True, slots=True)
class LostGroup:
    """A group that will not come: a dead letter, dropped (by the group filter, or as too stale), or over before."""

    id: str
    reason: str


type Outcome = CompletedGroup | LostGroup

# What complete.lua writes; without them an entry was added by somebody else.
_OURS = frozenset({"id", "born", "n", "attempts", "recycled", "submitted", "claimed", "completed"})
_NO_LETTER = "over without a dead letter: dropped by the group filter or as too stale, or trained on before"


async def fetch(broker: Broker, entries: Sequence[Entry]) -> list[CompletedGroup]:
    """The groups of these entries, in one round trip; unsound ones are recycled and left out."""
    ours = [entry for entry in entries if entry.fields.keys() >= _OURS]
    if strange := [entry.entry for entry in entries if not entry.fields.keys() >= _OURS]:
        log.error("entries %s were not written by a worker: deleted", ", ".join(strange))
        await broker.ack(strange)
    commands: list[list[str]] = []
    for entry in ours:
        commands.append(["HMGET", broker.keys.group(entry.id), "text", "born"])
        commands.append(["HGETALL", broker.keys.samples(entry.id, entry.born)])
    answers = await broker.calls.read(commands) if commands else []
    groups: list[CompletedGroup] = []
    for entry, (text, born), samples in zip(ours, answers[::2], answers[1::2], strict=True):
        try:
            groups.append(_build(entry, text, born, as_dict(samples)))
        except (InvalidGroup, ValueError, TypeError) as error:
            word = await broker.recycle(entry.entry, reason=str(error))
            log.error("group %s can't be handed out (%s): recycled (%s)", entry.id, error, word)
    return groups


def _build(entry: Entry, text: bytes | None, born: bytes | None, stored: dict[bytes, bytes]) -> CompletedGroup:
    if text is None or born is None or born.decode() != entry.born:
        raise InvalidGroup("its text is gone")
    fields, n = entry.fields, int(entry.fields["n"])
    found, prompt = split_samples(stored)
    if sorted(found) != list(range(n)):
        raise InvalidGroup(f"{len(found)} of {n} samples are stored")
    reward = json.loads(fields.get("group_reward", b"null"))
    if reward is not None and not math.isfinite(reward):
        raise InvalidGroup(f"its group reward is {reward}")
    return CompletedGroup(
        entry=entry.entry,
        id=entry.id,
        born=entry.born,
        prompt=PromptGroup.from_text(text),
        samples=tuple(Sample.decode(found[index]) for index in range(n)),
        rewards=read_rewards(fields.get("rewards", b"null"), n),
        group_reward=reward,
        prompt_ids=None if prompt is None else np.frombuffer(prompt, dtype="<i4"),
        worker=fields.get("worker", b"").decode(),
        attempts=int(fields["attempts"]),
        recycled=int(fields["recycled"]),
        submitted_ms=int(fields["submitted"]),
        claimed_ms=int(fields["claimed"]),
        completed_ms=int(fields["completed"]),
        equal=int(fields.get("equal", 0)),
        redundant=int(fields.get("redundant", 0)),
        fingerprint=fields.get("fingerprint", b"").decode(),
        dtype=fields.get("dtype", b"").decode(),
    )


def read_rewards(text: bytes, n: int) -> tuple[float, ...] | None:
    """The rewards field of a stream entry: a JSON array of n finite numbers, or null. Errors: InvalidGroup."""
    try:
        rewards: Any = json.loads(text)
    except ValueError:
        rewards = text
    if rewards is None:
        return None
    numbers = cast(list[Any], rewards) if isinstance(rewards, list) else []
    if len(numbers) != n or not all(isinstance(it, int | float) and math.isfinite(it) for it in numbers):
        raise InvalidGroup(f"a completed group of {n} samples has the rewards {text[:200]!r}")
    return tuple(float(number) for number in numbers)


async def find_lost(broker: Broker, ids: Iterable[str]) -> dict[str, LostGroup]:
    """Those of these groups that are over without having been taken, with the reason where a dead letter says it."""
    wanted = list(ids)
    if not wanted:
        return {}
    done = await broker.calls.read([["ZSCORE", broker.keys.named("done"), group_id] for group_id in wanted])
    over = {group_id for group_id, score in zip(wanted, done, strict=True) if score is not None}
    if not over:
        return {}
    reasons = {letter.id: letter.reason for letter in await read_dead(broker, _DEAD_PAGE)}
    return {group_id: LostGroup(group_id, reasons.get(group_id, _NO_LETTER)) for group_id in over}


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A group that was given up. `entry` is its id in `dead`; `text` is only the first KiB where `id` is empty."""

    entry: str
    id: str
    reason: str
    attempts: int
    text: bytes
    at_ms: int

    def to_json(self) -> dict[str, Any]:
        text = self.text.decode(errors="replace")
        return {
            "entry": self.entry,
            "id": self.id,
            "reason": self.reason,
            "attempts": self.attempts,
            "at_ms": self.at_ms,
            "text": text,
        }


async def read_dead(broker: Broker, most: int, before: str = "+") -> list[DeadLetter]:
    """The newest dead letters, newest first. `before`: an entry id to page on from."""
    command = ["XREVRANGE", broker.keys.named("dead"), before, "-", "COUNT", most]
    (answer,) = await broker.calls.read([command])
    if isinstance(answer, Exception):
        raise ValueError(f"{before} is no entry of dead letters: they look like 1700000000000-0")
    return [_letter(entry.decode(), as_dict(fields)) for entry, fields in answer]


def _letter(entry: str, fields: dict[bytes, bytes]) -> DeadLetter:
    group_id, reason = fields[b"id"].decode(errors="replace"), fields[b"reason"].decode(errors="replace")
    return DeadLetter(entry, group_id, reason, int(fields[b"attempts"]), fields[b"text"], int(fields[b"at"]))
