"""The broker: one typed method for each atomic step (scripts/*.lua), for workers, trainers and operators.

Invariants: a method may be repeated with the same arguments without harm; every answer is a word whose meaning stands
in the header of the script. Errors of all methods: BrokerUnavailable; where a run has no config, RunMissing.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import batched
from typing import Any, Literal

from rolloutfleet.answers import as_dict, as_fields, as_texts
from rolloutfleet.calls import Arg, Calls
from rolloutfleet.errors import RunMissing
from rolloutfleet.keys import Keys
from rolloutfleet.messages import Grant, PromptGroup
from rolloutfleet.policy import Policy, Publication
from rolloutfleet.redis import Client
from rolloutfleet.settings import RunConfig

SLICE = 500  # groups in one call of a script: several thousand arguments break Lua's unpack
SLICE_BYTES = 2**20  # of prompt groups in one call: a script blocks the server for as long as it copies its arguments

type Submitted = Literal["queued", "known", "done"]
type Put = Literal["stored", "had", "gone"]
type Kept = Literal["kept", "large", "lost"]
type Completed = Literal["ok", "missing", "lost", "gone"]
type Judged = Literal["ok", "stale", "recycled", "dropped", "dead", "ahead", "gone"]
type Released = Literal["ok", "dead", "lost"]
type Release = Literal["free", "fail", "reject", "died", "died_alone"]
type UpdateWord = Literal["begin", "loaded", "failed", "left"]
type Turn = Literal["go", "wait", "newer", "gone", "ok", "held", "no_run"]


@dataclass(frozen=True, slots=True)
class Claim:
    """What was granted, and a reason (window.Reason, or what claim.lua says). `due_seconds`: this worker is the one
    that should claim again then, since a group's delay is over; None: any."""

    reason: str
    grants: tuple[Grant, ...] = ()
    due_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Beat:
    """What a worker tells with a heartbeat. `facts` is shown in status; `busy_ms`, `slot_ms` are since the last one."""

    worker: str
    tokens: Sequence[str]
    slots: int
    facts: Mapping[str, Any]
    busy_ms: int = 0
    slot_ms: int = 0
    settled: int = 0  # all claims `<worker>/<serial>` with a smaller serial are over: sweep their unknown grants


@dataclass(frozen=True, slots=True)
class Finished:
    """A finished sample on its way into the broker. `prompt`: prompt ids as rendered, raw int32."""

    id: str
    born: str
    index: int
    data: bytes
    prompt: bytes | None = None


