"""What workers do about new weights, and what can go wrong with it: part of everything that can happen next.

A worker that loads lets nothing begin until it has loaded; one that can't load keeps trying, and stands meanwhile.
"""

from collections.abc import Iterator

from tests.model.moves import Answered, Move, call
from tests.model.state import Turn
from tests.model.world import (
    NONE,
    Call,
    Scope,
    Trainer,
    Worker,
    World,
    may_generate,
    restarted,
    spend,
    with_trainer,
    with_worker,
)

STANDING = "weights standing"


def publishing(world: World, rank: int, trainer: Trainer, scope: Scope) -> Iterator[Move]:
    """As often as is bought; a call whose answer is lost is repeated."""
    paid = world if trainer.publishing else spend(world, "publish")
    if paid is None or scope.at_once is None or trainer.is_gone:
        return
    for move in publish(paid, rank, trainer, scope.at_once):
        yield move._replace(is_faultless=move.is_faultless and trainer.publishing != "")


def publish(world: World, rank: int, trainer: Trainer, at_once: int = 0) -> Iterator[Move]:
    """`trainer` as it is when it was answered. Until then it repeats the call under its token."""
    asks = world.trainers[rank]
    token = asks.publishing or fresh_token(world)
    waits = with_trainer(world, asks._replace(publishing=token), at=rank)

    def answered(after: World, _: object) -> World:
        return with_trainer(after, trainer._replace(publishing=""), at=rank)

    yield from call(waits, f"{trainer.name} publishes {token}", Call("publish", (token, at_once)), answered)


def fresh_token(world: World) -> str:
    late = [call.arguments[0] for call in world.late if call.step == "publish"]
    used = {*late, *(token for _, token in world.broker.recent), *(trainer.publishing for trainer in world.trainers)}
    return next(token for number in range(99) if (token := f"p{number}") not in used)


def loading(world: World, slot: int, worker: Worker, scope: Scope) -> Iterator[Move]:
    if scope.at_once is None:
        return
    engine = "shared" if scope.has_one_engine else worker.slot
    if worker.loads:
        yield from ending(world, slot, worker, engine)
    elif world.broker.version not in (0, worker.serves):
        yield from beginning(world, slot, worker, engine)
    yield from giving_back(world, slot, worker)


def beginning(world: World, slot: int, worker: Worker, engine: str) -> Iterator[Move]:
    version, is_serving = world.broker.version, worker.serves > 0

    def answered(after: World, answer: object) -> World:
        if answer == "gone":
            return with_worker(after, restarted(after, worker), at=slot)
        if answer != "go":
            return after
        stands = version if is_serving else worker.stands
        return with_worker(after, worker._replace(loads=version, serves=NONE, stands=stands), at=slot)

    what = Call("update", ("begin", worker.name, version, engine, is_serving))
    yield from call(world, f"{worker.name} begins to load {version}", what, answered)


def ending(world: World, slot: int, worker: Worker, engine: str) -> Iterator[Move]:
    """The load ends for the worker, whatever becomes of its word about it. A turn that ran out is asked for again."""
    version = worker.loads
    loaded = worker._replace(serves=version, loads=0, stands=0)
    failed = worker._replace(loads=0)
    left = worker._replace(loads=0, stands=0)
    for word, after, event in (("loaded", loaded, ""), ("failed", failed, "unloadable"), ("left", left, "away")):
        what = Call("update", (word, worker.name, version, engine, False))
        yield from call(with_worker(world, after, at=slot), f"{worker.name} {word} {version}", what, event=event)
    if world.broker.turns.get(Turn(worker.name, version, engine)) != "live":
        what = Call("update", ("begin", worker.name, version, engine, False))
        yield from call(world, f"{worker.name} prolongs {version}", what, unless_gone(slot, worker))


def unless_gone(slot: int, worker: Worker) -> Answered:
    def answered(after: World, answer: object) -> World:
        return with_worker(after, restarted(after, worker), at=slot) if answer == "gone" else after

    return answered


def giving_back(world: World, slot: int, worker: Worker) -> Iterator[Move]:
    """A worker that was left out gives back what it holds."""
    if worker.is_holding and not worker.loads and not may_generate(world, worker):

        def answered(after: World, _: object) -> World:
            return with_worker(after, worker.idle(), at=slot)

        yield from call(world, f"{worker.name} gives back", Call("release", (worker.token, "free", "")), answered)


def turns_ending(world: World) -> Iterator[Move]:
    """Nobody prolongs the turn of a dead worker, nor one of which its worker was never told."""
    broker = world.broker
    for turn, lease in broker.turns:
        later = spend(world, "expire") if is_kept(world, turn) else world
        if lease == "live" and later is not None:
            after = later._replace(broker=broker._replace(turns=broker.turns.set(turn, "expired")))
            yield Move(f"the turn of {turn.worker} at {turn.version} ends", not is_kept(world, turn), after)
    for name in sorted({turn.worker for turn in broker.turns.each_key()}):
        yield from call(world, f"evict {name}", Call("evict", (name, True)), event="evict")


def is_kept(world: World, turn: Turn) -> bool:
    """Its worker loads, or has failed and says so until it tries again."""
    worker = next((worker for worker in world.workers if worker.name == turn.worker), None)
    if worker is None:
        return False
    return turn.version in (worker.loads, worker.stands if not worker.loads else 0)


def broken_by_loading(world: World) -> str:
    """At most `at_once` workers that served stand for the newest weights, whether they load them or can't.

    One that was evicted is gone, though it may not know yet.
    """
    most, version, barred = world.broker.at_once, world.broker.version, world.broker.barred
    standing = sum(worker.stands == version and worker.name not in barred for worker in world.workers)
    return STANDING if most and standing > most else ""
