"""When a worker is gone for certain, and freeing what it held.

Invariants: a worker is evicted only on what the API server says of its pod at that moment, asked by name; only if it
carries this fleet's name; never because of its node (a node that is cut off may run it still: its heartbeats decide).
What the cluster took is no failed attempt of its groups; what ended by itself with a fault is one.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from deploy.operator.broker_view import pod_uid, started_ms
from deploy.operator.cluster import Cluster
from deploy.operator.objects import Container, Pod
from rolloutfleet.broker import Broker
from rolloutfleet.status import WorkerStatus

log = logging.getLogger("operator.evict")

CONTAINER = "worker"


@dataclass(frozen=True, slots=True)
class Gone:
    """A worker that is gone: why, and whether its groups' attempts count as failed."""

    reason: str
    counts: bool


@dataclass(frozen=True, slots=True)
class Evicted:
    worker: str
    pod_name: str
    gone: Gone
    freed: int  # leases


def verdict(worker: str, pod: Pod | None) -> Gone | None:
    """Whether this worker process has ended, as its pod shows; None: it may be running."""
    if pod is None or pod.uid != pod_uid(worker):
        return Gone("its pod is gone", counts=False)
    container = pod.containers.get(CONTAINER)
    if pod.phase in ("Failed", "Succeeded"):
        return Gone(f"its pod has {pod.phase.lower()}{_because(pod)}", _counts(pod, container))
    if container is None or _may_be(worker, container):
        return None
    ended = f": {container.ended}" if container.ended else ""
    return Gone(f"its container ended{ended}", _counts(pod, container))


def _may_be(worker: str, container: Container) -> bool:
    """Whether the container may be this process, by whole seconds of the same clock.

    A process is in Redis before its kubelet has said that it runs: one that is younger than all that is said may live.
    """
    began = started_ms(worker)
    if container.started_at is not None:
        return began is None or container.started_at * 1000 <= began
    if container.ended is None:
        return True
    return began is not None and container.ended.at is not None and container.ended.at * 1000 < began


def _counts(pod: Pod, container: Container | None) -> bool:
    if pod.is_disrupted or container is None or container.ended is None:
        return False
    return container.ended.is_fault


def _because(pod: Pod) -> str:
    return f" ({pod.reason})" if pod.reason else ""


def suspects(workers: Iterable[WorkerStatus], pods: Mapping[str, Pod], fleet: str) -> Iterator[tuple[str, str]]:
    """(worker, its pod's name) of this fleet's workers that seem gone, by what was last seen of the pods."""
    for worker in workers:
        name = worker.facts.get("pod_name")
        if worker.facts.get("fleet") != fleet or not isinstance(name, str) or not name:
            continue
        if verdict(worker.name, pods.get(pod_uid(worker.name))) is not None:
            yield worker.name, name


class Evictor:
    """Looks again at each suspect, and evicts. `check` is called before each write."""

    def __init__(self, cluster: Cluster, broker: Broker, check: Callable[[], None]) -> None:
        self._cluster = cluster
        self._broker = broker
        self._check = check

    async def evict(self, worker: str, pod_name: str) -> tuple[Pod | None, Evicted | None]:
        """(the pod as it is now, what was evicted). Errors: ClusterError, BrokerUnavailable, NotLeading."""
        pod = await self._cluster.get_pod(pod_name)
        gone = verdict(worker, pod)
        if gone is None:
            return pod, None
        self._check()
        freed = await self._broker.evict(worker, counts=gone.counts, reason=f"the worker is gone: {gone.reason}")
        log.info("evicted %s of pod %s: %s; %d groups are free", worker, pod_name, gone.reason, freed)
        return pod, Evicted(worker, pod_name, gone, freed)
