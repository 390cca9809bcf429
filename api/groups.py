"""Pages of groups and of dead letters, read when somebody asks.

Invariants: a page is a range of at most MOST entries, with one more round trip for the records of its groups; the
position after it is an offset (prompts, again, active) or an entry's id (waiting, taken).
"""

import json
from collections.abc import Sequence
from typing import Any, cast

from api.group_models import DeadLetterRow, DeadPage, GroupRow, GroupsPage, GroupState
from api.look import holder_of
from api.text import shown
from rolloutfleet.answers import as_dict, as_scores, run_ms, text_or_none, trainer_group
from rolloutfleet.broker import Broker
from rolloutfleet.reading import read_dead

MOST = 200
_LETTER_BYTES = 1024
_FIELDS = ("n", "left", "attempts", "submitted", "claimed", "token", "reason")


class WrongPosition(ValueError):
    """`after` is no position in this list."""


async def read_groups(broker: Broker, state: GroupState, after: str | None, most: int) -> GroupsPage:
    """A page of the groups in one state. Errors: WrongPosition, BrokerUnavailable."""
    if state in ("waiting", "taken"):
        return await _stream_page(broker, state, after, most)
    return await _line_page(broker, state, after, most)


async def read_letters(broker: Broker, after: str | None, most: int) -> DeadPage:
    """A page of dead letters, newest first. Errors: BrokerUnavailable, ValueError for a wrong `after`."""
    letters = await read_dead(broker, most + 1, f"({after}" if after else "+")
    (total,) = await broker.calls.read([["XLEN", broker.keys.named("dead")]])
    rows = [
        DeadLetterRow(
            entry=letter.entry,
            id=letter.id,
            reason=letter.reason,
            attempts=letter.attempts,
            at_ms=letter.at_ms,
            text=letter.text[:_LETTER_BYTES].decode(errors="replace"),
        )
        for letter in letters[:most]
    ]
    more = len(letters) > most
    return DeadPage(run=broker.keys.run, total=total, letters=rows, next=rows[-1].entry if more else None)


async def _line_page(broker: Broker, state: GroupState, after: str | None, most: int) -> GroupsPage:
    start, key = _offset(after), broker.keys.named
    stop = start + most - 1
    pages: dict[str, list[list[Any]]] = {
        "queued": [["LRANGE", key("prompts"), start, stop], ["LLEN", key("prompts")]],
        "again": [["ZRANGE", key("again"), start, stop, "WITHSCORES"], ["ZCARD", key("again")]],
        "active": [["ZRANGE", key("leases"), start, stop, "WITHSCORES"], ["ZCARD", key("leases")]],
    }
    clock: list[list[Any]] = [["HGET", key("state"), "shift"], ["TIME"]]
    found, total, shift, time = await broker.calls.read([*pages[state], *clock])
    now = run_ms(time, shift)
    if state == "queued":
        rows = await _queued(broker, found)
    else:
        scores = as_scores(found)
        rows = [
            row.model_copy(update={"due_seconds": max(0.0, (scores[row.id or ""] - now) / 1000)})
            for row in await _records(broker, state, list(scores))
        ]
    following = start + len(found if state == "queued" else rows)
    return GroupsPage(
        run=broker.keys.run, state=state, total=total, groups=rows, next=str(following) if following < total else None
    )


async def _stream_page(broker: Broker, state: GroupState, after: str | None, most: int) -> GroupsPage:
    key = broker.keys.named("completed")
    groups, entries = await broker.calls.read([["XINFO", "GROUPS", key], ["XLEN", key]])
    taken, delivered = trainer_group(groups)
    if state == "taken":
        rows, total = await _taken(broker, after, most + 1), taken
    else:
        rows, total = await _waiting(broker, _entry(after) if after else delivered, most + 1), max(0, entries - taken)
    more = len(rows) > most
    return GroupsPage(
        run=broker.keys.run, state=state, total=total, groups=rows[:most], next=rows[most - 1].entry if more else None
    )


