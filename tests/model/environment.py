"""Everything that can happen next in a world: one generator for each of those who act.

A move is faultless if it happens in a run in which nothing goes wrong (a dead worker's lease expires, a late call
arrives, a trainer takes). Everything else is bought from the scope's budget.
"""

from collections.abc import Iterator
from typing import cast

from tests.model.claims import Claimed
from tests.model.guards import guard
from tests.model.loading import loading, publish, publishing, turns_ending
from tests.model.moves import Answered, Move, call
from tests.model.parts import settings, tokens_of, worker_of
from tests.model.state import ORPHAN, Entry, EntryName
from tests.model.steps import Heard
from tests.model.world import (
    Call,
    Scope,
    Trainer,
    Worker,
    World,
    arrive,
    fresh_serial,
    lose,
    may_generate,
    perform,
    restarted,
    settled,
    settled_serial,
    spend,
    with_trainer,
    with_worker,
)

WITHOUT_WEIGHTS = "weights claim"
"""A group was claimed by a worker whose weights aren't in use."""


def moves(world: World, scope: Scope) -> Iterator[Move]:
    yield from producing(world, scope)
    for slot, worker in enumerate(world.workers):
        yield from working(world, slot, worker)
        yield from loading(world, slot, worker, scope)
        yield from losing_a_worker(world, slot, worker, scope)
    yield from passing_time(world)
    yield from turns_ending(world)
    yield from arriving(world)
    for rank, trainer in enumerate(world.trainers):
        yield from training(world, rank, trainer, scope)
        yield from publishing(world, rank, trainer, scope)
    yield from operating(world, scope)


def producing(world: World, scope: Scope) -> Iterator[Move]:
    sizes = scope.sizes()
    if world.to_submit:
        id, *rest = world.to_submit
        submit = Call("submit", (((id, sizes[id]),),))
        yield from call(world._replace(to_submit=tuple(rest)), f"submit {id}", submit)
    for id, n in sizes.items():
        yield from call(world, f"submit {id} again", Call("submit", (((id, n),),)), event="resend")
        yield from call(world, f"RPUSH {id}", Call("push", (id, n)), event="push")
    yield from call(world, "RPUSH without an id", Call("push", ("", 1)), event="push_unnamed")
    yield from call(world, "RPUSH of nonsense", Call("push", ("a", 0)), event="push_bad")


def working(world: World, slot: int, worker: Worker) -> Iterator[Move]:
    if worker.is_holding:
        yield from generating(world, slot, worker)
        yield from giving_up(world, slot, worker)
    elif not guard("worker.gate", not may_generate(world, worker)):
        yield from claiming(world, slot, worker)
    yield from beating(world, slot, worker)


def claiming(world: World, slot: int, worker: Worker) -> Iterator[Move]:
    base = worker.token.rpartition("/")[0] or f"{worker.name}/{fresh_serial(world, worker)}"

    def answered(after: World, answer: object) -> World:
        return with_worker(after, granted(after, worker, answer), at=slot)

    for due in dues(world):
        what = Call("claim", (worker.name, base, 1, due))
        after, answer = perform(world, what)
        after = settled(answered(after, answer))
        if is_granted(answer) and not may_generate(world, worker):
            after = after._replace(broken=WITHOUT_WEIGHTS)
        yield Move(f"{worker.name} claims {base} {due}", True, after, what)
    if worker.is_idle:
        waits = with_worker(world, worker._replace(token=f"{base}/0"), at=slot)
        lost = spend(waits, "lose")
        if lost is not None:
            # It claims again under the same token. Which id is due is settled when a claim arrives.
            yield Move(f"{worker.name} claims {base}, lost", False, lose(lost, Call("claim", (worker.name, base))))
    elif not worker.is_holding and (forgetful := spend(world, "forget")):
        yield Move(f"{worker.name} gives {base} up", False, settled(with_worker(forgetful, worker.idle(), at=slot)))


def is_granted(answer: object) -> bool:
    return isinstance(answer, Claimed) and bool(answer.grants)


def dues(world: World) -> list[tuple[str, ...]]:
    """Which id of `again` is due: one of them, or none. An expired lease may come back by the claim itself."""
    return [(id,) for id in sorted(world.broker.again.union(world.broker.expired()))] + [()]


