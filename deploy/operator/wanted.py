"""How many replicas each pool should have: by the owner of the scaling.

Invariants: who does not own it wants nothing (None); what is not known yet changes nothing; the number of `operator`
stays within its bounds, and falls only after a cool-down in which fewer would have done.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from deploy.operator.objects import REPLICAS, Deployment, Kind
from deploy.operator.reconcile import SCALE, Unit, first_to_go, in_order
from deploy.operator.settings import OperatorSettings, Owner
from rolloutfleet.demand import Bounds, Demand, desired_workers
from rolloutfleet.history import History, point_of
from rolloutfleet.status import Status


@dataclass(frozen=True, slots=True)
class Wanted:
    """Replicas by pool (None: not the operator's to say), and why, for a person."""

    replicas: Mapping[str, int | None]
    sentence: str


def fixed(settings: OperatorSettings, deployments: Mapping[str, Deployment]) -> Wanted:
    """worker.replicas, or what a person asked for instead of it since it was last changed."""
    numbers: dict[str, int | None] = {}
    said: list[str] = []
    for pool, number in settings.fixed_replicas.items():
        asked = asked_for(deployments[pool], number) if pool in deployments else None
        numbers[pool] = number if asked is None else asked
        said.append(f"{pool}: {number}" if asked is None else f"{pool}: {asked}, asked for instead of {number}")
    return Wanted(numbers, f"fixed, {'; '.join(said)}")


def order_of(number: int, instead_of: int) -> str:
    """The annotation by which a person asks for another number than `worker.replicas`."""
    return f"{number} instead of {instead_of}"


def asked_for(deployment: Deployment, number: int) -> int | None:
    """What was asked for by annotation; None: nothing, or `worker.replicas` has changed since."""
    found = re.fullmatch(r"(\d{1,5}) instead of (\d{1,5})", deployment.annotations.get(REPLICAS, ""))
    return int(found[1]) if found and int(found[2]) == number else None


class Asker:
    """What the run can use. Remembers its last hour; a new leader knows nothing, and shrinks nothing for a while."""

    def __init__(self, settings: OperatorSettings) -> None:
        self._settings = settings
        self._history = History()
        self._idle_since: float | None = None  # nothing to do, and no worker

    def see(self, status: Status, at: float) -> None:
        self._history.add(point_of(status, at))
        is_idle = not status.workers and not status.queued and not status.window.active
        self._idle_since = (self._idle_since if self._idle_since is not None else at) if is_idle else None

    def forget(self) -> None:
        self._history, self._idle_since = History(), None

    def asks(self, status: Status, standing: int, at: float) -> tuple[int, str]:
        """(workers, why). `standing`: replicas that are there or come, without those that were told to go."""
        number, why = desired_workers(self._demand(status))
        live = sum(not worker.draining for worker in status.workers)
        target = standing
        if number > live:
            target = max(standing, number)
        elif number < live:
            target = min(standing, number)
        elif self._idle_since is not None and at - self._idle_since >= self._settings.cooldown_seconds:
            target, why = 0, "nothing is to be done, for longer than the cool-down"
        held = max(self._settings.min_workers, min(self._settings.max_workers, target))
        if held != target:
            why += f"; held at the {'least' if held > target else 'most'} of {held}"
        return held, why

    def _demand(self, status: Status) -> Demand:
        able = [worker for worker in status.workers if not worker.draining]
        busy = [worker.facts["busy"] for worker in able if isinstance(worker.facts.get("busy"), int)]
        spent = self._history.spent(self._settings.cooldown_seconds)
        shares = spent.shares if spent and spent.observed_seconds else None
        return Demand(
            window=status.window,
            is_auto=status.config.sample_concurrency == "auto",
            reason=status.reason,
            queued=status.queued,
            workers=len(able),
            slots=sum(worker.slots for worker in able),
            busy_now=sum(busy) if busy else None,
            busy=self._history.busy(self._settings.cooldown_seconds),
            slack=None if shares is None else shares.get("completed_full", 0.0) + shares.get("no_prompts", 0.0),
            bounds=Bounds(0, self._settings.max_workers),
        )


def wanted(
    settings: OperatorSettings,
    asker: Asker,
    status: Status | None,
    deployments: Mapping[str, Deployment],
    units: Sequence[Unit],
    at: float,
) -> Wanted:
    """The numbers by owner. `status`: None while Redis is unknown."""
    match settings.scaling_owner:
        case Owner.FIXED:
            return fixed(settings, deployments)
        case Owner.KEDA:
            return Wanted(dict.fromkeys(settings.deployments), "KEDA decides the number")
        case Owner.OPERATOR:
            pass
    if status is None or len(deployments) < len(settings.deployments):
        return Wanted(dict.fromkeys(settings.deployments), "the run or the Deployments are not known: nothing changes")
    leaving = sum(unit.leaving == SCALE for unit in units)
    standing = sum(deployment.replicas for deployment in deployments.values()) - leaving
    number, why = asker.asks(status, max(0, standing), at)
    return spread(number, why, [deployments[name] for name in settings.deployments], units)


def spread(number: int, why: str, pools: Sequence[Deployment], units: Sequence[Unit]) -> Wanted:
    """A number over pools: more go to the first that has room, fewer are taken where least is lost."""
    counts = {pool.name: pool.replicas for pool in pools}
    more = number - sum(counts.values())
    if more > 0:
        return _grown(counts, more, why, units)
    for pool in pools:  # what isn't there is lost first
        absent = max(0, pool.replicas - sum(unit.pool == pool.name for unit in units))
        cut = min(absent, -more)
        counts[pool.name] -= cut
        more += cut
    for unit in _to_go(pools, units)[:-more] if more else []:
        counts[unit.pool] -= 1
    return Wanted(dict(counts), why)


def _to_go(pools: Sequence[Deployment], units: Sequence[Unit]) -> list[Unit]:
    """All, in the order in which they go: each pool's own, and of those that are next the one with whom least goes."""
    lines = [in_order((u for u in units if u.pool == pool.name), is_set=pool.kind is Kind.SET) for pool in pools]
    found: list[Unit] = []
    while lines := [line for line in lines if line]:
        found.append(min(lines, key=lambda line: first_to_go(line[0])).pop(0))
    return found


def _grown(counts: Mapping[str, int], more: int, why: str, units: Sequence[Unit]) -> Wanted:
    full = {unit.pool for unit in units if unit.is_homeless}
    roomy = [name for name in counts if name not in full]
    if not roomy:
        return Wanted(dict(counts), f"{why}; but pods that are there find no node")
    return Wanted(dict(counts) | {roomy[0]: counts[roomy[0]] + more}, why)