async def _waiting(broker: Broker, after: str, most: int) -> list[GroupRow]:
    (found,) = await broker.calls.read([["XRANGE", broker.keys.named("completed"), f"({after}", "+", "COUNT", most]])
    return [_completed_row("waiting", entry.decode(), as_dict(fields), None) for entry, fields in found]


async def _taken(broker: Broker, after: str | None, most: int) -> list[GroupRow]:
    key = broker.keys.named("completed")
    start = f"({_entry(after)}" if after else "-"
    (pending,) = await broker.calls.read([["XPENDING", key, "trainer", start, "+", most]])
    if isinstance(pending, Exception) or not pending:
        return []
    holders = {entry.decode(): consumer.decode(errors="replace") for entry, consumer, *_ in pending}
    found = await broker.calls.read([["XRANGE", key, entry, entry] for entry in holders])
    rows: list[GroupRow] = []
    for (entry, holder), some in zip(holders.items(), found, strict=True):
        fields = as_dict(some[0][1]) if some else {}  # deleted while it was pending
        rows.append(_completed_row("taken", entry, fields, holder))
    return rows


def _completed_row(state: GroupState, entry: str, fields: dict[bytes, bytes], holder: str | None) -> GroupRow:
    n = _int(fields.get(b"n"))
    return GroupRow(
        id=text_or_none(fields.get(b"id")),
        state=state,
        n=n,
        finished=n,
        attempts=_int(fields.get(b"attempts")),
        holder=holder,
        submitted_ms=_int(fields.get(b"submitted")),
        claimed_ms=_int(fields.get(b"claimed")),
        due_seconds=None,
        reason=None,
        entry=entry,
    )


async def _queued(broker: Broker, entries: Sequence[bytes]) -> list[GroupRow]:
    stored = [entry[1:].decode(errors="replace") for entry in entries if entry.startswith(b"@")]
    known = iter(await _records(broker, "queued", stored))
    return [next(known) if entry.startswith(b"@") else _raw(entry) for entry in entries]


def _raw(entry: bytes) -> GroupRow:
    """An entry that a producer pushed itself: nothing is known of it but what it says."""
    try:
        value: Any = json.loads(entry)
    except (ValueError, RecursionError):
        value = None
    fields = cast(dict[str, Any], value) if isinstance(value, dict) else {}
    group_id, n = fields.get("id"), fields.get("n")
    row = _row("queued", shown(group_id) if isinstance(group_id, str) else None, [None] * len(_FIELDS))
    return row.model_copy(update={"n": n if type(n) is int else None})


async def _records(broker: Broker, state: GroupState, ids: Sequence[str]) -> list[GroupRow]:
    if not ids:
        return []
    found = await broker.calls.read([["HMGET", broker.keys.group(group_id), *_FIELDS] for group_id in ids])
    return [_row(state, group_id, values) for group_id, values in zip(ids, found, strict=True)]


def _row(state: GroupState, group_id: str | None, values: Sequence[Any]) -> GroupRow:
    n, left, attempts, submitted, claimed, token, reason = values
    total, missing = _int(n), _int(left)
    return GroupRow(
        id=group_id,
        state=state,
        n=total,
        finished=None if total is None or missing is None else total - missing,
        attempts=_int(attempts),
        holder=holder_of(token) or None,
        submitted_ms=_int(submitted),
        claimed_ms=_int(claimed),
        due_seconds=None,
        reason=text_or_none(reason),
        entry=None,
    )


def _offset(after: str | None) -> int:
    if after is None:
        return 0
    if not (after.isascii() and after.isdigit()) or len(after) > 12:
        raise WrongPosition(f"after = {after!r} is no position here: take `next` of the page before")
    return int(after)


def _entry(after: str) -> str:
    parts = after.split("-")
    if len(parts) != 2 or not all(part.isascii() and part.isdigit() and len(part) < 19 for part in parts):
        raise WrongPosition(f"after = {after!r} is no entry: take `next` of the page before")
    return after


def _int(value: Any) -> int | None:
    return None if value is None else int(value)
