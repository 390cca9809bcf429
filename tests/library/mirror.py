"""Reads everything that a run has in Redis as the specification's state, so that the two can be compared whole.

What the server names by chance (a born, an id of the stream) has a canonical name in the specification. `Names` learns
which is which from the first state in which a new one appears.
"""

import json
from dataclasses import dataclass, field
from typing import Any

from rolloutfleet.broker import Claim
from tests.fakes.broker import Fleet
from tests.model.claims import Claimed, Grant
from tests.model.state import ORPHAN, Broker, Entry, EntryName, Group, Letter, Map, Prompt, Turn

LONG_AGO = 1000  # a lease that ends before this ms of the run's clock was made to expire by the test


@dataclass(frozen=True, slots=True)
class Raw:
    """What lies in Redis, under the server's own names."""

    prompts: list[bytes]
    again: list[bytes]
    due: tuple[bytes, ...]
    """Of `again`, those that may be claimed at once, in their order."""
    groups: dict[str, dict[str, bytes]]
    leases: dict[str, float]
    grants: dict[str, str]
    outstanding: int
    samples: dict[tuple[str, str], dict[int, str]]
    partials: dict[tuple[str, str], dict[int, str]]
    completed: list[tuple[str, dict[str, bytes]]]
    pending: dict[str, str]
    delivered: str
    done: list[bytes]
    dead: list[tuple[str, dict[str, bytes]]]
    capacity: dict[str, bytes]
    draining: list[bytes]
    barred: list[bytes]
    hints: int
    books: tuple[int, int]
    """Updates and trained groups since the books were opened."""
    policy: dict[str, bytes]
    turns: dict[str, float]


async def read(fleet: Fleet) -> Raw:
    keys = sorted(await fleet.names())
    groups = [name.removeprefix("group:") for name in keys if name.startswith("group:")]
    samples = [name.removeprefix("samples:").rsplit(":", 1) for name in keys if name.startswith("samples:")]
    partials = [name.removeprefix("partial:").rsplit(":", 1) for name in keys if name.startswith("partial:")]
    stream = fleet.key("completed")
    has_stream = "completed" in keys
    pipe = fleet.client.pipeline(transaction=False)
    pipe.lrange(fleet.key("prompts"), 0, -1)
    pipe.zrange(fleet.key("leases"), 0, -1, withscores=True)
    pipe.zrange(fleet.key("again"), 0, -1, withscores=True)
    for name in ("done", "draining", "barred"):
        pipe.zrange(fleet.key(name), 0, -1)
    pipe.get(fleet.key("outstanding"))
    pipe.llen(fleet.key("wake"))
    pipe.hmget(fleet.key("state"), ["updates", "updates_from", "trained", "trained_from"])
    pipe.zrange(fleet.key("updating"), 0, -1, withscores=True)
    for name in ("policy", "grants", "capacity"):
        pipe.hgetall(fleet.key(name))
    pipe.xrange(stream)
    pipe.xrange(fleet.key("dead"))
    for group_id in groups:
        pipe.hgetall(fleet.broker.keys.group(group_id))
    for group_id, born in samples:
        pipe.hgetall(fleet.broker.keys.samples(group_id, born))
    for group_id, born in partials:
        pipe.hgetall(fleet.broker.keys.partial(group_id, born))
    found = await pipe.execute()
    prompts, leases, again, done, draining, barred, outstanding, hints, books = found[:9]
    turns, policy, grants, capacity, completed, dead, *hashes = found[9:]
    delivered, pending = await read_consumers(fleet) if has_stream else ("0-0", dict[str, str]())
    return Raw(
        prompts=prompts,
        again=[member for member, _ in again],
        due=tuple(member for member, score in again if score == 0),
        groups={group_id: text_keys(found) for group_id, found in zip(groups, hashes, strict=False)},
        leases={member.decode(): score for member, score in leases},
        grants={token.decode(): group_id.decode() for token, group_id in grants.items()},
        outstanding=int(outstanding or 0),
        samples=by_incarnation(samples, hashes[len(groups) : len(groups) + len(samples)]),
        partials=by_incarnation(partials, hashes[len(groups) + len(samples) :]),
        completed=[(entry.decode(), text_keys(fields)) for entry, fields in completed],
        pending=pending,
        delivered=delivered,
        done=done,
        dead=[(entry.decode(), text_keys(fields)) for entry, fields in dead],
        capacity={name: slots for name, slots in text_keys(capacity).items() if not name.endswith(":facts")},
        draining=draining,
        barred=barred,
        hints=hints,
        books=(int(books[0] or 0) - int(books[1] or 0), int(books[2] or 0) - int(books[3] or 0)),
        policy=text_keys(policy),
        turns={member.decode(): score for member, score in turns},
    )


