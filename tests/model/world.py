"""The broker and those who call it: workers, trainers, a producer, and the network between them.

One kind of fault covers lost answers, duplicates and callers that died: a call whose answer is lost becomes *late*. It
acts once, at any later moment; meanwhile its caller knows nothing and may call again.

Invariants: `late` is sorted, so that the order in which calls were lost doesn't matter; each budgeted event lowers its
own budget and the total, so that every scope is finite.
"""

from functools import cache, lru_cache
from typing import Any, NamedTuple

from tests.model.invariants import Step, broken_by_step
from tests.model.parts import serial_of, worker_of
from tests.model.state import Broker, Config, EntryName, Map, new_run
from tests.model.steps import STEPS


class Call(NamedTuple):
    """A step of the broker with its arguments."""

    step: str
    arguments: tuple[Any, ...]


NONE = -1
"""No weights are in use."""


class Worker(NamedTuple):
    """Idle without a token, claiming with a token only, holding with a group: also when its lease is lost."""

    name: str
    token: str = ""
    id: str = ""
    born: str = ""
    samples: tuple[str | None, ...] = ()
    """By index what it will compute the rewards from: its own samples and those that were stored."""
    serves: int = 0
    """The version in use; 0: what its engine was started with, as nothing was published when the worker began."""
    loads: int = 0
    """The version that it has its turn to load."""
    stands: int = 0
    """The version for which it stopped serving an older one."""

    @property
    def slot(self) -> str:
        """Its place in the fleet: the name of a restarted process has a suffix."""
        return self.name.partition(".")[0]

    @property
    def is_holding(self) -> bool:
        return self.id != ""

    @property
    def is_idle(self) -> bool:
        return self.token == ""

    def idle(self) -> "Worker":
        return self._replace(token="", id="", born="", samples=())


class Trainer(NamedTuple):
    name: str
    held: tuple[EntryName, ...] = ()
    is_gone: bool = False
    has_begun: bool = False
    life: int = 0
    owes: int = 0
    """Groups that it trained on since it published; like has_begun only where staleness has a bound."""
    publishing: str = ""
    """The token of a publication that was not answered."""


class Scope(NamedTuple):
    """What is explored: the groups' n, the fleet, and how often each event may happen, `faults` in all.

    `exempt` names invariants that an event of this scope breaks by itself.
    """

    n: tuple[int, ...] = (1, 1)
    config: Config = Config()
    workers: int = 2
    trainers: int = 1
    hold: int = 2
    events: tuple[tuple[str, int], ...] = ()
    faults: int = 2
    configs: tuple[Config, ...] = ()
    """What `configure` may set."""
    has_repair: bool = False
    """An operator may repair at any time."""
    at_once: int | None = None
    """So many workers load what is published at a time, 0: all; None: the trainer updates the engines itself."""
    has_one_engine: bool = False
    exempt: frozenset[str] = frozenset()

    def sizes(self) -> dict[str, int]:
        return dict(zip("abcdefgh", self.n, strict=False))


class World(NamedTuple):
    broker: Broker
    workers: tuple[Worker, ...]
    trainers: tuple[Trainer, ...]
    to_submit: tuple[str, ...]
    budget: Map[str, int]
    faults: int
    late: tuple[Call, ...] = ()
    entered: frozenset[EntryName] = frozenset()
    """Each entry that ever was in the stream, for I3."""
    broken: str = ""
    """The invariant that the last step broke."""
    loads_weights: bool = False
    """Workers load what is published."""


def start(scope: Scope) -> World:
    return World(
        broker=new_run(scope.config, "1"),
        workers=tuple(Worker(f"w{slot}") for slot in range(scope.workers)),
        trainers=tuple(Trainer(f"t{rank}") for rank in range(scope.trainers)),
        to_submit=tuple(scope.sizes()),
        budget=Map(sorted(scope.events)),
        faults=scope.faults,
        loads_weights=scope.at_once is not None,
    )


def spend(world: World, event: str) -> World | None:
    """The world in which this event happened, None if it may not happen (again)."""
    left = world.budget.get(event) or 0
    if not left or not world.faults:
        return None
    return world._replace(budget=world.budget.set(event, left - 1), faults=world.faults - 1)


def perform(world: World, call: Call) -> tuple[World, object]:
    """The broker executes the call; what it broke is in `broken`."""
    before = world.broker
    after, answer = STEPS[call.step](before, *call.arguments)
    entered = world.entered
    if len(after.completed) > len(before.completed):
        entered = entered | {after.completed[-1].name}
    broken = broken_by_step(Step(before, call.step, call.arguments, answer, after), world.entered)
    return world._replace(broker=after, entered=entered, broken=broken), answer


def lose(world: World, call: Call) -> World:
    """The call is on its way, and nobody will hear the answer."""
    return world._replace(late=tuple(sorted((*world.late, call), key=repr)))


def arrive(world: World, call: Call) -> World:
    late = list(world.late)
    late.remove(call)
    return world._replace(late=tuple(late))


def with_worker(world: World, worker: Worker, *, at: int) -> World:
    return world._replace(workers=(*world.workers[:at], worker, *world.workers[at + 1 :]))


def with_trainer(world: World, trainer: Trainer, *, at: int) -> World:
    return world._replace(trainers=(*world.trainers[:at], trainer, *world.trainers[at + 1 :]))


def tokens_in_use(world: World) -> set[str]:
    """Every token that somebody could still speak of."""
    broker = world.broker
    held = {worker.token for worker in world.workers} | set(broker.grants.each_key())
    by = {group.by for group in broker.groups.values() if group.by is not None}
    late = {token for call in world.late for token in tokens_in(call)}
    return held | by | late