@dataclass(frozen=True, slots=True)
class Begun:
    """The first tokens of a sample that is not finished, in its wire form with the finish `abort`."""

    token: str
    index: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of `completed`: its id, and its fields as they lie in the stream."""

    entry: str
    fields: Mapping[str, bytes]

    @property
    def id(self) -> str:
        return self.fields["id"].decode()

    @property
    def born(self) -> str:
        return self.fields["born"].decode()


class Broker:
    """The steps of one run. `retry_seconds`: how long a call is repeated while Redis is away."""

    def __init__(self, client: Client, run: str, retry_seconds: float = 30) -> None:
        self.client = client
        self.keys = Keys(run)
        self.calls = Calls(client, self.keys, retry_seconds)

    # Runs

    async def configure(self, config: RunConfig, *, only_missing: bool = False) -> None:
        """Makes the run, or changes the fields that `config` was given; the others stay, or get their defaults.

        `only_missing`: fields that the run has stay as they are, whatever `config` was given.
        """
        known = await self.config_fields()
        changes = {} if only_missing else config.fields(only_set=True)
        RunConfig.from_fields(config.fields() | known | changes)  # the fields must fit those that stay
        # All of them first, since the steps do arithmetic with all: the key may be of an older version, or by hand.
        await self.calls.step("configure", "default", *_flat(config.fields()))
        if changes:
            await self.calls.step("configure", "set", *_flat(changes))

    async def config(self) -> RunConfig:
        """The run's config. Errors: RunMissing."""
        fields = await self.config_fields()
        if not fields:
            raise RunMissing(f"run {self.keys.run!r} has no config: make it with `rolloutfleet configure`")
        return RunConfig.from_fields(fields)

    async def config_fields(self) -> dict[str, str]:
        (flat,) = await self.calls.read([["HGETALL", self.keys.named("config")]])
        return {name.decode(): value.decode() for name, value in as_dict(flat).items()}

    async def pause(self) -> None:
        """Nothing is claimed any more; what is held goes on."""
        await self.calls.step("configure", "set", "paused", 1)

    async def resume(self) -> None:
        await self.calls.step("configure", "set", "paused", 0)

    # Prompt groups

    async def submit(self, groups: Sequence[PromptGroup]) -> list[Submitted]:
        """Stores groups and puts them in line; a word for each. Errors: RunMissing."""
        words: list[Submitted] = []
        for args in _slices(groups):
            answer = await self.calls.step("submit", *args)
            if answer == [b"no_run"]:
                raise RunMissing(f"run {self.keys.run!r} has no config: make it with `rolloutfleet configure`")
            words += [word.decode() for word in answer]
        return words

    async def queued(self) -> int:
        """Groups that wait to be claimed."""
        queued, again = await self.calls.read(
            [["LLEN", self.keys.named("prompts")], ["ZCARD", self.keys.named("again")]]
        )
        return queued + again

    # Workers

    async def claim(self, worker: str, base: str, k: int, served: int | None = None) -> Claim:
        """Leases up to k groups (see claim.lua). `base` is new for each claim, the same when a claim is repeated;
        `served` is the weight version of the worker's engine, None: somebody else updates it."""
        reason, *grants = await self.calls.step("claim", worker, base, k, "" if served is None else served)
        due_ms = grants.pop() if grants and isinstance(grants[-1], int) else None
        return Claim(reason.decode(), tuple(map(_grant, grants)), None if due_ms is None else due_ms / 1000)

    async def heartbeat(self, beat: Beat) -> tuple[str, list[str]]:
        """Extends what the worker holds: (ok | draining | gone | no_run, tokens that are lost)."""
        facts = json.dumps(dict(beat.facts), separators=(",", ":"))
        numbers = (beat.slots, facts, beat.busy_ms, beat.slot_ms)
        answer = await self.calls.step("heartbeat", beat.worker, beat.settled, *numbers, *beat.tokens)
        word, *lost = (part.decode() for part in answer)
        return word, list(beat.tokens) if word == "gone" else lost

    async def put(self, samples: Sequence[Finished]) -> list[Put]:
        """Stores finished samples, many in one round trip; a word for each. The step runs once for each group."""
        of_group: dict[tuple[str, str], list[Finished]] = {}
        for sample in samples:
            of_group.setdefault((sample.id, sample.born), []).append(sample)
        commands = [command for some in of_group.values() for command in await self._put_group(some)]
        answers = await self.calls.transaction(commands)
        if answers is None:
            return [await self._put_when_full(sample) for sample in samples]
        rest = iter(answers)
        words: dict[int, Put] = {}
        for some in of_group.values():
            words |= {id(sample): word for sample, word in _put_words(some, rest)}
        return [words[id(sample)] for sample in samples]

    async def _put_group(self, samples: Sequence[Finished]) -> list[list[Arg]]:
        """The commands that store samples of one incarnation: prompt ids, samples, and the step that counts them."""
        group_id, born = samples[0].id, samples[0].born
        key = self.keys.samples(group_id, born)
        prompts: list[list[Arg]] = [["HSETNX", key, "prompt", it.prompt] for it in samples if it.prompt is not None]
        stored: list[list[Arg]] = [["HSETNX", key, it.index, it.data] for it in samples]
        return [*prompts, *stored, await self.calls.command("put", group_id, born)]

    async def _put_when_full(self, sample: Finished) -> Put:
        answer = await self.calls.step("put", sample.id, sample.born, sample.index, sample.data)
        return answer.decode()

    async def keep(self, partials: Sequence[Begun]) -> list[Kept]:
        """Stores what unfinished samples have so far, in one round trip; a word for each, none if memory is full."""
        of_token: dict[str, list[Begun]] = {}
        for partial in partials:
            of_token.setdefault(partial.token, []).append(partial)
        slices = [list(some) for begun in of_token.values() for some in batched(begun, SLICE)]
        answers = await self.calls.transaction([await self._keep_command(some) for some in slices]) or []
        answered = zip(slices, answers, strict=False)
        words = {id(it): word.decode() for some, theirs in answered for it, word in zip(some, theirs, strict=True)}
        return [words[id(partial)] for partial in partials if words]

    async def _keep_command(self, partials: Sequence[Begun]) -> list[Arg]:
        fields = [part for partial in partials for part in (partial.index, partial.data)]
        return await self.calls.command("keep", partials[0].token, *fields)

    async def partials(self, group_id: str, born: str) -> dict[int, bytes]:
        """The first tokens of an incarnation's unfinished samples, by index."""
        (flat,) = await self.calls.read([["HGETALL", self.keys.partial(group_id, born)]])
        return {int(index): data for index, data in as_dict(flat).items()}

    async def samples(self, group_id: str, born: str) -> tuple[dict[int, bytes], bytes | None]:
        """The stored samples of an incarnation by index, and its prompt ids (raw int32) if they were kept."""
        (flat,) = await self.calls.read([["HGETALL", self.keys.samples(group_id, born)]])
        return split_samples(as_dict(flat))

    async def complete(self, grant: Grant, fields: Mapping[str, Arg]) -> Completed:
        """Hands a group with all its samples to the trainers. `fields`: rewards, lengths, versions, worker."""
        answer = await self.calls.step("complete", grant.token, grant.id, grant.born, *_flat(fields))
        return answer.decode()

    async def release(self, token: str, kind: Release, reason: str = "") -> Released:
        return (await self.calls.step("release", token, kind, reason)).decode()

    async def drop(self, token: str, reason: str) -> Literal["ok", "lost"]:
        return (await self.calls.step("drop", token, reason)).decode()

    async def cancel(self, token: str, oldest: int) -> Literal["ok", "fresh", "limit", "lost"]:
        """Gives a group back, newly born, if it is beyond max_staleness already: `oldest` made some of its tokens."""
        return (await self.calls.step("cancel", token, oldest)).decode()

    async def reap(self, most: int = 64) -> int:
        return await self.calls.step("reap", most)

    async def count(self, counter: str, by: int = 1) -> None:
        """Adds to a counter in `stats` that no step keeps (retries)."""
        await self.calls.read([["HINCRBY", self.keys.named("stats"), counter, by]])

    # Weights

    async def publish(self, token: str, weights: Publication) -> int:
        """The version that these weights got. `token` is new for each publication. Errors: RunMissing."""
        fields = (weights.label, weights.path, weights.mode, weights.at_once, weights.manifest)
        answer = await self.calls.step("publish", token, *fields)
        if answer == b"no_run":
            raise RunMissing(f"run {self.keys.run!r} has no config: make it with `rolloutfleet configure`")
        return int(answer)

    async def policy(self) -> Policy | None:
        """What was published last; None: nothing."""
        return Policy.from_fields(as_texts(*await self.calls.read([["HGETALL", self.keys.named("policy")]])))

    async def update(self, word: UpdateWord, worker: str, version: int, engine: str, *, serves: bool = True) -> Turn:
        """A worker's turn to load weights (see update.lua). `serves`: its engine serves older weights meanwhile."""
        return (await self.calls.step("update", word, worker, version, engine, int(serves))).decode()

    # Operators

    async def evict(self, worker: str, *, counts: bool, reason: str = "the worker is gone") -> int:
        """Frees all leases of a worker process that is gone for certain, and bars it; the number freed."""
        return await self.calls.step("evict", worker, int(counts), reason)

    async def evict_earlier(self, pod: str, worker: str) -> list[str]:
        """Evicts the earlier processes `<pod>/...` of a pod, all but `worker`; their names."""
        names, tokens = await self.calls.read(
            [["ZRANGE", self.keys.named("workers"), 0, -1], ["HKEYS", self.keys.named("grants")]]
        )
        holders = {token.decode().rsplit("/", 2)[0] for token in tokens} | {name.decode() for name in names}
        earlier = sorted(name for name in holders if name.rsplit("/", 1)[0] == pod and name != worker)
        for name in earlier:
            await self.evict(name, counts=True, reason="the worker process died")
        return earlier

    async def drain(self, workers: Sequence[str]) -> int:
        return await self.calls.step("drain", "drain", *workers)

    async def undrain(self, workers: Sequence[str]) -> int:
        return await self.calls.step("drain", "undrain", *workers)

    async def requeue_dead(self, letters: Sequence[str]) -> list[str]:
        """Gives dead letters (entry ids in `dead`) another life: ok | known | cut | gone for each."""
        words: list[str] = []
        for some in batched(letters, SLICE):
            words += [word.decode() for word in await self.calls.step("requeue_dead", *some)]
        return words

    # Trainers

    async def begin(self, consumer: str, session: str) -> None:
        """Opens the books of `pace`: a trainer's first call before it takes. `session` is new for each life of it."""
        await self.calls.step("begin", consumer, session)

    async def take(self, consumer: str, most: int, position: str = ">") -> tuple[str, list[Entry]]:
        """(id of the newest entry in the stream, entries). `position`: ">" new ones, else own pending ones after it."""
        last, *entries = await self.calls.step("take", consumer, most, position)
        return last.decode(), [Entry(entry.decode(), as_fields(flat)) for entry, flat in entries]

    async def take_over(self, consumer: str, idle_seconds: float, most: int) -> list[Entry]:
        """Entries of consumers that were not heard of for `idle_seconds`; they are pending at `consumer` now."""
        key, idle = self.keys.named("completed"), round(idle_seconds * 1000)
        found: list[Entry] = []
        position = "0-0"
        # One call looks at ten times `most` pending entries: those of living consumers may stand before the dead one's.
        while len(found) < most:
            command = ["XAUTOCLAIM", key, "trainer", consumer, idle, position, "COUNT", most - len(found)]
            (answer,) = await self.calls.read([command])
            if isinstance(answer, Exception):
                return found  # the stream is gone; the next take makes it
            found += [Entry(entry.decode(), as_fields(flat)) for entry, flat in answer[1] if flat]
            position = answer[0].decode()
            if position == "0-0":
                break
        return found

    async def touch(self, consumer: str, entries: Sequence[str]) -> list[str]:
        """Says that the consumer still works on these; the entries that are another's by now."""
        lost: list[str] = []
        for some in batched(entries, SLICE):
            lost += [entry.decode() for entry in await self.calls.step("touch", consumer, *some)]
        return lost

    async def adopt(self, consumer: str) -> int:
        """Takes over entries of deleted consumers, in slices; makes the consumer group where it is missing."""
        position, adopted = "-", 0
        while position:
            answer, some = await self.calls.step("adopt", consumer, position, SLICE)
            position, adopted = answer.decode(), adopted + some
        return adopted

    async def ack(self, entries: Sequence[str], begun: tuple[str, str] | None = None) -> list[Literal["ok", "gone"]]:
        """These were trained on. `begun`: consumer and session of `begin`; only its last one counts for `pace`."""
        first = [] if begun is None else ["@{}/{}".format(*begun)]
        words: list[Literal["ok", "gone"]] = []
        for some in batched(entries, SLICE):
            words += [word.decode() for word in await self.calls.step("ack", *first, *some)]
        return words

    async def judge(self, version: int, entries: Sequence[str]) -> list[Judged]:
        """How stale completed groups are for a trainer at `version`, and what became of those that are too stale."""
        words: list[Judged] = []
        for some in batched(entries, SLICE):
            words += [word.decode() for word in await self.calls.step("judge", version, *some)]
        return words

    async def recycle(self, entry: str, reason: str = "") -> Literal["ok", "limit", "dead", "gone"]:
        """Has a completed group generated again. At recycle_limit it becomes a dead letter if a reason is given."""
        return (await self.calls.step("recycle", entry, reason)).decode()


