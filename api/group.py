"""One group: where it is and what is known of its way. Read when somebody asks; a fixed number of commands."""

from collections.abc import Mapping
from typing import Any

from api.group_models import GroupEvent, GroupReply, Place
from api.look import entry_ms, holder_of
from rolloutfleet.answers import as_texts, run_ms
from rolloutfleet.broker import Broker

_TEXT_BYTES = 64 * 1024
_SLACK_MS = 1000  # a dead letter's entry and the note in `done` are of the same step
_LETTERS = 64

type Record = Mapping[str, str]


async def read_group(broker: Broker, group_id: str) -> GroupReply | None:
    """None: nothing of this id is known (a raw entry has no record until it is claimed). Errors: BrokerUnavailable."""
    key = broker.keys.named
    record, due, lease, done, shift, time = await broker.calls.read(
        [
            ["HGETALL", broker.keys.group(group_id)],
            ["ZSCORE", key("again"), group_id],
            ["ZSCORE", key("leases"), group_id],
            ["ZSCORE", key("done"), group_id],
            ["HGET", key("state"), "shift"],
            ["TIME"],
        ]
    )
    fields = as_texts(record)
    if not fields:
        return await _over(broker, group_id, int(float(done))) if done is not None else None
    now = run_ms(time, shift)
    stored, consumer = await _around(broker, group_id, fields)
    place, holder = _place(fields, due is not None, consumer)
    return GroupReply(
        run=broker.keys.run,
        id=group_id,
        place=place,
        sentence=_sentence(place, holder, len(stored), fields),
        born=fields.get("born"),
        n=_int(fields.get("n")),
        finished=stored,
        attempts=_int(fields.get("attempts")),
        recycled=_int(fields.get("recycled")),
        holder=holder,
        lease_seconds=_left(lease, now) if place == "active" else None,
        due_seconds=_left(due, now),
        reason=fields.get("reason"),
        entry=fields.get("entry"),
        history=_history(fields),
        text=_cut(fields.get("text")),
    )


async def _around(broker: Broker, group_id: str, fields: Record) -> tuple[list[int], str | None]:
    """(indices of the stored samples, consumer that holds the completed group)."""
    commands: list[list[Any]] = [["HKEYS", broker.keys.samples(group_id, fields.get("born", ""))]]
    entry = fields.get("entry")
    if entry:
        commands.append(["XPENDING", broker.keys.named("completed"), "trainer", entry, entry, 1])
    indices, *pending = await broker.calls.read(commands)
    consumer: str | None = None
    for rows in pending:
        if rows and not isinstance(rows, Exception):
            consumer = rows[0][1].decode(errors="replace")
    return sorted(int(index) for index in indices if index.isdigit()), consumer


def _place(fields: Record, is_again: bool, consumer: str | None) -> tuple[Place, str | None]:
    if "entry" in fields:
        return ("taken", consumer) if consumer is not None else ("waiting", None)
    if "token" in fields:
        return "active", holder_of(fields["token"].encode())
    return ("again" if is_again else "queued"), None


def _sentence(place: Place, holder: str | None, stored: int, fields: Record) -> str:
    finished = f"{stored} of {fields.get('n', '?')} samples finished"
    return {
        "queued": f"waits in line, {finished}",
        "again": f"waits for another attempt, {finished}",
        "active": f"held by {holder}, {finished}",
        "waiting": "completed, waits for a trainer",
        "taken": f"taken by {holder}, not yet acked",
    }[place]


def _history(fields: Record) -> list[GroupEvent]:
    """What the record says, in order of time."""
    events: list[GroupEvent] = []
    for line in fields.get("failed", "").splitlines():
        at_ms, _, reason = line.partition(" ")
        if at_ms.isdigit():
            events.append(GroupEvent(at_ms=int(at_ms), what="failed", detail=reason))
    if "submitted" in fields:
        events.append(GroupEvent(at_ms=int(fields["submitted"]), what="submitted", detail=""))
    if "claimed" in fields:
        by = holder_of((fields.get("token") or fields.get("by") or "").encode())
        events.append(GroupEvent(at_ms=int(fields["claimed"]), what="claimed", detail=by or fields.get("reason", "")))
    if "entry" in fields:
        events.append(GroupEvent(at_ms=entry_ms(fields["entry"]), what="completed", detail=""))
    return sorted(events, key=lambda event: event.at_ms)


async def _over(broker: Broker, group_id: str, at_ms: int) -> GroupReply:
    """A group that is acked, dropped or dead: only the time, and the letter if there is one."""
    letter = await _letter(broker, group_id, at_ms)
    reason = letter.get("reason") if letter else None
    text = f"given up: {reason}" if letter else "over: a trainer acked it, or the group filter dropped it"
    return GroupReply(
        run=broker.keys.run,
        id=group_id,
        place="dead" if letter else "over",
        sentence=text,
        born=None,
        n=_int(letter.get("n")) if letter else None,
        finished=[],
        attempts=_int(letter.get("attempts")) if letter else None,
        recycled=None,
        holder=None,
        lease_seconds=None,
        due_seconds=None,
        reason=reason,
        entry=letter["entry"] if letter else None,
        history=[GroupEvent(at_ms=at_ms, what="dead" if letter else "over", detail=reason or "")],
        text=_cut(letter.get("text")) if letter else None,
    )


async def _letter(broker: Broker, group_id: str, at_ms: int) -> dict[str, str] | None:
    span = [max(0, at_ms - _SLACK_MS), at_ms + _SLACK_MS]
    (found,) = await broker.calls.read([["XRANGE", broker.keys.named("dead"), *span, "COUNT", _LETTERS]])
    for entry, flat in found:
        fields = as_texts(flat)
        if fields.get("id") == group_id:
            return fields | {"entry": entry.decode()}
    return None


def _left(score: Any, now: int) -> float | None:
    return None if score is None else max(0.0, (float(score) - now) / 1000)


def _int(text: str | None) -> int | None:
    return int(text) if text and text.isdigit() else None


def _cut(text: str | None) -> str | None:
    return None if text is None else text[:_TEXT_BYTES]
