"""A run and what happens to it, in few words: tests submit, claim and finish groups of it without naming each argument.

Time passes by writing: `expire` puts leases into the past of the run's clock, `away` makes the server's clock look as
if nobody had called for a while. So no test waits, and fakeredis will do.
"""

import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self, cast

import fakeredis

from rolloutfleet import lua
from rolloutfleet.broker import Beat, Broker, Claim, Completed, Entry, Finished, Put, Submitted, Turn, UpdateWord
from rolloutfleet.messages import Grant, PromptGroup, Row, Sample
from rolloutfleet.policy import Publication
from rolloutfleet.redis import Client
from rolloutfleet.settings import RunConfig

WORKER = "pod/1000"
CONSUMER = "rank-0"
DAY_MS = 86_400_000

serials = itertools.count(1)


def group(group_id: str, n: int | None = None) -> PromptGroup:
    return PromptGroup(id=group_id, prompt=f"question {group_id}", n=n)


def sample(index: int, tokens: int = 3, version: int = 0) -> Sample:
    return Sample(index, "stop", (Row.make(range(tokens), [-0.5] * tokens, version),), text="answer")


def named(fields: dict[bytes, bytes]) -> dict[str, bytes]:
    return {name.decode(): value for name, value in fields.items()}


def fake_client() -> Client:
    return fakeredis.FakeAsyncRedis(protocol=2)


