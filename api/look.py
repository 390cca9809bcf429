"""One look at a run for the status page: all of `status`, and the ages, consumers and versions around it.

Invariants: two round trips, the second only for what the first one named; every command is O(1), takes a range of fixed
length, or grows with the workers and consumers; never with the queues.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from rolloutfleet.answers import as_dict, as_fields, as_text, text_or_none, trainer_group
from rolloutfleet.broker import Broker
from rolloutfleet.calls import Arg
from rolloutfleet.messages import UNKNOWN_VERSION
from rolloutfleet.status import Status, status_commands, status_of
from rolloutfleet.stuck import Held

NEWEST = 200  # completed groups whose versions are kept
_MOST_CONSUMERS = 256
_MOST_LEASES = 256  # looked at for the oldest one, and only while a run seems stuck

type Command = Sequence[Arg]


@dataclass(frozen=True, slots=True)
class Consumer:
    """A trainer's consumer. `oldest_ms`: completion of the oldest group that it holds."""

    name: str
    taken: int
    idle_seconds: float
    oldest_ms: int | None


@dataclass(frozen=True, slots=True)
class Look:
    """What was seen. Times are server ms; None: there is none, or it is not known."""

    status: Status
    prompts_ms: int | None  # submission of the first in line
    again_ms: int | None
    waiting_ms: int | None  # completion of the first that nobody took
    dead_ms: int | None  # death of the oldest letter
    consumers: Sequence[Consumer]
    version: int | None
    version_label: str | None
    oldest_versions: Sequence[int]  # of the newest completed groups


@dataclass(slots=True)
class Memory:
    """What one look hands to the next, so that nothing is read twice."""

    newest: str = "-"  # last entry of `completed` whose versions were read
    versions: deque[int] = field(default_factory=lambda: deque[int](maxlen=NEWEST))
    epoch: str = ""


async def read_look(broker: Broker, memory: Memory) -> Look | None:
    """Looks at a run; None: there is none of this name. Errors: BrokerUnavailable; ValueError for a broken config."""
    commands = status_commands(broker.keys)
    answers = await broker.calls.read([*commands, *_first_commands(broker, memory)])
    status = status_of(broker.keys.run, answers[: len(commands)])
    if status is None:
        return None
    groups = answers[next(at for at, command in enumerate(commands) if command[0] == "XINFO")]
    first = answers[len(commands) :]
    again, dead, policy, consumers, head, entries = first
    _remember(memory, status, entries)
    named = _consumers(consumers)
    second = _second_commands(broker, _head_id(head), _only(again), trainer_group(groups)[1], named)
    found = await broker.calls.read(list(second.values())) if second else []
    by_name = dict(zip(second, found, strict=True))
    version, label = (text_or_none(value) for value in policy)
    return Look(
        status=status,
        prompts_ms=_number(by_name.get("prompts")),
        again_ms=_number(by_name.get("again")),
        waiting_ms=_first_entry_ms(by_name.get("waiting")),
        dead_ms=_first_entry_ms(dead),
        consumers=[_with_oldest(one, by_name.get(f"consumer {one.name}")) for one in named],
        version=int(version) if version and version.lstrip("-").isdigit() else None,
        version_label=label,
        oldest_versions=list(memory.versions),
    )


async def oldest_lease(broker: Broker, now_ms: int) -> Held | None:
    """The group that has been held for longest, among at most 256. Errors: BrokerUnavailable."""
    (ids,) = await broker.calls.read([["ZRANGE", broker.keys.named("leases"), 0, _MOST_LEASES - 1]])
    names = [group_id.decode(errors="replace") for group_id in ids]
    if not names:
        return None
    found = await broker.calls.read([["HMGET", broker.keys.group(name), "claimed", "token"] for name in names])
    known = [
        (int(claimed), name, holder_of(token)) for name, (claimed, token) in zip(names, found, strict=True) if claimed
    ]
    if not known:
        return None
    claimed, name, holder = min(known)
    return Held(name, holder or "nobody", max(0, now_ms - claimed) / 1000)


