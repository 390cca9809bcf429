"""The state machine: any order of steps, faults and late messages, on a server and on the specification at once.

Uniformly random steps are too weak for this design: the faults that they miss need a run-up. So some rules go far at
once (claim until refused, finish everything and complete nothing, let all leases run out), and every message that was
ever sent may come once more.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from rolloutfleet.messages import Grant
from rolloutfleet.redis import Client
from tests.fakes.broker import Fleet
from tests.library.executor import Executor
from tests.model.state import ORPHAN, Config, EntryName
from tests.model.steps import parts

IDS = ("a", "b", "c", "d", "e", "f")
CONSUMERS = ("t0", "t1")
PODS = ("w0", "w1", "w2")
ENGINES = {"w0": "an engine", "w1": "a shared engine", "w2": "a shared engine"}
EXPIRE = {"workers", "capacity", "draining", "barred", "updating"}
I5 = {"state", "config", "policy", "stats", "done", "dead", "completed", "wake", *EXPIRE}
STEPS_TO_REST = 40

CONFIGS = st.builds(
    Config,
    sample_concurrency=st.sampled_from([1, 2, 3, 4, 4, 6, None]),
    n=st.integers(1, 3),
    refill=st.sampled_from(["group", "sample"]),
    overcommit=st.sampled_from([None, 1000, 1500]),
    open_cap=st.integers(1, 4),
    max_attempts=st.just(2),
    max_recycles=st.just(1),
    paused=st.sampled_from([False, False, False, True]),
    max_staleness=st.sampled_from([None, None, 0, 1]),
    groups_per_update=st.integers(1, 3),
    stale=st.sampled_from(["pace", "recycle", "drop"]),
    recycle_then=st.sampled_from(["deliver", "dead"]),
    cancel_stale=st.booleans(),
)
type Message = Callable[[], Awaitable[Any]]


class FleetMachine(RuleBasedStateMachine):
    """Workers are processes `pod/start`; an evicted one is followed by the next of its pod."""

    @staticmethod
    def connect() -> Client:
        """A client of a server that is this machine's own."""
        raise NotImplementedError

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.starts: dict[str, int] = dict.fromkeys(PODS, 1)
        self.bases = 0
        self.flushes = 1
        self.grants: list[Grant] = []
        self.beliefs: dict[str, dict[int, str]] = {}
        self.last_rare = 0
        self.sent: list[Message] = []
        self.client = self.connect()
        self.executor: Executor

    @initialize(config=CONFIGS)
    def make_the_run(self, config: Config) -> None:
        self.do(self.begin(config._replace(paused=False, sample_concurrency=config.sample_concurrency or 4)))

    async def begin(self, config: Config) -> None:
        self.executor = Executor(await Fleet.make(self.client, "machine"), config)
        await self.executor.set_config(config)

    def do[T](self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    async def send(self, message: Message) -> Any:
        """Sends it, and keeps it: it may come once more."""
        self.sent.append(message)
        return await message()

    @property
    def model(self):
        return self.executor.model

    def worker(self, pod: str) -> str:
        return f"{pod}/{self.starts[pod]}"

    @property
    def known_entries(self) -> list[EntryName]:
        """Every entry that ever was in the stream."""
        return sorted(self.executor.entered)

    def is_rare(self) -> bool:
        """Whether enough happened since the last of the events that, one after the other, would only bore."""
        return len(self.sent) >= self.last_rare + 4

    def do_rarely(self, work: Coroutine[Any, Any, Any]) -> None:
        self.last_rare = len(self.sent)
        self.do(work)

    def live(self) -> list[Grant]:
        return [grant for grant in self.grants if self.model.grants.has(grant.token)]

    # Ways in

    @rule(n=st.integers(1, 4), more=st.booleans())
    def submit_what_is_new(self, n: int, more: bool) -> None:
        for id in self.new_ids()[: 2 if more else 1]:
            self.do(self.submit_one(id, n))

    async def submit_one(self, id: str, n: int) -> None:
        await self.send(lambda: self.executor.submit(id, n))

    def new_ids(self) -> list[str]:
        model = self.model
        return [id for id in IDS if not model.groups.has(id) and id not in model.done] or list(IDS[:1])

    @precondition(lambda self: self.is_rare())
    @rule(id=st.sampled_from(IDS), n=st.integers(1, 4))
    def submit_any(self, id: str, n: int) -> None:
        self.do_rarely(self.submit_one(id, n))

    @precondition(lambda self: len(self.model.prompts) < 4)
    @rule(id=st.sampled_from(["", *IDS]), n=st.sampled_from([0, 1, 2, 2, 3]))
    def push(self, id: str, n: int) -> None:
        self.do(self.executor.push(id, n))

    @precondition(lambda self: self.is_rare())
    @rule(config=CONFIGS)
    def configure(self, config: Config) -> None:
        self.do_rarely(self.executor.configure(config))

    @precondition(lambda self: parts.settings(self.model).paused)
    @rule()
    def resume(self) -> None:
        self.do(self.executor.configure(parts.settings(self.model)._replace(paused=False)))

    # Workers

    @precondition(lambda self: self.has_line())
    @rule(pod=st.sampled_from(PODS), k=st.integers(1, 3))
    def claim(self, pod: str, k: int) -> None:
        self.do(self.claim_some(self.worker(pod), k))

    def has_line(self) -> bool:
        return bool(self.model.prompts or self.model.again or self.model.expired())

    @precondition(lambda self: self.has_line())
    @rule(pod=st.sampled_from(PODS))
    def claim_until_refused(self, pod: str) -> None:
        while self.do(self.claim_some(self.worker(pod), 1)):
            pass

    @rule(pod=st.sampled_from(PODS), n=st.integers(1, 3), consumer=st.sampled_from(CONSUMERS), most=st.integers(0, 3))
    def work_a_round(self, pod: str, n: int, consumer: str, most: int) -> None:
        """What happens most of the time: groups come, are claimed, completed and taken."""
        self.submit_what_is_new(n, more=True)
        self.claim_until_refused(pod)
        self.finish_and_complete_all()
        if most:
            self.do(self.executor.take(consumer, most, is_own=False))

    async def claim_some(self, worker: str, k: int) -> int:
        self.bases += 1
        base = f"{worker}/{self.bases}"
        grants = await self.executor.claim(worker, base, k)
        self.sent.append(lambda: self.claim_again(worker, base, k))
        self.remember(grants)
        return len(grants)

    async def claim_again(self, worker: str, base: str, k: int) -> None:
        self.remember(await self.executor.claim(worker, base, k))

    def remember(self, grants: tuple[Grant, ...]) -> None:
        """What a holder knows of its group: the samples that were stored when it claimed."""
        for grant in grants:
            self.grants.append(grant)
            stored = self.model.stored(self.executor.names.id(grant.id), self.executor.names.borns[grant.born])
            self.beliefs.setdefault(grant.token, {}).update(stored)

    @precondition(lambda self: self.live() or self.is_rare())
    @rule(pod=st.sampled_from(PODS), data=st.data(), slots=st.integers(0, 6), in_flight=st.integers(0, 2))
    def heartbeat(self, pod: str, data: st.DataObject, slots: int, in_flight: int) -> None:
        worker = self.worker(pod)
        own = [grant.token for grant in self.grants if grant.token.startswith(f"{worker}/")]
        listed = data.draw(st.lists(st.sampled_from(own), unique=True) if own else st.just([]))
        settled = data.draw(st.sampled_from([0, max(0, self.bases + 1 - in_flight)]))
        self.do(self.send(lambda: self.executor.heartbeat(worker, tuple(listed), settled, slots)))

    @precondition(lambda self: self.grants)
    @rule(data=st.data(), is_live=st.booleans())
    def put(self, data: st.DataObject, is_live: bool) -> None:
        grant = self.draw_grant(data, is_live)
        self.do(self.put_one(grant, data.draw(st.integers(0, grant.n - 1))))

    def draw_grant(self, data: st.DataObject, is_live: bool) -> Grant:
        """Also of those who lost theirs: zombies know nothing of it."""
        return data.draw(st.sampled_from((self.live() if is_live else []) or self.grants))

    @precondition(lambda self: self.live() or self.is_rare())
    @rule(data=st.data(), index=st.integers(0, 3))
    def keep(self, data: st.DataObject, index: int) -> None:
        """Also of samples that are finished, of groups that are lost, and of indices that the group does not have."""
        if self.grants:
            token = self.draw_grant(data, is_live=True).token
            value = f"{token}~{len(self.sent)}"
            self.do(self.send(lambda: self.executor.keep(token, index, value)))

    async def put_one(self, grant: Grant, index: int) -> None:
        value = f"{grant.token}#{len(self.sent)}"
        word = await self.send(lambda: self.executor.put(grant, index, value))
        stored = self.model.stored(self.executor.names.id(grant.id), self.executor.names.borns[grant.born])
        kept = stored.get(index) if word == "had" else value
        if word != "gone" and kept is not None:
            self.beliefs[grant.token][index] = kept

    @precondition(lambda self: self.live())
    @rule()
    def finish_all_samples_and_complete_none(self) -> None:
        for grant in self.live():
            self.do(self.put_all(grant))

    async def put_all(self, grant: Grant) -> None:
        for index in range(grant.n):
            if index not in self.beliefs[grant.token]:
                await self.put_one(grant, index)

    @precondition(lambda self: self.grants)
    @rule(data=st.data(), is_live=st.booleans())
    def complete(self, data: st.DataObject, is_live: bool) -> None:
        self.do(self.complete_one(self.draw_grant(data, is_live)))

    @precondition(lambda self: self.live())
    @rule()
    def finish_and_complete_all(self) -> None:
        for grant in self.live():
            self.do(self.put_all(grant))
            self.do(self.complete_one(grant))

    async def complete_one(self, grant: Grant) -> None:
        """Only a holder that has read or made all n samples scores them."""
        known = self.beliefs[grant.token]
        if len(known) == grant.n:
            rewards = tuple(known[index] for index in range(grant.n))
            await self.send(lambda: self.executor.complete(grant, rewards))

    @precondition(lambda self: self.grants)
    @rule(data=st.data(), is_live=st.booleans(), kind=st.sampled_from(["free", "fail", "reject", "died", "died_alone"]))
    def release(self, data: st.DataObject, is_live: bool, kind: str) -> None:
        token = self.draw_grant(data, is_live).token
        self.do(self.send(lambda: self.executor.release(token, kind)))

    @precondition(lambda self: self.grants)
    @rule(data=st.data(), is_live=st.booleans())
    def drop(self, data: st.DataObject, is_live: bool) -> None:
        token = self.draw_grant(data, is_live).token
        self.do(self.send(lambda: self.executor.drop(token)))

    @precondition(lambda self: self.grants)
    @rule(data=st.data(), is_live=st.booleans(), behind=st.integers(0, 2))
    def cancel(self, data: st.DataObject, is_live: bool, behind: int) -> None:
        token = self.draw_grant(data, is_live).token
        self.do(self.send(lambda: self.executor.cancel(token, behind)))

    @precondition(lambda self: self.model.leases)
    @rule(most=st.sampled_from([1, 64]))
    def reap(self, most: int) -> None:
        self.do(self.executor.reap(most))

    @precondition(lambda self: self.is_rare())
    @rule(pod=st.sampled_from(PODS), counts=st.booleans())
    def evict(self, pod: str, counts: bool) -> None:
        worker = self.worker(pod)
        self.do_rarely(self.send(lambda: self.executor.evict(worker, counts)))
        self.starts[pod] += 1

    @precondition(lambda self: self.is_rare())
    @rule(pod=st.sampled_from(PODS), on=st.booleans())
    def drain(self, pod: str, on: bool) -> None:
        self.do_rarely(self.executor.drain(self.worker(pod), on))

    # Trainers

    @precondition(lambda self: self.model.completed)
    @rule(consumer=st.sampled_from(CONSUMERS), most=st.integers(1, 3), is_own=st.booleans())
    def take(self, consumer: str, most: int, is_own: bool) -> None:
        self.do(self.executor.take(consumer, most, is_own))

    @precondition(lambda self: any(it.who in CONSUMERS for it in self.model.completed))
    @rule(data=st.data())
    def take_die_and_be_taken_over(self, data: st.DataObject) -> None:
        entry = data.draw(st.sampled_from([it for it in self.model.completed if it.who in CONSUMERS]))
        other = CONSUMERS[1 - CONSUMERS.index(str(entry.who))]
        self.do(self.executor.take_over(other, entry.name))

    @precondition(lambda self: self.known_entries)
    @rule(data=st.data())
    def ack(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(self.known_entries))
        self.do(self.send(lambda: self.executor.ack(name)))

    @precondition(lambda self: self.known_entries)
    @rule(data=st.data(), behind=st.integers(-1, 2))
    def judge(self, data: st.DataObject, behind: int) -> None:
        name = data.draw(st.sampled_from(self.known_entries))
        self.do(self.send(lambda: self.executor.judge(name, behind)))

    @precondition(lambda self: self.is_rare())
    @rule()
    def a_trainer_begins(self) -> None:
        self.do_rarely(self.send(self.executor.begin))

    @precondition(lambda self: self.known_entries)
    @rule(data=st.data())
    def recycle(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(self.known_entries))
        self.do(self.send(lambda: self.executor.recycle(name)))

    @precondition(lambda self: self.model.completed)
    @rule(data=st.data())
    def recycle_and_hear_a_zombie(self, data: st.DataObject) -> None:
        """The holder of before puts and completes after its group was newly born."""
        entry = data.draw(st.sampled_from(self.model.completed))
        self.do(self.send(lambda: self.executor.recycle(entry.name)))
        for grant in self.grants:
            if self.executor.names.id(grant.id) == entry.id:
                self.do(self.put_one(grant, 0))
                self.do(self.complete_one(grant))

    # Weights

    @precondition(lambda self: self.is_rare() or parts.settings(self.model).max_staleness is not None)
    @rule(at_once=st.integers(0, 2))
    def publish(self, at_once: int) -> None:
        token = f"token-{len(self.sent)}-{self.model.version}"
        self.do(self.send(lambda: self.executor.publish(token, at_once)))

    @precondition(lambda self: self.model.version)
    @rule(
        word=st.sampled_from(["begin", "begin", "loaded", "failed", "left"]),
        pod=st.sampled_from(PODS),
        behind=st.integers(0, 1),
        serves=st.booleans(),
    )
    def update(self, word: str, pod: str, behind: int, serves: bool) -> None:
        worker, version = self.worker(pod), self.model.version - behind
        self.do(self.send(lambda: self.executor.update(word, worker, version, ENGINES[pod], serves=serves)))

    @precondition(lambda self: self.model.version)
    @rule(serves=st.booleans())
    def all_begin_to_load(self, serves: bool) -> None:
        for pod in PODS:
            worker, version = self.worker(pod), self.model.version
            self.do(self.executor.update("begin", worker, version, ENGINES[pod], serves=serves))

    @precondition(lambda self: self.model.turns)
    @rule(data=st.data())
    def a_turn_ends_by_itself(self, data: st.DataObject) -> None:
        self.do(self.executor.expire_turn(data.draw(st.sampled_from(list(self.model.turns.each_key())))))

    # Operators, time, and what goes wrong

    @precondition(lambda self: self.model.dead)
    @rule(data=st.data())
    def requeue(self, data: st.DataObject) -> None:
        letter = data.draw(st.sampled_from(sorted(self.model.dead)))
        self.do(self.send(lambda: self.executor.requeue(letter)))

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def a_message_comes_once_more(self, data: st.DataObject) -> None:
        late = data.draw(st.integers(0, len(self.sent) - 1))
        self.do(as_coroutine(self.sent[-1 - late]))

    @precondition(lambda self: self.model.leases)
    @rule(data=st.data())
    def leases_run_out(self, data: st.DataObject) -> None:
        ids = data.draw(st.lists(st.sampled_from(list(self.model.leases.each_key())), min_size=1, unique=True))
        self.do(self.executor.expire(tuple(ids)))

    @precondition(lambda self: self.model.leases)
    @rule()
    def all_leases_run_out(self) -> None:
        self.do(self.executor.expire(tuple(self.model.leases.each_key())))

    @precondition(lambda self: self.model.again)
    @rule()
    def delays_are_over(self) -> None:
        self.do(self.executor.fall_due())

    @precondition(lambda self: self.is_rare())
    @rule(hours=st.sampled_from([-5, 1, 24]))
    def the_broker_is_away(self, hours: int) -> None:
        self.do_rarely(self.executor.be_away(hours * 3_600_000))

    @precondition(lambda self: self.model.done)
    @rule(data=st.data())
    def trim_done(self, data: st.DataObject) -> None:
        self.do(self.executor.trim_done(data.draw(st.sampled_from(sorted(self.model.done)))))

    @precondition(lambda self: self.is_rare())
    @rule()
    def the_server_forgets_the_scripts(self) -> None:
        self.do_rarely(self.executor.fleet.do("SCRIPT", "FLUSH"))
        self.executor.forgot_scripts = True

    @precondition(lambda self: self.is_rare() and len(self.sent) > 10)
    @rule()
    def flush_and_make_the_run_anew(self) -> None:
        self.flushes += 1
        self.do_rarely(self.executor.flush(str(self.flushes)))

    @precondition(lambda self: self.is_rare())
    @rule()
    def repair_what_is_whole(self) -> None:
        self.do_rarely(self.executor.repair(CONSUMERS[0]))

    @precondition(lambda self: self.is_rare() and bool(self.grants))
    @rule(data=st.data(), is_live=st.booleans())
    def a_caller_dies_in_the_middle_of_a_put_and_the_run_is_repaired(self, data: st.DataObject, is_live: bool) -> None:
        grant = self.draw_grant(data, is_live)
        self.do_rarely(self.executor.leave_a_put_undone(grant, grant.n - 1, f"{grant.token}#undone"))
        self.do(self.executor.repair(CONSUMERS[0]))

    @precondition(lambda self: self.is_rare() and bool(any(it.who in CONSUMERS for it in self.model.completed)))
    @rule(consumer=st.sampled_from(CONSUMERS))
    def a_consumer_is_deleted_and_the_run_is_repaired(self, consumer: str) -> None:
        self.do_rarely(self.executor.delete_consumer(consumer))
        self.do(self.executor.repair(CONSUMERS[1 - CONSUMERS.index(consumer)]))
        assert all(it.who != ORPHAN for it in self.model.completed)

    @precondition(lambda self: self.is_rare() and bool(self.model.completed))
    @rule()
    def the_stream_is_deleted_and_the_run_is_repaired(self) -> None:
        self.executor.exempt |= {"I10 bounds"}  # a repaired group has one attempt more
        self.do_rarely(self.executor.delete_stream())
        self.do(self.executor.repair(CONSUMERS[0]))

    # Rest

    def teardown(self) -> None:
        try:
            if hasattr(self, "executor"):
                self.do(self.come_to_rest())
        finally:
            self.do(self.close())
            self.runner.close()

    async def close(self) -> None:
        await self.client.execute_command("FLUSHALL")  # pyright: ignore[reportUnknownMemberType]
        await self.client.aclose()

    async def come_to_rest(self) -> None:
        """I10 and I5: without faults every group is acked, dropped or dead, and only the run's memory is left."""
        await self.executor.configure(Config(sample_concurrency=4, n=2, max_attempts=2))
        await self.executor.expire(tuple(self.model.leases.each_key()))
        for _ in range(STEPS_TO_REST):
            await self.executor.fall_due()
            await self.claim_some("last/1", 2)
            for grant in self.live():
                await self.put_all(grant)
                await self.complete_one(grant)
            await self.train()
            if not self.model.groups and not self.model.prompts:
                break
        model = self.model
        left = (model.groups, model.prompts, model.again, model.leases, model.samples, model.partials, model.completed)
        assert not any(left), f"no rest: {model}"
        assert await self.executor.fleet.names() <= I5

    async def train(self) -> None:
        for consumer in CONSUMERS:
            await self.executor.take(consumer, 99, is_own=False)
        for entry in self.model.completed:
            await self.executor.ack(entry.name)


async def as_coroutine(message: Message) -> Any:
    return await message()