@dataclass(slots=True)
class Fleet:
    """One run on some server. Workers and consumers are names; claims are numbered over all of them."""

    broker: Broker
    bases: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))

    @classmethod
    async def make(cls, client: Client, run: str, retry_seconds: float = 2.0, **settings: Any) -> Self:
        """A run with S = 4 and n = 2, W = 2, unless the settings say otherwise."""
        fleet = cls(Broker(client, run, retry_seconds))
        await fleet.broker.configure(RunConfig.model_validate({"sample_concurrency": 4, "n": 2, **settings}))
        return fleet

    @property
    def client(self) -> Client:
        return self.broker.client

    def key(self, name: str) -> str:
        return self.broker.keys.named(name)

    async def do(self, *command: Any) -> Any:
        """One plain command, as somebody with redis-cli would send it."""
        return cast(Any, await self.client.execute_command(*command))  # pyright: ignore[reportUnknownVariableType]

    async def configure(self, **changes: Any) -> None:
        await self.broker.configure(RunConfig.model_validate(changes))

    # Prompt groups

    async def submit(self, *ids: str, n: int | None = None) -> list[Submitted]:
        return await self.broker.submit([group(group_id, n) for group_id in ids])

    async def push(self, *entries: str | bytes | dict[str, Any]) -> None:
        """What a producer does that knows nothing of this library."""
        texts = [json.dumps(entry) if isinstance(entry, dict) else entry for entry in entries]
        await self.do("RPUSH", self.key("prompts"), *texts)

    # Workers

    async def claim(self, k: int = 1, worker: str = WORKER, served: int | None = None) -> Claim:
        return await self.broker.claim(worker, f"{worker}/{next(self.bases)}", k, served)

    async def hold(self, k: int = 1, worker: str = WORKER) -> tuple[Grant, ...]:
        """Claims k groups, and it is a fault if fewer are granted."""
        claim = await self.claim(k, worker)
        assert len(claim.grants) == k, claim
        return claim.grants

    async def beat(self, *tokens: str, worker: str = WORKER, slots: int = 0, settled: int = 0) -> tuple[str, list[str]]:
        return await self.broker.heartbeat(Beat(worker, tokens, slots, {}, settled=settled))

    async def put(self, grant: Grant, *indices: int, data: bytes = b"") -> list[Put]:
        finished = [
            Finished(grant.id, grant.born, index, data or sample(index).encode(), b"\x01\0\0\0") for index in indices
        ]
        return await self.broker.put(finished)

    async def complete(
        self, grant: Grant, rewards: Sequence[float] | None = None, versions: str = "[0,0]", lengths: str = "[3,3]"
    ) -> Completed:
        numbers = [1.0] * grant.n if rewards is None else list(rewards)
        fields = {"rewards": json.dumps(numbers), "group_reward": "null", "versions": versions, "lengths": lengths}
        return await self.broker.complete(grant, {**fields, "worker": WORKER})

    async def finish(self, *grants: Grant, versions: str = "[0,0]", lengths: str = "[3,3]") -> None:
        """Stores what is missing, and completes."""
        for grant in grants:
            await self.put(grant, *grant.missing)
            assert await self.complete(grant, versions=versions, lengths=lengths) == "ok"

    async def run_through(self, *ids: str, worker: str = WORKER) -> list[Grant]:
        """Submits and completes groups, one after the other."""
        done: list[Grant] = []
        for group_id in ids:
            await self.submit(group_id)
            done += await self.hold(worker=worker)
            await self.finish(done[-1])
        return done

    # Weights

    async def publish(self, path: str = "/weights", *, token: str = "", **fields: Any) -> int:
        return await self.broker.publish(token or f"token-{next(self.bases)}", Publication(path, **fields))

    async def turn(self, word: UpdateWord, version: int, worker: str = WORKER, **more: Any) -> Turn:
        """`engine` is the worker's own unless it is named."""
        return await self.broker.update(word, worker, version, more.pop("engine", f"engine of {worker}"), **more)

    # Trainers

    async def take(self, most: int = 100, consumer: str = CONSUMER, position: str = ">") -> list[Entry]:
        return (await self.broker.take(consumer, most, position))[1]

    async def take_and_ack(self) -> list[str]:
        """Takes all that is completed, and acks it: the ids."""
        entries = await self.take()
        await self.broker.ack([entry.entry for entry in entries])
        return [entry.id for entry in entries]

    async def pace_left(self) -> int:
        """Groups that may be claimed before the next update, as the script sees it."""
        parts = "\n".join(lua.source(f"parts/{part}.lua") for part in ("keys", "wake", "completed", "pace"))
        keys = self.broker.keys.all()
        return await self.do("EVAL", f"{parts}\nreturn pace_left()", len(keys), *keys)

    # Time

    async def expire(self, *grants: Grant) -> None:
        """The leases of these run out now."""
        for grant in grants:
            await self.do("ZADD", self.key("leases"), "XX", 1, grant.id)

    async def fall_due(self) -> None:
        """The delays of `again` are over."""
        for group_id in await self.do("ZRANGE", self.key("again"), 0, -1):
            await self.do("ZADD", self.key("again"), 0, group_id)

    async def away(self, ms: int) -> None:
        """The server's clock went on by so much, and nobody called; back, if negative."""
        for name in ("seen_at", "shift"):
            await self.do("HINCRBY", self.key("state"), name, -ms)

    async def pass_time(self, ms: int) -> None:
        """The run's clock goes on by so much, as with callers who are there all the time."""
        await self.do("HINCRBY", self.key("state"), "shift", -ms)

    async def run_ms(self) -> int:
        """The run's clock, as the last step that read it left it."""
        seen, shift = await self.do("HMGET", self.key("state"), "seen_at", "shift")
        return int(seen) - int(shift or 0)

    # What lies in Redis

    async def deadline(self, grant: Grant) -> int:
        """When the lease ends, in ms of the run's clock."""
        return int(float(await self.do("ZSCORE", self.key("leases"), grant.id)))

    async def active(self) -> int:
        return await self.do("ZCARD", self.key("leases"))

    async def outstanding(self) -> int:
        return int(await self.do("GET", self.key("outstanding")) or 0)

    async def group(self, group_id: str) -> dict[str, bytes]:
        """The fields of a group, none if it is over."""
        return await self.hash(self.broker.keys.group(group_id))

    async def hash(self, key: str) -> dict[str, bytes]:
        return named(await self.do("HGETALL", key))

    async def stat(self, name: str) -> int:
        return int(await self.do("HGET", self.key("stats"), name) or 0)

    async def letters(self) -> list[dict[str, bytes]]:
        """The dead letters, each with its entry id under `entry`."""
        found = await self.do("XRANGE", self.key("dead"), "-", "+")
        return [{"entry": entry, **named(fields)} for entry, fields in found]

    async def completed(self) -> int:
        """Entries in the stream, taken or not."""
        return await self.do("XLEN", self.key("completed"))

    async def pending(self) -> dict[bytes, int]:
        """Entries that consumers hold, each with the ms since it was last touched."""
        found: list[Any] = await self.client.xpending_range(self.key("completed"), "trainer", "-", "+", 100)
        return {one["message_id"]: one["time_since_delivered"] for one in found}

    async def waits(self, name: str) -> list[bytes]:
        """Ids in `again`, entries of `prompts`, in order."""
        return await self.do("ZRANGE" if name == "again" else "LRANGE", self.key(name), 0, -1)

    async def names(self) -> set[str]:
        """The keys of the run, without their prefix."""
        prefix = self.broker.keys.prefix
        found = await self.do("KEYS", prefix + "*")
        return {key.decode().removeprefix(prefix) for key in found}

    async def delete(self) -> None:
        """An operator deletes the run."""
        await self.do("DEL", *[self.broker.keys.prefix + name for name in await self.names()])

    # Wake

    async def sleep(self) -> None:
        """A waiting worker popped the hint."""
        await self.do("DEL", self.key("wake"))

    async def is_woken(self) -> bool:
        tokens = await self.do("LLEN", self.key("wake"))
        assert tokens <= 1, "more than one hint"
        return tokens == 1

    async def finish_all(self) -> None:
        """What is held is lost; everything in line is generated, completed, taken and acked; nothing is left of it."""
        for group_id in await self.do("ZRANGE", self.key("leases"), 0, -1):
            await self.do("ZADD", self.key("leases"), 1, group_id)
        while await self.broker.reap():
            pass
        await self.fall_due()
        while grants := (await self.claim(64)).grants:
            await self.finish(*grants)
            await self.ack_all()
        await self.ack_all()
        assert not [name for name in await self.names() if name.startswith(("group:", "samples:", "partial:"))]

    async def ack_all(self) -> None:
        """Everything in the stream is acked, whoever holds it."""
        entries = await self.do("XRANGE", self.key("completed"), "-", "+")
        await self.broker.ack([entry.decode() for entry, _ in entries])