def by_incarnation(names: list[list[str]], hashes: list[dict[bytes, bytes]]) -> dict[tuple[str, str], dict[int, str]]:
    return {
        (group_id, born): {int(index): value.decode() for index, value in found.items() if index != b"prompt"}
        for (group_id, born), found in zip(names, hashes, strict=True)
    }


async def read_consumers(fleet: Fleet) -> tuple[str, dict[str, str]]:
    """The id of the last entry that was delivered, and who holds which entry."""
    stream = fleet.key("completed")
    groups: list[dict[str, Any]] = await fleet.client.xinfo_groups(stream)
    if not groups:
        return "0-0", {}
    pending: list[dict[str, Any]] = await fleet.client.xpending_range(stream, "trainer", "-", "+", 1000)
    held = {one["message_id"].decode(): one["consumer"].decode() for one in pending}
    return groups[0]["last-delivered-id"].decode(), held


def text_keys(fields: dict[bytes, bytes]) -> dict[str, bytes]:
    return {name.decode(): value for name, value in fields.items()}


def in_order(entry: str) -> tuple[int, int]:
    ms, _, number = entry.partition("-")
    return int(ms), int(number)


@dataclass(slots=True)
class Names:
    """The server's name -> the specification's."""

    borns: dict[str, str] = field(default_factory=dict[str, str])
    pairs: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    ids: dict[str, str] = field(default_factory=dict[str, str])
    entries: dict[str, EntryName] = field(default_factory=dict[str, EntryName])
    letters: dict[str, Letter] = field(default_factory=dict[str, Letter])

    def learn(self, raw: Raw, model: Broker) -> None:
        """Names that appear for the first time belong together where everything else about them agrees."""
        for id, group in model.groups:
            found = raw.groups.get(self.server_id(id))
            if found is not None:
                self.pair(id, found["born"].decode(), group.born)
        for entry, fields in raw.completed:
            if entry not in self.entries:
                name = (self.id(fields["id"].decode()), self.borns.get(fields["born"].decode(), "?"), model.stream)
                self.entries[entry] = name
        for entry, fields in raw.dead:
            if entry not in self.letters:
                self.letters[entry] = self.new_letter(fields, model)

    def new_letter(self, fields: dict[str, bytes], model: Broker) -> Letter:
        id = self.id(fields["id"].decode())
        known = set(self.letters.values())
        new = sorted(letter for letter in model.dead if letter.id == id and letter not in known)
        assert new, f"a dead letter of {id!r} that the specification doesn't know"
        if id == "":
            return new[0]  # a bad entry, whose reason the specification doesn't go into
        return Letter(id, new[0].born, int(fields["n"]), fields["reason"].decode(), int(fields["attempts"]))

    def pair(self, id: str, theirs: str, ours: str) -> None:
        if theirs not in self.borns:
            assert (id, ours) not in self.pairs, f"{id} was born anew, and the specification says that it lives on"
            self.borns[theirs] = ours
            self.pairs.add((id, ours))

    def id(self, server_id: str) -> str:
        return self.ids.get(server_id, server_id)

    def server_id(self, id: str) -> str:
        return next((theirs for theirs, ours in self.ids.items() if ours == id), id)

    def entry(self, name: EntryName) -> str:
        """The stream's id of an entry."""
        return next(entry for entry, known in reversed(self.entries.items()) if known == name)

    def letter(self, letter: Letter) -> str:
        return next(entry for entry, known in reversed(self.letters.items()) if known == letter)

    def claimed(self, claim: Claim, model: Claimed) -> Claimed:
        """The answer to a claim in the specification's names; a raw entry without id was named by it."""
        for theirs, ours in zip(claim.grants, model.grants, strict=False):
            if ours.id.startswith("unnamed-"):
                self.ids.setdefault(theirs.id, ours.id)
            self.pair(ours.id, theirs.born, ours.born)
        grants = tuple(
            Grant(
                it.token,
                self.id(it.id),
                self.borns[it.born],
                it.n,
                it.attempt,
                tuple(sorted(it.stored)),
                tuple(sorted(it.begun)),
                it.deaths,
            )
            for it in claim.grants
            if it.born in self.borns
        )
        return Claimed(claim.reason, grants)


