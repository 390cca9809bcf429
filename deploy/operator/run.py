"""Runs an operator until it is stopped: the Lease, the pods, the looks and the probes, side by side.

Invariant: whatever is not there yet (API server, Redis, the run, a right) is said once and asked for again.
"""

import asyncio
import logging
import secrets
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress

from deploy.operator.cluster import Cluster, ClusterError
from deploy.operator.leader import RENEW_SECONDS, Leader
from deploy.operator.loop import Lines, Loop
from deploy.operator.probes import Probes
from deploy.operator.settings import OperatorSettings
from deploy.operator.watch import Watches
from rolloutfleet.broker import Broker
from rolloutfleet.metrics import OperatorMetrics
from rolloutfleet.redis import connect

log = logging.getLogger("operator")

_BROKER_SECONDS = 1.0  # then the next look asks again
_RETRY_SECONDS = 2.0

type Connect = Callable[[OperatorMetrics], Cluster]


async def serve(settings: OperatorSettings, connect_cluster: Connect, stop: asyncio.Event) -> None:
    """Errors: ClusterError where there is no cluster at all; OSError where the probes' port is taken."""
    async with AsyncExitStack() as things:
        metrics = OperatorMetrics()
        cluster = connect_cluster(metrics)
        client = await things.enter_async_context(connect(settings.redis_url, connections=8))
        broker = Broker(client, settings.run, retry_seconds=_BROKER_SECONDS)
        leader = Leader(cluster, settings.lease_name, f"{settings.pod_name}_{secrets.token_hex(4)}")
        watch = Watches(cluster, lambda: leader.is_leading, settings.kinds.values())
        loop = Loop(settings, Lines(cluster, broker, leader, watch, metrics))
        probes = Probes(metrics.registry, loop, leader)
        await probes.start(settings.probe_host, settings.probe_port)
        things.push_async_callback(probes.stop)
        log.info("starts as %s fleet=%s owner=%s", leader.identity, settings.fleet, settings.scaling_owner)
        await _until_stopped(leader, watch, loop, stop)
        with suppress(ClusterError):
            await leader.release()


async def _until_stopped(leader: Leader, watch: Watches, loop: Loop, stop: asyncio.Event) -> None:
    async with asyncio.TaskGroup() as tasks:
        background = [tasks.create_task(lead(leader)), tasks.create_task(watch.run())]
        await loop.run(stop)
        for one in background:
            one.cancel()


async def lead(leader: Leader) -> None:
    """Renews or looks, for ever; says when it begins to lead and when it ends."""
    said, led = "", False
    while True:
        seconds = RENEW_SECONDS
        try:
            await leader.step()
            said = ""
        except ClusterError as error:
            seconds = _RETRY_SECONDS
            if str(error) != said:
                said = str(error)
                log.warning("the Lease: %s", error)
        if leader.is_leading != led:
            led = leader.is_leading
            log.info("leads" if led else "leads no more; the holder is %s", *(() if led else (leader.holder,)))
        await asyncio.sleep(seconds if leader.holder or said else 0.1)
