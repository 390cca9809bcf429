"""What is to be done, as a pure function: the fleet as it is and the numbers that are wanted in, one step out.

Invariants: a busy pod is not chosen while an idle one stands; a pod goes only when its workers can claim nothing any
more and hold nothing, or when their time is over and no idle one is left; nothing shrinks while a rollout runs; what
was told to go is taken back as soon as it is wanted again. Nothing is remembered but the marks, which the next leader
reads: a step that was cut off anywhere is planned again.

A LeaderWorkerSet gives no choice: it drops its highest index, and makes a deleted pod again under the same one. So
those above the number that is wanted drain, busy or not, and the number falls as far as those at its end are done.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

SCALE, RESTART, PERSON = "scale", "restart", "person"


@dataclass(frozen=True, slots=True)
class Unit:
    """A pod that its ReplicaSet or set counts, with its worker processes."""

    uid: str
    name: str
    pool: str
    index: int = 0  # of its group, in a set
    is_ready: bool = True
    created_at: int = 0
    groups: int = 0  # that its workers hold
    samples: int = 0  # of these, not finished
    is_stale: bool = False  # its weights are not the newest
    workers: tuple[str, ...] = ()
    is_told: bool = True  # each of its workers was told to drain, before `groups` was read
    leaving: str = ""  # why the operator told it; empty: it did not
    since_ms: int = 0  # when it did
    is_drained_by_person: bool = False
    is_homeless: bool = False  # no node has room for it

    @property
    def is_busy(self) -> bool:
        return self.groups > 0


@dataclass(frozen=True, slots=True)
class Pool:
    """A Deployment, or a set. `wanted`: replicas; None: another decides, or it is not known."""

    name: str
    replicas: int
    wanted: int | None
    is_rolling: bool = False  # a rollout runs
    is_settled: bool = True  # its pods are there, as far as they can be
    restart_at: int | None = None  # pods made up to this second are to be replaced
    drops_last: bool = False  # a LeaderWorkerSet


@dataclass(frozen=True, slots=True)
class Rules:
    now_ms: int
    drain_ms: int
    max_unavailable: int = 1


@dataclass(frozen=True, slots=True)
class Plan:
    """`leaving`: pod uid -> why, all that should be draining. `deletes`: pods that go now. `replicas`: what to set."""

    leaving: Mapping[str, str]
    deletes: Mapping[str, str]
    replicas: Mapping[str, int]


def plan(units: Sequence[Unit], pools: Sequence[Pool], rules: Rules) -> Plan:
    """One step towards what is wanted."""
    leaving = {unit.uid: PERSON for unit in units if unit.is_drained_by_person}
    deletes: dict[str, str] = {}
    replicas: dict[str, int] = {}
    for pool in pools:
        mine = [unit for unit in units if unit.pool == pool.name]
        chosen = victims(mine, pool)
        leaving |= {unit.uid: SCALE for unit in chosen}
        if pool.drops_last:
            number = _number_of_set(pool, chosen, rules)
        else:
            going = _may_go(chosen, rules) if pool.is_settled else []
            deletes |= {unit.uid: SCALE for unit in going}
            number = _number(pool, len(mine), len(going))
        if number != pool.replicas:
            replicas[pool.name] = number
    for unit in _restarts(units, pools, leaving, rules):
        leaving[unit.uid] = RESTART
        if unit in _may_go([unit], rules):
            deletes[unit.uid] = RESTART
    return Plan(leaving, deletes, replicas)


def victims(units: Sequence[Unit], pool: Pool) -> list[Unit]:
    """Those that go, the first one first."""
    if pool.wanted is None or pool.is_rolling:
        return []
    if pool.drops_last:
        return [unit for unit in in_order(units, is_set=True) if unit.index >= pool.wanted]
    return in_order(units)[: max(0, len(units) - pool.wanted)]


def in_order(units: Iterable[Unit], *, is_set: bool = False) -> list[Unit]:
    """Those of one pool, the first one to go first."""
    return sorted(units, key=lambda unit: -unit.index) if is_set else sorted(units, key=first_to_go)


def first_to_go(unit: Unit) -> tuple[object, ...]:
    """Idle before busy; then what was told already; then unready, stale, with the fewest samples, young."""
    is_chosen = unit.leaving == SCALE
    order = (unit.is_ready, not unit.is_stale, unit.samples, -unit.created_at, unit.name)
    return (unit.is_busy, not is_chosen, not unit.is_drained_by_person, *order)


def _may_go(chosen: Iterable[Unit], rules: Rules) -> list[Unit]:
    """Those that hold nothing for certain. One whose time is over goes, too, but not before the last idle one."""
    idle = [unit for unit in chosen if not unit.is_busy]
    if idle:
        return [unit for unit in idle if unit.is_told]
    return [unit for unit in chosen if _is_over(unit, rules)]


def _is_over(unit: Unit, rules: Rules) -> bool:
    return unit.leaving in (SCALE, RESTART) and unit.is_told and rules.now_ms - unit.since_ms >= rules.drain_ms


def _number_of_set(pool: Pool, chosen: Iterable[Unit], rules: Rules) -> int:
    """As low as no index goes whose worker holds something and has time left."""
    if pool.wanted is None or pool.wanted >= pool.replicas:
        return pool.replicas if pool.wanted is None else pool.wanted
    if pool.is_rolling:
        return pool.replicas
    staying = [unit.index + 1 for unit in chosen if not (_is_done(unit) or _is_over(unit, rules))]
    return min(pool.replicas, max([pool.wanted, *staying]))


def _is_done(unit: Unit) -> bool:
    return unit.is_told and not unit.is_busy


def _number(pool: Pool, standing: int, going: int) -> int:
    """The replicas to set. Shrinking follows what has gone: otherwise the ReplicaSet would choose."""
    if pool.wanted is None or (pool.wanted < pool.replicas and not (pool.is_settled and not pool.is_rolling)):
        return pool.replicas
    if pool.wanted >= pool.replicas:
        return pool.wanted
    return min(pool.replicas, max(pool.wanted, standing - going))


def _restarts(units: Sequence[Unit], pools: Sequence[Pool], leaving: Mapping[str, str], rules: Rules) -> list[Unit]:
    """Old pods that are to be replaced now: those that serve nothing, and so many more that enough engines stay.

    One that was told to go is taken back when an idle one stands, or when another pod has failed meanwhile.
    """
    if any(pool.is_rolling or not pool.is_settled for pool in pools) or SCALE in leaving.values():
        return []
    since = {pool.name: pool.restart_at for pool in pools}
    old = [unit for unit in units if _is_old(unit, since.get(unit.pool))]
    away = [unit for unit in units if not unit.is_ready or unit.uid in leaving]
    room = rules.max_unavailable - len(away) - _missing(units, pools)
    serving = sorted((unit for unit in old if unit not in away), key=_first_to_restart)
    return [unit for unit in old if unit in away] + serving[: max(0, room)]


def _first_to_restart(unit: Unit) -> tuple[object, ...]:
    return (unit.is_busy, unit.leaving != RESTART, *first_to_go(unit))


def _is_old(unit: Unit, restart_at: int | None) -> bool:
    return restart_at is not None and unit.created_at <= restart_at


def _missing(units: Sequence[Unit], pools: Sequence[Pool]) -> int:
    return sum(max(0, pool.replicas - sum(unit.pool == pool.name for unit in units)) for pool in pools)
