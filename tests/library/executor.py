"""Executes each step twice, on a server and on the specification, and compares answer and whole state.

Invariants of the design are checked on the specification's state, which is the server's, too, once they were compared.
What only the server can decide (which leases have run out, which ids are due) is read from it and handed on.
"""

import json
from collections.abc import Awaitable, Callable
from typing import Any

from rolloutfleet.broker import Begun, Claim, Entry, Finished
from rolloutfleet.messages import Grant
from rolloutfleet.repair import repair
from tests.fakes.broker import Fleet
from tests.library.mirror import Names, read, translate
from tests.model import steps
from tests.model.claims import Claimed, claim
from tests.model.invariants import Step, broken_by_step, broken_in
from tests.model.state import Broker, Config, EntryName, Letter, Samples, Turn, new_run

type Answer = Any
type Send = Callable[[], Awaitable[Answer]]

REAPED_BY_A_CLAIM = 8
MADE_BY = "[3, 3]"
"""Weight versions of every group here."""
FOREVER = 10**6
"""Seconds: no delay and no attempt of these runs ends by itself."""
NOT_A_STEP_OF_THE_LIBRARY = ("push", "trim_done", "flush")


class Executor:
    """One run on a server, and the specification of it."""

    def __init__(self, fleet: Fleet, config: Config) -> None:
        self.fleet = fleet
        self.model = new_run(config, "1")
        self.names = Names()
        self.entered: frozenset[EntryName] = frozenset()
        self.exempt: frozenset[str] = frozenset()
        self.due: tuple[str, ...] = ()
        self.forgot_scripts = False

    def may_claim(self) -> bool:
        """Whether a worker that asks now is granted something. What only time brings about is seen at the next poll."""
        return bool(claim(self.model, "probe/1", "probe/1/1", 1, self.due, expired=())[1].grants)

    async def step(self, name: str, send: Send, *arguments: Any) -> Answer:
        """The answer, in the specification's words."""
        before, could_claim = self.model, self.may_claim()
        has_no_hint = not could_claim or (name == "claim" and not self.is_repeated(*arguments))
        if has_no_hint:
            await self.fleet.sleep()  # whoever claims has popped it, and so has who found nothing
        theirs = await send()
        after, ours = steps.STEPS[name](before, *arguments)
        self.model = after
        theirs = self.learn_claim(theirs, ours) if isinstance(theirs, Claim) else theirs
        await self.compare()
        assert self.agree(name, theirs, ours), f"{name}{arguments}: {theirs!r}, and the specification says {ours!r}"
        self.check(Step(before, name, arguments, ours, after))
        if has_no_hint and name not in NOT_A_STEP_OF_THE_LIBRARY and self.may_claim():
            assert await self.fleet.is_woken(), f"nobody wakes after {name}{arguments}"
        return ours

    def is_repeated(self, worker: str, base: str, places: int, *_: Any) -> bool:
        """A claim that was executed before, by a caller whose hint is used up already."""
        return any(self.model.grants.has(f"{base}/{place}") for place in range(places))

    def learn_claim(self, theirs: Claim, ours: object) -> Claimed:
        assert isinstance(ours, Claimed)
        return self.names.claimed(theirs, ours)

    def agree(self, name: str, theirs: Answer, ours: Answer) -> bool:
        # A put whose scripts were missing is sent again, and finds its own sample: it reads that before it scores.
        is_own = name == "put" and self.forgot_scripts and (theirs, ours) == ("had", "stored")
        self.forgot_scripts = False
        return theirs == ours or is_own

    async def compare(self) -> None:
        raw = await read(self.fleet)
        self.names.learn(raw, self.model)
        self.due = tuple(self.names.id(member.decode()) for member in raw.due)
        found = translate(raw, self.names, self.model)
        assert raw.hints <= 1, "hints pile up"
        assert raw.pending.keys() <= {entry for entry, _ in raw.completed}, "an entry is pending that is over"
        for field, theirs, ours in zip(Broker._fields, found, self.model, strict=True):
            assert theirs == ours, f"{field}: in Redis {theirs!r}, in the specification {ours!r}"

    def check(self, step: Step) -> None:
        assert not broken_by_step(step, self.entered), broken_by_step(step, self.entered)
        assert not broken_in(self.model, self.exempt), broken_in(self.model, self.exempt)
        self.entered |= {entry.name for entry in self.model.completed}

    # Ways in

    async def configure(self, config: Config) -> None:
        # What waits was admitted by the window of before.
        self.exempt |= {"I2 waiting"}
        await self.step("configure", lambda: self.set_config(config), config)

    async def set_config(self, config: Config) -> str:
        await self.fleet.configure(
            sample_concurrency="auto" if config.sample_concurrency is None else config.sample_concurrency,
            n=config.n, refill=config.refill, overcommit=config.overcommit or "auto", open_cap=config.open_cap,
            max_attempts=config.max_attempts, recycle_limit=config.max_recycles, paused=config.paused,
            max_staleness="off" if config.max_staleness is None else config.max_staleness,
            groups_per_update=config.groups_per_update, stale=config.stale, recycle_then=config.recycle_then,
            cancel_stale=config.cancel_stale,
            lease_seconds=600, group_seconds=FOREVER, retry_seconds=FOREVER, retry_cap_seconds=FOREVER,
        )  # fmt: skip
        return "ok"

    async def submit(self, id: str, n: int) -> None:
        async def send() -> tuple[str, ...]:
            return tuple(await self.fleet.submit(id, n=n))

        await self.step("submit", send, ((id, n),))

    async def push(self, id: str, n: int) -> None:
        async def send() -> str:
            await self.fleet.push({"prompt": "x", "n": n} | ({"id": id} if id else {}))
            return "ok"

        await self.step("push", send, id, n)

    # Workers

    async def claim(self, worker: str, base: str, k: int) -> tuple[Grant, ...]:
        """The grants, under the server's names, as their holder speaks of them."""
        found: list[Grant] = []

        async def send() -> Claim:
            claim = await self.fleet.broker.claim(worker, base, k)
            found.extend(claim.grants)
            return claim

        reaped = self.by_server_id(self.model.expired())[:REAPED_BY_A_CLAIM]
        await self.step("claim", send, worker, base, k, self.due, reaped)
        return tuple(found)

    def by_server_id(self, ids: tuple[str, ...]) -> tuple[str, ...]:
        """Redis orders members of equal score by their bytes."""
        return tuple(sorted(ids, key=lambda id: self.names.server_id(id).encode()))

    async def heartbeat(self, worker: str, tokens: tuple[str, ...], settled: int, slots: int) -> None:
        async def send() -> steps.Heard:
            word, lost = await self.fleet.beat(*tokens, worker=worker, slots=slots, settled=settled)
            # A worker that is gone is told that it lost everything.
            return steps.Heard(word, () if word == "gone" else tuple(lost))

        if steps.parts.settings(self.model).sample_concurrency is None:
            self.exempt |= {"I2 waiting"}
        await self.step("heartbeat", send, worker, tokens, settled, slots)

    async def put(self, grant: Grant, index: int, value: str) -> str:
        async def send() -> str:
            return (await self.fleet.broker.put([Finished(grant.id, grant.born, index, value.encode(), b"ids!")]))[0]

        id, born = self.names.id(grant.id), self.names.borns[grant.born]
        return await self.step("put", send, id, born, index, value)

    async def keep(self, token: str, index: int, value: str) -> None:
        async def send() -> str:
            return (await self.fleet.broker.keep([Begun(token, index, value.encode())]))[0]

        await self.step("keep", send, token, index, value)

    async def complete(self, grant: Grant, rewards: tuple[str | None, ...]) -> str:
        async def send() -> str:
            return await self.fleet.broker.complete(grant, {"rewards": json.dumps(rewards), "versions": MADE_BY})

        id, born = self.names.id(grant.id), self.names.borns[grant.born]
        return await self.step("complete", send, grant.token, id, born, rewards)

    async def release(self, token: str, kind: Any) -> None:
        await self.step("release", lambda: self.fleet.broker.release(token, kind, kind), token, kind, kind)

    async def drop(self, token: str) -> None:
        await self.step("drop", lambda: self.fleet.broker.drop(token, "dull"), token)

    async def cancel(self, token: str, behind: int) -> None:
        oldest = self.model.version - behind
        await self.step("cancel", lambda: self.fleet.broker.cancel(token, oldest), token, behind)

    async def reap(self, most: int) -> None:
        reaped = self.by_server_id(self.model.expired())[:most]
        await self.step("reap", lambda: self.fleet.broker.reap(most), reaped)

    async def evict(self, worker: str, counts: bool) -> None:
        await self.step(
            "evict", lambda: self.fleet.broker.evict(worker, counts=counts, reason="worker evicted"), worker, counts
        )

    async def drain(self, worker: str, on: bool) -> None:
        """No step of the specification: it only knows who drains."""
        await (self.fleet.broker.drain if on else self.fleet.broker.undrain)([worker])
        draining = self.model.draining | {worker} if on else self.model.draining - {worker}
        self.model = self.model._replace(draining=draining)
        await self.compare()

    # Trainers

    async def take(self, consumer: str, most: int, is_own: bool) -> None:
        own = tuple(entry.name for entry in self.model.completed if entry.who == consumer)

        async def send() -> tuple[Any, ...]:
            return self.entries(await self.fleet.take(most, consumer, "0-0" if is_own else ">"), consumer)

        count, known = (min(most, len(own)), ()) if is_own else (most, own)
        await self.step("take", send, consumer, count, known)

    async def take_over(self, consumer: str, name: EntryName) -> None:
        """What the trainer's client does with entries whose consumer died."""

        async def send() -> tuple[Any, ...]:
            entry = self.names.entry(name)
            await self.fleet.client.xclaim(self.fleet.key("completed"), "trainer", consumer, 0, [entry], justid=True)
            held = await self.fleet.take(99, consumer, "0-0")
            return self.entries([it for it in held if it.entry == entry], consumer)

        own = tuple(entry.name for entry in self.model.completed if entry.who == consumer)
        await self.step("take", send, consumer, 1, own, (name,))

    def entries(self, taken: list[Entry], consumer: str) -> tuple[Any, ...]:
        by_name = {entry.name: entry for entry in self.model.completed}
        return tuple(by_name[self.names.entries[entry.entry]]._replace(who=consumer) for entry in taken)

    async def ack(self, name: EntryName) -> str:
        async def send() -> str:
            return (await self.fleet.broker.ack([self.names.entry(name)]))[0]

        return await self.step("ack", send, name)

    async def judge(self, name: EntryName, behind: int) -> str:
        async def send() -> str:
            return (await self.fleet.broker.judge(3 + behind, [self.names.entry(name)]))[0]

        return await self.step("judge", send, name, behind)

    async def begin(self) -> None:
        async def send() -> str:
            await self.fleet.broker.begin("t0", "s")
            return "ok"

        await self.step("begin", send)

    async def publish(self, token: str, at_once: int) -> None:
        await self.step("publish", lambda: self.fleet.publish(token=token, at_once=at_once), token, at_once)

    async def update(self, word: Any, worker: str, version: int, engine: str, *, serves: bool) -> None:
        async def send() -> str:
            return await self.fleet.turn(word, version, worker, engine=engine, serves=serves)

        await self.step("update", send, word, worker, version, engine, serves)

    async def recycle(self, name: EntryName) -> str:
        return await self.step("recycle", lambda: self.fleet.broker.recycle(self.names.entry(name)), name)

    # Operators, and what happens to a server

    async def requeue(self, letter: Letter) -> None:
        async def send() -> str:
            return (await self.fleet.broker.requeue_dead([self.names.letter(letter)]))[0]

        await self.step("requeue_dead", send, letter.id, letter.born)

    async def trim_done(self, id: str) -> None:
        async def send() -> str:
            await self.fleet.do("ZREM", self.fleet.key("done"), self.names.server_id(id))
            return "ok"

        await self.step("trim_done", send, id)

    async def flush(self, epoch: str) -> None:
        async def send() -> str:
            await self.next_ms()
            await self.fleet.delete()
            return await self.set_config(steps.parts.settings(self.model))

        await self.step("flush", send, epoch)

    async def next_ms(self) -> None:
        """A stream that is made anew gives ids by the server's clock: not those of before."""
        before = await self.now_ms()
        while await self.now_ms() == before:
            pass

    async def now_ms(self) -> int:
        seconds, micros = await self.fleet.do("TIME")
        return int(seconds) * 1000 + int(micros) // 1000

    async def repair(self, consumer: str) -> None:
        before = self.model
        after, mended = steps.repair(before, consumer)
        found = await repair(self.fleet.broker, consumer)
        self.model = after
        theirs, ours = (found.groups, found.entries, found.samples), (mended.groups, mended.entries, mended.samples)
        assert theirs == ours, f"repair: {found}, and the specification says {mended}"
        await self.compare()

    async def expire(self, ids: tuple[str, ...]) -> None:
        for id in ids:
            await self.fleet.do("ZADD", self.fleet.key("leases"), "XX", 1, self.names.server_id(id))
            self.model = self.model._replace(leases=self.model.leases.set(id, "expired"))

    async def expire_turn(self, turn: Turn) -> None:
        await self.fleet.do("ZADD", self.fleet.key("updating"), "XX", 1, f"{turn.worker} {turn.version} {turn.engine}")
        self.model = self.model._replace(turns=self.model.turns.set(turn, "expired"))

    async def fall_due(self) -> None:
        await self.fleet.fall_due()
        await self.compare()

    async def be_away(self, ms: int) -> None:
        """The server is away, or its clock jumps; leases are fresh before, since each absence costs half a one."""
        now = await self.fleet.run_ms() if await self.fleet.do("HEXISTS", self.fleet.key("state"), "seen_at") else 0
        for id, lease in self.model.leases:
            if lease == "live":
                await self.fleet.do("ZADD", self.fleet.key("leases"), now + 600_000, self.names.server_id(id))
        for turn, lease in self.model.turns:
            if lease == "live":
                member = f"{turn.worker} {turn.version} {turn.engine}"
                await self.fleet.do("ZADD", self.fleet.key("updating"), now + 600_000, member)
        for name in self.model.capacity.each_key():
            await self.fleet.do("ZADD", self.fleet.key("workers"), now + 600_000, name)
        if now:
            await self.fleet.away(ms)

    async def leave_a_put_undone(self, grant: Grant, index: int, value: str) -> None:
        """HSETNX without its script: the caller died in between."""
        await self.fleet.do("HSETNX", self.fleet.broker.keys.samples(grant.id, grant.born), index, value)
        id, born = self.names.id(grant.id), self.names.borns[grant.born]
        samples: Samples = self.model.stored(id, born)
        if not samples.has(index):
            kept = self.model.samples.set((id, born), samples.set(index, value))
            self.model = self.model._replace(samples=kept)

    async def delete_consumer(self, consumer: str) -> None:
        await self.fleet.do("XGROUP", "DELCONSUMER", self.fleet.key("completed"), "trainer", consumer)
        completed = tuple(entry._replace(who="-") if entry.who == consumer else entry for entry in self.model.completed)
        self.model = self.model._replace(completed=completed)

    async def delete_stream(self) -> None:
        await self.next_ms()
        await self.fleet.do("DEL", self.fleet.key("completed"))
        self.model = self.model._replace(completed=(), stream=self.model.stream + 1)