def granted(world: World, worker: Worker, answer: object) -> Worker:
    if not isinstance(answer, Claimed):
        raise TypeError(f"a claim was answered {answer!r}")
    if answer.reason == "gone":
        return restarted(world, worker)
    if not answer.grants:
        return worker.idle()
    grant = answer.grants[0]
    stored = world.broker.stored(grant.id, grant.born)
    samples = tuple(stored.get(index) for index in range(grant.n))
    return worker._replace(token=grant.token, id=grant.id, born=grant.born, samples=samples)


def generating(world: World, slot: int, worker: Worker) -> Iterator[Move]:
    """The next sample that is missing, or the group is complete; a hasty worker completes what isn't."""
    if None in worker.samples and may_generate(world, worker):
        index = worker.samples.index(None)
        what = Call("put", (worker.id, worker.born, index, worker.slot))
        yield from call(world, f"{worker.name} {what}", what, heard_put(slot, worker, index))
        yield from leaving_a_put_undone(world, slot, worker, index)
        what = Call("keep", (worker.token, index, f"{worker.slot}~"))
        yield from call(world, f"{worker.name} {what}", what, event="keep")
    complete = Call("complete", (worker.token, worker.id, worker.born, worker.samples))
    event = "hasty" if None in worker.samples else ""
    yield from call(world, f"{worker.name} {complete}", complete, heard_complete(slot, worker), event=event)


def heard_put(slot: int, worker: Worker, index: int) -> Answered:
    def answered(world: World, answer: object) -> World:
        if answer == "gone":
            return with_worker(world, worker.idle(), at=slot)
        value: str | None = worker.slot
        if guard("worker.reread", answer == "had"):
            value = world.broker.stored(worker.id, worker.born).get(index)
        samples = (*worker.samples[:index], value, *worker.samples[index + 1 :])
        return with_worker(world, worker._replace(samples=samples), at=slot)

    return answered


def heard_complete(slot: int, worker: Worker) -> Answered:
    def answered(world: World, answer: object) -> World:
        if answer != "missing":
            return with_worker(world, worker.idle(), at=slot)
        stored = world.broker.stored(worker.id, worker.born)
        samples = tuple(stored.get(index) for index in range(len(worker.samples)))
        return with_worker(world, worker._replace(samples=samples), at=slot)

    return answered


def leaving_a_put_undone(world: World, slot: int, worker: Worker, index: int) -> Iterator[Move]:
    """NOSCRIPT inside the MULTI leaves the HSETNX done. The worker sends it again, unless it dies."""
    later = spend(world, "noscript")
    if later is None:
        return
    samples = later.broker.stored(worker.id, worker.born)
    if not samples.has(index):
        samples = samples.set(index, worker.slot)
    stored = later.broker.samples.set((worker.id, worker.born), samples)
    later = later._replace(broker=later.broker._replace(samples=stored))
    yield Move(f"{worker.name} is answered NOSCRIPT", False, later)
    dead = with_worker(later, restarted(later, worker), at=slot)
    yield Move(f"{worker.name} is answered NOSCRIPT and dies", False, settled(dead))


def giving_up(world: World, slot: int, worker: Worker) -> Iterator[Move]:
    def answered(after: World, _: object) -> World:
        return with_worker(after, worker.idle(), at=slot)

    if None not in worker.samples:
        yield from call(world, f"{worker.name} drops", Call("drop", (worker.token,)), answered, event="drop")
    what = Call("cancel", (worker.token, 1))
    yield from call(world, f"{worker.name} cancels", what, unless_it_may_not(answered), event="cancel")
    for kind in ("free", "fail", "reject", "died", "died_alone"):
        what = Call("release", (worker.token, kind, kind))
        yield from call(world, f"{worker.name} releases {kind}", what, answered, event=kind)


def unless_it_may_not(answered: Answered) -> Answered:
    """A group that may not be cancelled is finished."""

    def heard(world: World, answer: object) -> World:
        return world if answer in ("fresh", "limit") else answered(world, answer)

    return heard