def _flat(fields: Mapping[str, Arg]) -> list[Arg]:
    return [part for pair in fields.items() for part in pair]


def split_samples(found: Mapping[bytes, bytes]) -> tuple[dict[int, bytes], bytes | None]:
    """A samples hash as (sample by index, prompt ids)."""
    return {int(name): data for name, data in found.items() if name != b"prompt"}, found.get(b"prompt")


def _slices(groups: Sequence[PromptGroup]) -> Iterator[list[Arg]]:
    """The arguments of `submit`, bounded in number and in bytes."""
    args: list[Arg] = []
    size = 0
    for group in groups:
        text = group.to_text()
        if args and (len(args) >= 3 * SLICE or size + len(text) > SLICE_BYTES):
            yield args
            args, size = [], 0
        args += [group.id, group.n or 0, text]
        size += len(text)
    if args:
        yield args


def _put_words(samples: Sequence[Finished], answers: Iterator[Any]) -> list[tuple[Finished, Put]]:
    """Reads what the commands of `_put_group` were answered."""
    for _ in (sample for sample in samples if sample.prompt is not None):
        next(answers)
    are_new = [next(answers) for _ in samples]
    if next(answers) == b"gone":
        return [(sample, "gone") for sample in samples]
    # Who was first only HSETNX knows: that the count changed may be the doing of a MULTI whose script was missing.
    return [(sample, "stored" if is_new else "had") for sample, is_new in zip(samples, are_new, strict=True)]


def _grant(flat: Sequence[Any]) -> Grant:
    token, group_id, born, n, attempt, text, indices, unfinished, deaths = flat
    stored = frozenset(int(index) for index in indices if index != b"prompt")
    begun = frozenset(map(int, unfinished))
    return Grant(
        token.decode(), group_id.decode(), born.decode(), int(n), int(attempt), text, stored, begun, int(deaths)
    )