def tokens_in(call: Call) -> tuple[str, ...]:
    match call.step:
        case "claim":
            return (f"{call.arguments[1]}/0",)
        case "heartbeat":
            return call.arguments[1]
        case "complete" | "release" | "drop" | "cancel" | "keep":
            return (call.arguments[0],)
        case _:
            return ()


def names_in_use(world: World) -> set[str]:
    """Every process that somebody could still speak of."""
    broker = world.broker
    late = {call.arguments[0] for call in world.late if call.step in ("claim", "heartbeat", "evict")}
    late |= {call.arguments[1] for call in world.late if call.step == "update"}
    late |= {turn.worker for turn in broker.turns.each_key()}
    return {worker_of(token) for token in tokens_in_use(world)} | broker.barred | broker.draining | late


def fresh_serial(world: World, worker: Worker) -> int:
    """Real serials only rise. Here one above all that somebody remembers does the same with fewer states."""
    used = [serial_of(token) for token in tokens_in_use(world) if worker_of(token) == worker.name]
    beats = [call.arguments for call in world.late if call.step == "heartbeat"]
    told = [settled - 1 for name, _, settled, _ in beats if name == worker.name]
    return max([0, *used, *told]) + 1


def settled_serial(world: World, worker: Worker) -> int:
    """All claims with a smaller serial are over for this worker."""
    is_claiming = not worker.is_idle and not worker.is_holding
    return serial_of(worker.token) if is_claiming else fresh_serial(world, worker)


def restarted(world: World, worker: Worker) -> Worker:
    """The next process in this slot, under another name than any that is still spoken of."""
    used = names_in_use(world)
    names = (worker.slot if not start else f"{worker.slot}.{start}" for start in range(99))
    serves = NONE if world.loads_weights and world.broker.version else 0
    return Worker(next(name for name in names if name not in used and name != worker.name), serves=serves)


def may_generate(world: World, worker: Worker) -> bool:
    """The weights that its engine has are in use, and it does not load others."""
    if not world.loads_weights or not world.broker.version:
        return True
    return not worker.loads and worker.serves != NONE


def settled(world: World) -> World:
    """What nobody can speak of any more is forgotten: states that differ in it only meet."""
    return without_tokens(without_holders(world))


def without_tokens(world: World) -> World:
    """Publications whose call nobody could repeat."""
    known = {trainer.publishing for trainer in world.trainers}
    known |= {call.arguments[0] for call in world.late if call.step == "publish"}
    recent = tuple(pair for pair in world.broker.recent if pair[1] in known)
    return world if recent == world.broker.recent else world._replace(broker=world.broker._replace(recent=recent))


def without_holders(world: World) -> World:
    """`by`, when nobody is left who could complete under that token."""
    broker = world.broker
    stale = [id for id, group in broker.groups if group.by is not None and not is_remembered(world, group.by)]
    groups = broker.groups
    for id in stale:
        group = groups.get(id)
        if group is not None:
            groups = groups.set(id, group._replace(by=""))
    return world._replace(broker=broker._replace(groups=groups)) if stale else world


def is_remembered(world: World, token: str) -> bool:
    if token == "":
        return True
    in_hand = any(worker.token == token for worker in world.workers)
    return in_hand or any(token in call.arguments for call in world.late if call.step == "complete")


def is_at_rest(world: World) -> bool:
    """Nothing is left to do, and no key but those of I5."""
    broker = world.broker
    lists = broker.prompts or broker.again or broker.groups or broker.completed or broker.samples or broker.partials
    leases = broker.leases or broker.grants or broker.outstanding
    people = any(not worker.is_idle for worker in world.workers) or any(trainer.held for trainer in world.trainers)
    behind = world.loads_weights and any(worker.serves != broker.version for worker in world.workers)
    return not (lists or leases or people or behind or world.to_submit or world.late)


def swapped(world: World) -> World:
    """The same world with the two workers' names exchanged: whatever can happen in one can happen in the other."""
    broker = Broker(*(renamed(name, value) for name, value in zip(Broker._fields, world.broker, strict=True)))
    others = {name: renamed(name, getattr(world, name)) for name in ("workers", "late")}
    return world._replace(broker=broker, **{**others, "workers": others["workers"][::-1]})


@lru_cache(maxsize=200_000)
def renamed(field: str, value: Any) -> Any:
    """Worlds share most of their fields. Under one field equal values have equal types, as a cache needs."""
    return rename(value)


@cache
def swapped_name(name: str) -> str:
    swap = {"w0": "w1", "w1": "w0"}
    return swap.get(name[:2], name[:2]) + name[2:]


def rename(value: Any) -> Any:
    if isinstance(value, str):
        return swapped_name(value)
    if isinstance(value, frozenset):
        return frozenset(map(rename, value))  # pyright: ignore[reportUnknownArgumentType]
    if not isinstance(value, tuple):
        return value
    parts: list[Any] = list(map(rename, value))  # pyright: ignore[reportUnknownArgumentType]
    return in_order(value, parts)  # pyright: ignore[reportUnknownArgumentType]


def in_order(value: tuple[Any, ...], parts: list[Any]) -> Any:
    """A map and the late calls are sorted, and stay so under other names."""
    if isinstance(value, Map):
        return Map(sorted(parts, key=first))
    if value and isinstance(value[0], Call):
        return tuple(sorted(parts, key=repr))
    return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)


def first(pair: tuple[Any, Any]) -> Any:
    return pair[0]
