"""What the operator says of the fleet: to Redis for the status service, to Events for kubectl, to metrics.

Invariant: what is written is as old as it says; it is written again at least every few seconds while somebody leads, so
that its age tells whether somebody does.
"""

import time
from collections import Counter
from collections.abc import Mapping

from deploy.operator.events import Events
from deploy.operator.fleet import Fleet
from deploy.operator.objects import Deployment, Pod
from deploy.operator.pools import PoolReason, pool_reason
from deploy.operator.reasons import CATALOGUE, Reason, reason_of
from deploy.operator.settings import OperatorSettings
from deploy.operator.wanted import Wanted
from rolloutfleet.broker import Broker
from rolloutfleet.metrics import OperatorMetrics
from rolloutfleet.pods import FleetReport, PodReport, PoolReport, write_report

_AGAIN_SECONDS = 5.0


class Reporter:
    """Remembers since when each pod has its reason, and what was said already."""

    def __init__(
        self, settings: OperatorSettings, broker: Broker, events: Events, metrics: OperatorMetrics, identity: str
    ) -> None:
        self._settings = settings
        self._broker = broker
        self._events = events
        self._metrics = metrics
        self._identity = identity
        self._since: dict[str, tuple[str, int]] = {}  # pod uid -> reason, server ms
        self._heard: frozenset[str] = frozenset()
        self._said: dict[str, str] = {}  # pool -> word
        self._written: FleetReport | None = None
        self._written_at = float("-inf")

    async def report(self, fleet: Fleet, wanted: Wanted, problem: str) -> None:
        """Errors: BrokerUnavailable, NotLeading."""
        reasons = {pod.uid: reason_of(pod, fleet.told(pod, self._heard)) for pod in fleet.pods.values()}
        pools = self._pools(fleet, wanted, reasons)
        self._measure(fleet, wanted, reasons)
        await self._say_troubles(fleet, reasons, pools)
        if fleet.view is None:
            return
        self._heard = frozenset(uid for uid in fleet.pods if uid in self._heard or fleet.view.by_pod.get(uid))
        self._remember(reasons, fleet.view.now_ms)
        report = FleetReport(
            fleet=self._settings.fleet,
            run=self._settings.run,
            at_ms=fleet.view.now_ms,
            operator=self._identity,
            owner=self._settings.scaling_owner,
            sentence=wanted.sentence,
            problem=problem,
            pools=tuple(_pool(name, fleet, wanted, reason) for name, reason in pools.items()),
            pods=tuple(self._pod(pod, reasons[pod.uid]) for pod in sorted(fleet.pods.values(), key=lambda it: it.name)),
        )
        await self._write(report)

    async def _write(self, report: FleetReport) -> None:
        same = self._written is not None and report == self._written.model_copy(update={"at_ms": report.at_ms})
        if same and time.monotonic() - self._written_at < _AGAIN_SECONDS:
            return
        await write_report(self._broker.calls, report)
        self._written, self._written_at = report, time.monotonic()

    def _remember(self, reasons: Mapping[str, Reason], now_ms: int) -> None:
        for uid, reason in reasons.items():
            if self._since.get(uid, ("", 0))[0] != reason.word:
                self._since[uid] = (reason.word, now_ms)
        self._since = {uid: since for uid, since in self._since.items() if uid in reasons}

    def _pools(self, fleet: Fleet, wanted: Wanted, reasons: Mapping[str, Reason]) -> Mapping[str, PoolReason | None]:
        return {
            name: pool_reason(fleet.deployments.get(name), wanted.replicas.get(name), fleet.pods.values(), reasons)
            for name in self._settings.deployments
        }

    async def _say_troubles(
        self, fleet: Fleet, reasons: Mapping[str, Reason], pools: Mapping[str, PoolReason | None]
    ) -> None:
        """Once for each pod or pool and reason, as a warning on its Deployment."""
        for pod in fleet.pods.values():
            reason, of = reasons[pod.uid], fleet.deployments.get(pod.pool)
            if of and reason.is_trouble and self._since.get(pod.uid, ("", 0))[0] != reason.word:
                message = f"pod {pod.name}: {reason.sentence}" + (f" ({reason.advice})" if reason.advice else "")
                await self._events.say(of, _camel(reason.word), message, is_warning=True)
        for name, told in pools.items():
            of = fleet.deployments.get(name)
            if of and told and told.is_trouble and self._said.get(name) != told.word:
                await self._events.say(of, _camel(told.word), f"{told.sentence} ({told.advice})", is_warning=True)
        self._said = {name: told.word for name, told in pools.items() if told}

    def _measure(self, fleet: Fleet, wanted: Wanted, reasons: Mapping[str, Reason]) -> None:
        counts = Counter(reason.word for reason in reasons.values())
        for word in CATALOGUE:
            self._metrics.pods.labels(word).set(counts[word])
        for name, deployment in fleet.deployments.items():
            self._metrics.replicas.labels(name).set(deployment.replicas)
            number = wanted.replicas.get(name)
            if number is not None:
                self._metrics.wanted.labels(name).set(number)

    def _pod(self, pod: Pod, reason: Reason) -> PodReport:
        return PodReport(
            name=pod.name,
            uid=pod.uid,
            pool=pod.pool,
            node=pod.node,
            phase=pod.phase,
            is_ready=pod.is_ready,
            reason=reason.word,
            sentence=reason.sentence,
            advice=reason.advice,
            restarts=sum(container.restarts for container in pod.containers.values()),
            since_ms=self._since[pod.uid][1],
        )


def _pool(name: str, fleet: Fleet, wanted: Wanted, reason: PoolReason | None) -> PoolReport:
    deployment: Deployment | None = fleet.deployments.get(name)
    return PoolReport(
        name=name,
        replicas=deployment.replicas if deployment else None,
        ready=deployment.ready if deployment else None,
        wanted=wanted.replicas.get(name),
        problem=reason.sentence if reason else "",
        advice=reason.advice if reason else "",
    )


def _camel(word: str) -> str:
    return "".join(part.capitalize() for part in word.split("_"))