def holder_of(token: bytes | None) -> str:
    """The worker in a token `<worker>/<serial>/<i>`."""
    return token.decode(errors="replace").rsplit("/", 2)[0] if token else ""


def entry_ms(entry: str) -> int:
    """The server time in the id of a stream's entry."""
    return int(entry.split("-")[0])


def _first_commands(broker: Broker, memory: Memory) -> list[Command]:
    key = broker.keys.named
    since = "-" if memory.newest == "-" else f"({memory.newest}"
    return [
        ["ZRANGE", key("again"), 0, 0],
        ["XRANGE", key("dead"), "-", "+", "COUNT", 1],
        ["HMGET", key("policy"), "version", "label"],
        ["XINFO", "CONSUMERS", key("completed"), "trainer"],
        ["LINDEX", key("prompts"), 0],
        ["XREVRANGE", key("completed"), "+", since, "COUNT", NEWEST],
    ]


def _second_commands(
    broker: Broker, head: str | None, again: str | None, delivered: str, consumers: Sequence[Consumer]
) -> dict[str, Command]:
    completed = broker.keys.named("completed")
    commands: dict[str, Command] = {}
    if head is not None:
        commands["prompts"] = ["HGET", broker.keys.group(head), "submitted"]
    if again is not None:
        commands["again"] = ["HGET", broker.keys.group(again), "submitted"]
    commands["waiting"] = ["XRANGE", completed, f"({delivered}", "+", "COUNT", 1]
    for one in consumers:
        if one.taken:
            commands[f"consumer {one.name}"] = ["XPENDING", completed, "trainer", "-", "+", 1, one.name]
    return commands


def _remember(memory: Memory, status: Status, entries: Any) -> None:
    epoch = status.state.get("epoch", "")
    if memory.epoch != epoch:
        memory.epoch, memory.newest = epoch, "-"
        memory.versions.clear()
    for entry, fields in reversed(_list(entries)):
        memory.newest = entry.decode()
        memory.versions.append(_oldest_version(as_fields(fields)))


def _oldest_version(fields: Mapping[str, bytes]) -> int:
    text = fields.get("versions", b"").decode(errors="replace").strip("[] ").split(",")[0].strip()
    return int(text) if text.lstrip("-").isdigit() else UNKNOWN_VERSION


def _consumers(answer: Any) -> list[Consumer]:
    found: list[Consumer] = []
    for one in _list(answer)[:_MOST_CONSUMERS]:
        fields = {as_text(name): value for name, value in as_dict(one).items()}
        name = as_text(fields["name"])
        found.append(Consumer(name, int(fields["pending"]), int(fields["idle"]) / 1000, None))
    return sorted(found, key=lambda consumer: consumer.name)


def _with_oldest(consumer: Consumer, pending: Any) -> Consumer:
    oldest = [entry_ms(as_text(row[0])) for row in _list(pending)]
    return Consumer(consumer.name, consumer.taken, consumer.idle_seconds, min(oldest, default=None))


def _head_id(head: bytes | None) -> str | None:
    """The id of a stored group at the head; a raw entry has no time yet."""
    return head[1:].decode(errors="replace") if head and head.startswith(b"@") else None


def _only(answer: Any) -> str | None:
    found = _list(answer)
    return as_text(found[0]) if found else None


def _first_entry_ms(answer: Any) -> int | None:
    found = _list(answer)
    return entry_ms(as_text(found[0][0])) if found else None


def _list(answer: Any) -> list[Any]:
    """The rows of an answer; none where it is an error (no stream, or no consumer group yet)."""
    return cast(list[Any], answer) if isinstance(answer, list) else []


def _number(value: Any) -> int | None:
    return int(value) if isinstance(value, bytes) and value.isdigit() else None
