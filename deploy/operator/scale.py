"""Carrying out a plan: marks, then pods by uid, then the number of replicas over the version that was read.

Invariants: the order is the one in which a crash between any two steps heals itself: a mark without its pod's end is
planned again or taken back, a pod that went without the number is replaced by one that goes next, Pending. Before
anything shrinks, pods and Deployment are read again and the plan is made anew.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from deploy.operator.broker_view import BrokerView, Mark, take_back_marks, write_marks
from deploy.operator.cluster import Cluster, ClusterUnavailable, Conflict, Missing
from deploy.operator.objects import Deployment
from deploy.operator.reconcile import Plan, Unit
from rolloutfleet.broker import Broker
from rolloutfleet.pods import FleetKeys

log = logging.getLogger("operator.scale")

_TRIES = 5  # 409 is common: the status of a Deployment changes its version, too


@dataclass(frozen=True, slots=True)
class Done:
    """What was done: pods that went (name -> why), and pools whose number changed (from, to)."""

    deleted: Mapping[str, str]
    scaled: Mapping[str, tuple[int, int]]


class Scaler:
    """`check` is called before each write."""

    def __init__(self, cluster: Cluster, broker: Broker, keys: FleetKeys, check: Callable[[], None]) -> None:
        self._cluster = cluster
        self._broker = broker
        self._keys = keys
        self._check = check

    async def mark(self, plan: Plan, units: Sequence[Unit], view: BrokerView) -> dict[str, str]:
        """Tells who is to drain, and takes back who is not; pod names that were newly told -> why."""
        told = {worker.name for worker in view.status.workers if worker.draining}
        new: dict[str, Mark] = {}
        names: dict[str, str] = {}
        for unit in units:
            why = plan.leaving.get(unit.uid)
            for worker in unit.workers if why else ():
                mark = view.marks.get(worker)
                if mark is None or mark.why != why or worker not in told:
                    # Its time runs from when it was first told, whatever the reason; not while it had forgotten.
                    new[worker] = Mark(why or "", mark.since_ms if mark and worker in told else view.now_ms)
                    names |= {unit.name: why or ""} if mark is None else {}
        if new:
            self._check()
            await write_marks(self._broker, self._keys, new)
        await self._take_back(plan, units, view)
        return names

    async def _take_back(self, plan: Plan, units: Sequence[Unit], view: BrokerView) -> None:
        """Of those that stay. One whose pod ends keeps its mark; that of one that has ended is forgotten."""
        staying = {worker for unit in units if unit.uid not in plan.leaving for worker in unit.workers}
        live = {worker.name for worker in view.status.workers}
        back = [worker for worker in view.marks if worker in staying or worker not in live]
        if back:
            self._check()
            await take_back_marks(self._broker, self._keys, back)

    async def carry_out(self, plan: Plan, units: Sequence[Unit], deployments: Mapping[str, Deployment]) -> Done:
        """Deletes, then sets the numbers. Errors: ClusterError, NotLeading; what was done until then stands."""
        deleted: dict[str, str] = {}
        scaled: dict[str, tuple[int, int]] = {}
        for unit in units:
            if unit.uid in plan.deletes and await self._delete(unit):
                deleted[unit.name] = plan.deletes[unit.uid]
        for pool, number in plan.replicas.items():
            if await self._set(deployments[pool], number):
                scaled[pool] = (deployments[pool].replicas, number)
        return Done(deleted, scaled)

    async def _delete(self, unit: Unit) -> bool:
        self._check()
        try:
            await self._cluster.delete_pod(unit.name, unit.uid)
        except (Missing, Conflict) as error:
            log.info("pod %s has gone by itself: %s", unit.name, error)
            return False
        log.info("deleted pod %s, which held %d groups", unit.name, unit.groups)
        return True

    async def _set(self, seen: Deployment, number: int) -> bool:
        """Sets the number, unless its spec has changed since it was seen: then the next look plans anew."""
        for _ in range(_TRIES):
            now = await self._cluster.get_deployment(seen.name, seen.kind)
            if (now.generation, now.uid) != (seen.generation, seen.uid):
                return False
            self._check()
            try:
                await self._cluster.patch_scale(seen.name, number, now.resource_version, seen.kind)
            except Conflict:
                continue
            log.info("scaled %s from %d to %d", seen.name, seen.replicas, number)
            return True
        raise ClusterUnavailable(f"{seen.name} changes so fast that its number could not be set; it is tried again")