def translate(raw: Raw, names: Names, model: Broker) -> Broker:
    """The state in the specification's names. What Redis doesn't keep is taken from `model`."""
    return model._replace(
        prompts=tuple(prompt(entry, names) for entry in raw.prompts),
        again=frozenset(names.id(member.decode()) for member in raw.again),
        groups=sorted_map({names.id(id): group(fields, names) for id, fields in raw.groups.items()}),
        leases=sorted_map({names.id(id): "live" if end > LONG_AGO else "expired" for id, end in raw.leases.items()}),
        grants=sorted_map({token: names.id(id) for token, id in raw.grants.items()}),
        outstanding=raw.outstanding,
        samples=named(raw.samples, names),
        partials=named(raw.partials, names),
        completed=tuple(entry(name, fields, raw, names) for name, fields in raw.completed),
        done=frozenset(names.id(member.decode()) for member in raw.done),
        dead=frozenset(names.letters[name] for name, _ in raw.dead),
        capacity=sorted_map({name: int(slots) for name, slots in raw.capacity.items()}),
        draining=frozenset(member.decode() for member in raw.draining),
        barred=frozenset(member.decode() for member in raw.barred),
        # Where staleness has no bound nobody reads the books.
        updates=raw.books[0] if is_paced(model) else model.updates,
        trained=raw.books[1] if is_paced(model) else model.trained,
        version=int(raw.policy.get("version", 0)),
        at_once=int(raw.policy.get("at_once", 0)),
        loaded=int(raw.policy.get("loaded", 0)),
        recent=tuple(publication(call) for call in raw.policy.get("recent", b"").decode().split()),
        turns=sorted_map({turn(member): "live" if end > LONG_AGO else "expired" for member, end in raw.turns.items()}),
    )


def publication(call: str) -> tuple[int, str]:
    version, _, token = call.partition("=")
    return int(version), token


def turn(member: str) -> Turn:
    worker, version, engine = member.split(" ", 2)
    return Turn(worker, int(version), engine)


def named(found: dict[tuple[str, str], dict[int, str]], names: Names) -> Map[Any, Any]:
    return sorted_map(
        {(names.id(id), names.borns.get(born, "?")): sorted_map(values) for (id, born), values in found.items()}
    )


def is_paced(model: Broker) -> bool:
    return model.config is not None and model.config.max_staleness is not None


def sorted_map(values: dict[Any, Any]) -> Map[Any, Any]:
    return Map(sorted(values.items()))


def prompt(text: bytes, names: Names) -> Prompt:
    if text.startswith(b"@"):
        return Prompt(names.id(text[1:].decode()))
    value = json.loads(text)
    return Prompt(value.get("id", ""), value["n"])


def group(fields: dict[str, bytes], names: Names) -> Group:
    """`left` and `new` mean something only under a lease."""
    token = fields["token"].decode() if "token" in fields else None
    return Group(
        n=int(fields["n"]),
        born=names.borns.get(fields["born"].decode(), "?"),
        token=token,
        left=max(1, int(fields["left"])) if token else 0,
        attempts=int(fields["attempts"]),
        recycled=int(fields["recycled"]),
        deaths=int(fields.get("deaths", 0)),
        entry=names.entries.get(fields["entry"].decode()) if "entry" in fields else None,
        new=bool(token) and fields["new"] == b"1",
        by=fields["by"].decode() if "by" in fields else None,
    )


def entry(name: str, fields: dict[str, bytes], raw: Raw, names: Names) -> Entry:
    who = raw.pending.get(name)
    if who is None and in_order(name) <= in_order(raw.delivered):
        who = ORPHAN
    return Entry(*names.entries[name], rewards=tuple(json.loads(fields["rewards"])), who=who)
