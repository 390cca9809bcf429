"""The fleet as decisions and reports see it: pods, workers and what these hold, put together. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from deploy.operator.broker_view import BrokerView
from deploy.operator.objects import DRAIN, RESTART, Deployment, Kind, Pod, seconds_of
from deploy.operator.reasons import Told
from deploy.operator.reconcile import Pool, Unit
from deploy.operator.wanted import Wanted
from rolloutfleet.status import WorkerStatus


@dataclass(frozen=True, slots=True)
class Fleet:
    """One moment. `view`: None while Redis is unknown. `samples`: unfinished ones by pod uid, where they were asked."""

    pods: Mapping[str, Pod]
    deployments: Mapping[str, Deployment]
    view: BrokerView | None
    samples: Mapping[str, int] = field(default_factory=dict[str, int])

    def units(self) -> list[Unit]:
        """The pods that count. Without Redis: as if idle, which nobody may act on."""
        return [self._unit(pod) for pod in self.pods.values() if pod.is_alive]

    def pools(self, wanted: Wanted) -> list[Pool]:
        return [pool_of(one, wanted.replicas.get(one.name)) for one in self.deployments.values()]

    def told(self, pod: Pod, heard: frozenset[str] = frozenset()) -> Told:
        """What is known of a pod beside it. `heard`: uids of pods whose workers were heard of earlier."""
        if self.view is None:
            return Told(None)
        workers = self.view.by_pod.get(pod.uid, ())
        why, _ = self._mark(workers)
        return Told(workers, self.view.held.get(pod.uid, 0), why, self.view.version, pod.uid in heard)

    def _unit(self, pod: Pod) -> Unit:
        workers = self.view.by_pod.get(pod.uid, ()) if self.view else ()
        groups = self.view.held.get(pod.uid, 0) if self.view else 0
        why, since_ms = self._mark(workers)
        return Unit(
            uid=pod.uid,
            name=pod.name,
            pool=pod.pool,
            index=pod.index,
            is_ready=pod.is_ready,
            created_at=pod.created_at,
            groups=groups,
            samples=self.samples.get(pod.uid, groups),
            is_stale=self.view is not None and any(_is_stale(worker, self.view.version) for worker in workers),
            workers=tuple(worker.name for worker in workers),
            is_told=all(worker.draining for worker in workers),
            leaving=why,
            since_ms=since_ms,
            is_drained_by_person=DRAIN in pod.annotations,
            is_homeless=_is_homeless(pod),
        )

    def _mark(self, workers: Sequence[WorkerStatus]) -> tuple[str, int]:
        """(why the operator told the pod's workers to drain, since when); the newest mark."""
        marks = [self.view.marks[worker.name] for worker in workers if self.view and worker.name in self.view.marks]
        newest = max(marks, key=lambda mark: mark.since_ms, default=None)
        return (newest.why, newest.since_ms) if newest else ("", 0)


def pool_of(deployment: Deployment, wanted: int | None) -> Pool:
    return Pool(
        name=deployment.name,
        replicas=deployment.replicas,
        wanted=wanted,
        is_rolling=deployment.is_rolling,
        is_settled=deployment.is_settled,
        restart_at=seconds_of(deployment.annotations.get(RESTART, "")),
        drops_last=deployment.kind is Kind.SET,
    )


def _is_stale(worker: WorkerStatus, version: str) -> bool:
    known = worker.facts.get("weight_version")
    return bool(version) and known not in (None, "") and str(known) != version


def _is_homeless(pod: Pod) -> bool:
    scheduled = pod.conditions.get("PodScheduled")
    return scheduled is not None and not scheduled.is_true and not pod.node
