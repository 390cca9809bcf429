"""The operator's look at the fleet, each second and whenever a pod or a Deployment changes, and what it does about it.

Invariants: only the leader does anything; evictions and what the broker needs come before scaling, and do not wait for
it; while Redis or the pods are unknown nothing is drained or shrunk; a look that fails is made again.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import dataclass, replace

from deploy.operator.broker_view import BrokerView, read_view, samples_left
from deploy.operator.cluster import Cluster, ClusterError
from deploy.operator.events import Events
from deploy.operator.evict import Evictor, suspects
from deploy.operator.fleet import Fleet
from deploy.operator.leader import Leader, NotLeading
from deploy.operator.objects import Deployment
from deploy.operator.reconcile import PERSON, RESTART, SCALE, Plan, Rules, plan
from deploy.operator.relief import Relief
from deploy.operator.report import Reporter
from deploy.operator.scale import Done, Scaler
from deploy.operator.settings import OperatorSettings
from deploy.operator.wanted import Asker, Wanted, wanted
from deploy.operator.watch import Watches
from rolloutfleet.broker import Broker
from rolloutfleet.errors import BrokerUnavailable, RunMissing
from rolloutfleet.metrics import OperatorMetrics
from rolloutfleet.pods import FleetKeys

log = logging.getLogger("operator")

LOOK_SECONDS = 1.0
LEAVING = {SCALE: "fewer workers are wanted", RESTART: "it is to be replaced", PERSON: "somebody wants it drained"}


@dataclass(frozen=True, slots=True)
class Lines:
    """What the loop speaks to."""

    cluster: Cluster
    broker: Broker
    leader: Leader
    watch: Watches
    metrics: OperatorMetrics


class Loop:
    """`look` is one look; `run` makes them until `stop`."""

    def __init__(self, settings: OperatorSettings, lines: Lines) -> None:
        self.looked_at = time.monotonic()
        self._settings = settings
        self._lines = lines
        self.keys = FleetKeys(settings.fleet)
        check = lines.leader.check
        self._events = Events(lines.cluster, settings.namespace, check)
        self._evictor = Evictor(lines.cluster, lines.broker, check)
        self._relief = Relief(lines.broker, self.keys, check)
        self._scaler = Scaler(lines.cluster, lines.broker, self.keys, check)
        self._asker = Asker(settings)
        self._reporter = Reporter(settings, lines.broker, self._events, lines.metrics, lines.leader.identity)
        self._deployments: dict[str, Deployment] = {}
        self._has_changed = False  # Deployments are not as they were seen
        self._problems: dict[str, str] = {}

    async def run(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            began = time.monotonic()
            self._lines.watch.changed.clear()
            await self.look()
            self.looked_at = time.monotonic()
            await self._wait(stop, began + LOOK_SECONDS - time.monotonic())

    async def _wait(self, stop: asyncio.Event, seconds: float) -> None:
        """Until something changes, or it is time; a quarter of a second at least, while many change."""
        await asyncio.sleep(0.0 if stop.is_set() else 0.25)
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, seconds - 0.25)):
                await self._lines.watch.changed.wait()

    async def look(self) -> None:
        """One look. Nothing that is away ends the process."""
        self._lines.metrics.leading.set(self._lines.leader.is_leading)
        if not self._lines.leader.is_leading:
            self._forget()
            return
        with self._lines.metrics.look_seconds.time():
            try:
                await self._act()
            except NotLeading as error:
                log.warning("no longer leads: %s", error)
        self._lines.metrics.looks.inc()

    def _forget(self) -> None:
        """Another leads: what it did meanwhile is not known."""
        self._deployments = {}
        self._asker.forget()

    async def _act(self) -> None:
        view = await self._view()
        if view is not None:
            self._asker.see(view.status, time.monotonic())
            await self._try("broker", self._relieve(view))
            if self._lines.watch.is_known:
                await self._try("cluster", self._evict(view))
        await self._try("cluster", self._read_deployments())
        fleet = Fleet(self._lines.watch.pods, self._deployments, view)
        number = self._wanted(fleet)
        if self._lines.watch.is_known and len(self._deployments) == len(self._settings.deployments):
            await self._try("scaling", self._scale(fleet, number))
        await self._try("report", self._reporter.report(fleet, number, self._problem()))

    async def _try(self, what: str, work: Awaitable[None]) -> None:
        """Does a part of the look; one that fails doesn't keep the others from theirs. Errors: NotLeading."""
        try:
            await work
        except (ClusterError, BrokerUnavailable) as error:
            self._lines.metrics.failures.labels(what).inc()
            if self._problems.get(what) != str(error):
                log.warning("%s: %s", what, error)
            self._problems[what] = str(error)
        else:
            self._problems.pop(what, None)

    def _problem(self) -> str:
        """Why the cluster can't be seen or changed, for the page."""
        return self._problems.get("cluster") or self._problems.get("scaling") or self._lines.watch.problem

    async def _view(self) -> BrokerView | None:
        try:
            view = await read_view(self._lines.broker, self.keys)
            if view is None:
                raise RunMissing(f"there is no run {self._settings.run!r} yet: `rolloutfleet configure` makes it")
        except (BrokerUnavailable, RunMissing, ValueError, TypeError) as error:
            if self._problems.get("redis") != str(error):
                log.warning("the run is not known: %s", error)
            self._problems["redis"] = str(error)
            self._lines.metrics.failures.labels("redis").inc()
            return None
        self._problems.pop("redis", None)
        return view

    async def _relieve(self, view: BrokerView) -> None:
        self._lines.metrics.reaped.inc(await self._relief.reap())
        if await self._relief.repair_if_new(view):
            self._lines.metrics.repairs.inc()

    async def _evict(self, view: BrokerView) -> None:
        for worker, pod_name in list(suspects(view.status.workers, self._lines.watch.pods, self._settings.fleet)):
            pod, evicted = await self._evictor.evict(worker, pod_name)
            if pod is not None:
                self._lines.watch.see_pod(pod)
            if evicted is None:
                continue
            self._lines.metrics.evicted.labels(str(evicted.gone.counts).lower()).inc()
            self._lines.metrics.freed.inc(evicted.freed)
            if evicted.freed:  # otherwise it had said goodbye, or was idle
                message = f"pod {pod_name}: {evicted.gone.reason}; {evicted.freed} groups are free for others"
                await self._say_of(pod_name, "WorkerEvicted", message)

    async def _read_deployments(self, *, now: bool = False) -> None:
        """Of the watch; or asked for `now`, and after each change, which the watch may tell later than we look."""
        if now or self._has_changed:
            for name, kind in self._settings.kinds.items():
                self._lines.watch.see_deployment(await self._lines.cluster.get_deployment(name, kind))
            self._has_changed = False
        seen = self._lines.watch.deployments
        self._deployments = {name: seen[name] for name in self._settings.deployments if name in seen}

    def _wanted(self, fleet: Fleet) -> Wanted:
        status = fleet.view.status if fleet.view else None
        return wanted(self._settings, self._asker, status, fleet.deployments, fleet.units(), time.monotonic())

    async def _scale(self, fleet: Fleet, number: Wanted) -> None:
        view = fleet.view
        if view is None:
            await self._only_grow(fleet, number)
            return
        first = self._plan(fleet, number)
        if first.leaving:  # whom to choose depends on what each has left to do
            fleet = replace(fleet, samples=await samples_left(self._lines.broker, view))
            first = self._plan(fleet, number)
        told = await self._scaler.mark(first, fleet.units(), view)
        for name, why in told.items():
            await self._say_of(name, "Draining", f"pod {name} claims no more: {LEAVING[why]}")
        if first.deletes or first.replicas:
            await self._change(fleet, number)

    async def _change(self, fleet: Fleet, number: Wanted) -> None:
        """Looks again at what is to be changed, plans anew, and changes it."""
        await self._read_deployments(now=True)
        _, pods = await self._lines.cluster.list_pods()
        fresh = replace(fleet, deployments=self._deployments, pods={pod.uid: pod for pod in pods})
        done = await self._scaler.carry_out(self._plan(fresh, number), fresh.units(), self._deployments)
        await self._tell(done, number)

    async def _only_grow(self, fleet: Fleet, number: Wanted) -> None:
        """Redis is unknown: who holds what can't be said, and nobody is sent away."""
        more = {pool.name: pool.wanted or 0 for pool in fleet.pools(number) if (pool.wanted or 0) > pool.replicas}
        if more:
            await self._read_deployments(now=True)
            await self._tell(await self._scaler.carry_out(Plan({}, {}, more), (), self._deployments), number)

    def _plan(self, fleet: Fleet, number: Wanted) -> Plan:
        now_ms = fleet.view.now_ms if fleet.view else 0
        rules = Rules(now_ms, round(self._settings.drain_seconds * 1000), self._settings.max_unavailable)
        return plan(fleet.units(), fleet.pools(number), rules)

    async def _tell(self, done: Done, number: Wanted) -> None:
        if done.deleted or done.scaled:
            self._has_changed = True
        for name, why in done.deleted.items():
            self._lines.metrics.deleted.labels(why).inc()
            await self._say_of(name, "Deleted", f"pod {name} holds nothing any more: {LEAVING[why]}")
        for pool, (before, after) in done.scaled.items():
            self._lines.metrics.scaled.labels(pool).inc()
            await self._say_of(pool, "Scaled", f"from {before} to {after}: {number.sentence}")

    async def _say_of(self, name: str, reason: str, message: str) -> None:
        """Of a pod or a Deployment, on the Deployment: a pod's name begins with that of its own."""
        pools = [pool for pool in self._deployments if name.startswith(pool)]
        if pools:
            await self._events.say(self._deployments[max(pools, key=len)], reason, message)
