"""A fleet for the operator's tests: a cluster in this process, a real Valkey, workers that only tell and claim."""

import itertools
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from deploy.operator.broker_view import pod_uid
from deploy.operator.leader import Leader
from deploy.operator.loop import Lines, Loop
from deploy.operator.settings import OperatorSettings
from deploy.operator.watch import Watches
from rolloutfleet.broker import Beat, Broker, Claim
from rolloutfleet.metrics import OperatorMetrics
from rolloutfleet.pods import FLEETS, FleetKeys, FleetReport, read_reports
from rolloutfleet.redis import connect
from rolloutfleet.settings import RunConfig
from tests.fakes.broker import group
from tests.fakes.cluster import FakeCluster

POOL = "worker"
_numbers = itertools.count(1)


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Operator:
    """One operator process: its own clock, leader, cache and loop."""

    def __init__(self, world: "World", name: str, **settings: Any) -> None:
        base: dict[str, Any] = {
            "redis_url": world.redis_url,
            "run": world.broker.keys.run,
            "fleet": world.fleet,
            "deployments": (POOL,),
            "worker_replicas": (1,),
            "drain_seconds": 1000,
        }
        self.settings = OperatorSettings(**base | settings)
        self.clock = world.clock
        self.metrics = OperatorMetrics()
        self.leader = Leader(world.cluster, "lease", name, self.clock)
        self.watch = Watches(world.cluster, lambda: self.leader.is_leading, self.settings.kinds.values())
        self.lines = Lines(world.cluster, world.broker, self.leader, self.watch, self.metrics)
        self.loop = Loop(self.settings, self.lines)

    async def look(self) -> None:
        """One look with all that is fresh: as if lease and list were due just now."""
        await self.leader.step()
        if self.leader.is_leading:
            await self.watch.relist()
        self.clock.now += 1
        await self.loop.look()


class World:
    """`operator` is the first one; `another` makes a second."""

    def __init__(self, redis_url: str, broker: Broker, cluster: FakeCluster, **settings: Any) -> None:
        self.redis_url, self.broker, self.cluster = redis_url, broker, cluster
        self.fleet = f"ml/fleet-{next(_numbers)}"
        self.clock = Clock()
        self._settings = settings
        self.operator = self.another("operator-0")

    def another(self, name: str, **settings: Any) -> Operator:
        return Operator(self, name, **self._settings | settings)

    async def looks(self, count: int = 3, operator: Operator | None = None) -> None:
        """So many looks, with the cluster at work between them."""
        for _ in range(count):
            await (operator or self.operator).look()
            self.cluster.settle()
            await self.beat_all()

    async def beat(self, pod: str, *, slots: int = 4, **facts: Any) -> str:
        """The worker of a pod tells of itself; its name."""
        worker = f"{self.cluster.uid(pod)}/{self.cluster.now * 1000}"
        for known in [name for name in await self.workers() if pod_uid(name) == self.cluster.uid(pod)]:
            worker = known
        told = {"fleet": self.fleet, "pod_name": pod, "pod": self.cluster.uid(pod), "busy": 0, "state": "ready"}
        await self.broker.heartbeat(Beat(worker, await self.tokens(worker), slots, told | facts))
        return worker

    async def beat_all(self) -> None:
        """All running pods' workers tell of themselves."""
        for name, pod in list(self.cluster.pods.items()):
            if pod["status"]["phase"] == "Running" and not pod["metadata"].get("deletionTimestamp"):
                await self.beat(name)

    async def workers(self) -> list[str]:
        (names,) = await self.broker.calls.read([["ZRANGE", self.broker.keys.named("workers"), 0, -1]])
        return [name.decode() for name in names]

    async def tokens(self, worker: str) -> list[str]:
        (tokens,) = await self.broker.calls.read([["HKEYS", self.broker.keys.named("grants")]])
        return [token.decode() for token in tokens if token.decode().rsplit("/", 2)[0] == worker]

    async def claim(self, pod: str, count: int = 1) -> Claim:
        """The worker of a pod claims new groups."""
        worker = await self.beat(pod)
        await self.broker.submit([group(f"g-{next(_numbers)}", n=2) for _ in range(count)])
        return await self.broker.claim(worker, f"{worker}/{next(_numbers)}", count)

    async def release(self, claim: Claim) -> None:
        for grant in claim.grants:
            await self.broker.release(grant.token, "free")

    async def draining(self) -> set[str]:
        """Names of pods whose workers were told to drain."""
        (told,) = await self.broker.calls.read([["ZRANGE", self.broker.keys.named("draining"), 0, -1]])
        names = {pod["metadata"]["uid"]: name for name, pod in self.cluster.pods.items()}
        return {names[pod_uid(worker.decode())] for worker in told if pod_uid(worker.decode()) in names}

    async def report(self) -> FleetReport:
        _, reports = await read_reports(self.broker.calls)
        return next(report for report in reports if report.fleet == self.fleet)


@asynccontextmanager
async def made_world(redis_url: str, run: str, gpus: int | None = None, **settings: Any) -> AsyncGenerator[World]:
    async with connect(redis_url) as client:
        broker = Broker(client, run, retry_seconds=5)
        await broker.configure(RunConfig(n=2, sample_concurrency=1000, lease_seconds=600))
        world = World(redis_url, broker, FakeCluster(gpus), **settings)
        try:
            yield world
        finally:
            keys = FleetKeys(world.fleet)
            await client.delete(keys.pods, keys.marks, keys.operator)
            await client.zrem(FLEETS, world.fleet)