def beating(world: World, slot: int, worker: Worker) -> Iterator[Move]:
    """Heartbeats that change something: a lease ran out, was lost, a grant is unknown to its worker, or capacity is.

    Others extend what is live, and are left out.
    """

    def answered(after: World, answer: object) -> World:
        if not isinstance(answer, Heard):
            raise TypeError(f"a heartbeat was answered {answer!r}")
        if answer.word == "gone":
            return with_worker(after, restarted(after, worker), at=slot)
        return with_worker(after, worker.idle(), at=slot) if answer.lost else after

    broker = world.broker
    is_auto = broker.config is not None and broker.config.sample_concurrency is None
    is_new = is_auto and not broker.capacity.has(worker.name) and worker.name not in broker.barred
    listed = (worker.token,) if worker.is_holding else ()
    own = [(token, id) for token, id in broker.grants if worker_of(token) == worker.name]
    has_news = any(broker.leases.get(id) == "expired" or token not in listed for token, id in own)
    has_lost = worker.is_holding and not broker.grants.has(worker.token)
    if has_news or has_lost or is_new or (world.budget.get("beat") and worker.is_holding):
        serial = settled_serial(world, worker)
        what = Call("heartbeat", (worker.name, listed, serial, 1 if is_auto else None))
        event = "" if has_news or has_lost or is_new else "beat"
        yield from call(world, f"{worker.name} heartbeat {listed}", what, answered, event=event)


def losing_a_worker(world: World, slot: int, worker: Worker, scope: Scope) -> Iterator[Move]:
    killed = spend(world, "kill")
    if killed is not None and not (worker.is_idle and not worker.loads):
        yield Move(f"{worker.name} is killed", False, settled(with_worker(killed, restarted(world, worker), at=slot)))
    if tokens_of(world.broker, worker.name):
        for counts in (True, False):
            yield from call(world, f"evict {worker.name} {counts}", Call("evict", (worker.name, counts)), event="evict")
    drained = spend(world, "drain")
    if drained is not None and worker.name not in world.broker.draining:
        broker = drained.broker._replace(draining=drained.broker.draining | {worker.name})
        yield Move(f"{worker.name} is told to drain", False, drained._replace(broker=broker))
    if worker.is_idle and worker.name in world.broker.draining:
        yield Move(f"{worker.name} drained", True, settled(with_worker(world, restarted(world, worker), at=slot)))


def passing_time(world: World) -> Iterator[Move]:
    """Leases of holders that died run out by themselves, those of frozen ones by a fault."""
    broker = world.broker
    alive = {worker.token for worker in world.workers}
    for token, id in broker.grants:
        if broker.leases.get(id) == "live":
            later = spend(world, "expire") if token in alive else world
            if later is not None:
                after = later._replace(broker=broker._replace(leases=broker.leases.set(id, "expired")))
                yield Move(f"the lease of {id} expires", token not in alive, after)
    if broker.expired():
        yield from call(world, "reap", Call("reap", ()))
    names = {worker.name for worker in world.workers}
    for name in broker.capacity.each_key():
        if name not in names:
            after = broker._replace(capacity=broker.capacity.without(name))
            yield Move(f"{name} is forgotten", True, world._replace(broker=after))


def arriving(world: World) -> Iterator[Move]:
    for what in dict.fromkeys(world.late):
        there = arrive(world, what)
        for due in dues(world) if what.step == "claim" else [()]:
            executed = Call("claim", (*what.arguments, 1, due)) if what.step == "claim" else what
            after, _ = perform(there, executed)
            yield Move(f"late: {executed}", True, settled(after), executed)


def training(world: World, rank: int, trainer: Trainer, scope: Scope) -> Iterator[Move]:
    if trainer.is_gone:
        return
    bound = settings(world.broker).max_staleness
    if bound is not None and not trainer.has_begun:
        begun = trainer._replace(has_begun=True)
        what = Call("begin", (trainer.name, trainer.life))
        yield from call(world, f"{trainer.name} begins", what, lets_go(rank, begun))
        return
    if bound is not None and trainer.owes >= settings(world.broker).groups_per_update:
        paid = trainer._replace(owes=trainer.owes - settings(world.broker).groups_per_update)
        yield from publish(world, rank, paid)
    if len(trainer.held) < scope.hold:
        yield from taking(world, rank, trainer)
    for name in trainer.held:
        held = tuple(other for other in trainer.held if other != name)
        let_go = trainer._replace(held=held)
        yield from acking(world, rank, let_go, name)
        what = Call("recycle", (name,))
        yield from call(world, f"{trainer.name} {what}", what, lets_go(rank, let_go), event="recycle")
        what = Call("judge", (name, 1))
        yield from call(world, f"{trainer.name} {what}", what, lets_go(rank, let_go), event="judge")
    died = spend(world, "crash")
    if died is not None and (trainer.held or trainer.owes):
        life = trainer.life if bound is None else trainer.life + 1
        yield Move(f"{trainer.name} crashes", False, with_trainer(died, Trainer(trainer.name, life=life), at=rank))
    left = spend(world, "leave") if rank else None
    if left is not None:
        gone = Trainer(trainer.name, is_gone=True)
        yield Move(f"{trainer.name} is gone for ever", False, with_trainer(left, gone, at=rank))


def acking(world: World, rank: int, let_go: Trainer, name: EntryName) -> Iterator[Move]:
    """It trained on the group whether or not it hears so, and will publish for it."""
    if settings(world.broker).max_staleness is None:
        what = Call("ack", (name,))
    else:
        what = Call("ack", (name, let_go.name, let_go.life))
        let_go = let_go._replace(owes=let_go.owes + 1)
        world = with_trainer(world, let_go._replace(held=(name, *let_go.held)), at=rank)
    yield from call(world, f"{let_go.name} {what}", what, lets_go(rank, let_go))


def lets_go(rank: int, trainer: Trainer) -> Answered:
    """A trainer forgets an entry when it is told what became of it; at `limit` it keeps it."""

    def answered(world: World, answer: object) -> World:
        return world if answer in ("limit", "stale") else with_trainer(world, trainer, at=rank)

    return answered


def taking(world: World, rank: int, trainer: Trainer) -> Iterator[Move]:
    def answered(after: World, answer: object) -> World:
        names = tuple(entry.name for entry in entries_of(answer))
        return with_trainer(after, trainer._replace(held=trainer.held + names), at=rank)

    yield from call(world, f"{trainer.name} takes", Call("take", (trainer.name, 1, trainer.held)), answered)
    for entry in world.broker.completed:
        if entry.who in (None, ORPHAN, trainer.name):
            continue
        is_abandoned = any(other.name == entry.who and other.is_gone for other in world.trainers)
        what = Call("take", (trainer.name, 1, trainer.held, (entry.name,)))
        label = f"{trainer.name} takes over {entry.name}"
        yield from call(world, label, what, answered, event="" if is_abandoned else "steal")


def entries_of(answer: object) -> tuple[Entry, ...]:
    """The answer of a take."""
    return cast(tuple[Entry, ...], answer)


def operating(world: World, scope: Scope) -> Iterator[Move]:
    broker = world.broker
    for id in sorted(broker.done):
        yield from call(world, f"done forgets {id}", Call("trim_done", (id,)), event="trim")
    for letter in sorted(broker.dead):
        what = Call("requeue_dead", (letter.id, letter.born))
        yield from call(world, f"requeue {letter.id}", what, event="requeue")
    for config in scope.configs:
        if config != broker.config:
            yield from call(world, f"configure {config}", Call("configure", (config,)), event="configure")
    if broker.config is not None and broker.config.paused:
        yield from call(world, "resume", Call("configure", (broker.config._replace(paused=False),)))
    repair = Call("repair", (world.trainers[0].name,))
    yield from call(world, "repair", repair, event="" if scope.has_repair else "repair")
    yield from losing_data(world, scope)


def losing_data(world: World, scope: Scope) -> Iterator[Move]:
    broker = world.broker
    emptied = spend(world, "flush")
    if emptied is not None:
        epoch = str(int(broker.epoch) + 1)
        after, _ = perform(emptied._replace(to_submit=tuple(scope.sizes())), Call("flush", (epoch,)))
        yield Move("flush, and the run made anew", False, settled(after))
    deleted = spend(world, "delete_stream")
    if deleted is not None and broker.completed:
        after = deleted._replace(broker=broker._replace(completed=(), stream=broker.stream + 1))
        yield Move("the stream is deleted", False, after)
    for trainer in world.trainers:
        orphaned = spend(world, "delete_consumer")
        if orphaned is not None and any(entry.who == trainer.name for entry in broker.completed):
            yield Move(f"consumer {trainer.name} is deleted", False, orphan(orphaned, trainer.name))


def orphan(world: World, consumer: str) -> World:
    """Its entries are pending nowhere; it still knows what it holds, and may ack it."""
    completed = tuple(
        entry._replace(who=ORPHAN) if entry.who == consumer else entry for entry in world.broker.completed
    )
    return world._replace(broker=world.broker._replace(completed=completed))
