"""The fleets in clusters, as their operators report them: what the API shows of pods without a right in any cluster.

Invariant: without a report nothing is shown as 0 or as well: a run without an operator says so, and a report that has
grown old says how old it is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from api.fleet_models import FleetView, PodView, PoolView
from api.text import shown
from rolloutfleet.calls import Calls
from rolloutfleet.pods import FleetReport, PodReport, read_reports

OLD_SECONDS = 30.0  # an operator reports each 5 s


@dataclass(frozen=True, slots=True)
class Reports:
    """The reports of one look, by run. `at`: monotonic seconds; `now_ms`: server time at that moment."""

    by_run: Mapping[str, Sequence[FleetReport]] = field(default_factory=dict[str, Sequence[FleetReport]])
    now_ms: int = 0
    at: float = 0.0

    def views(self, run: str, now: float) -> list[FleetView]:
        """The fleets of a run at `now` (monotonic seconds), by name."""
        found = sorted(self.by_run.get(run, ()), key=lambda report: report.fleet)
        return [_fleet(report, self.now_ms + round((now - self.at) * 1000)) for report in found]


async def look_at_fleets(calls: Calls, at: float) -> Reports:
    """Errors: BrokerUnavailable."""
    now_ms, reports = await read_reports(calls)
    by_run: dict[str, list[FleetReport]] = {}
    for report in reports:
        by_run.setdefault(report.run, []).append(report)
    return Reports(by_run, now_ms, at)


def _fleet(report: FleetReport, now_ms: int) -> FleetView:
    age = max(0.0, (now_ms - report.at_ms) / 1000)
    return FleetView(
        fleet=report.fleet,
        age_seconds=age,
        is_old=age > OLD_SECONDS,
        operator=shown(report.operator),
        owner=shown(report.owner),
        sentence=shown(report.sentence),
        problem=shown(report.problem),
        pools=[PoolView.model_validate(pool.model_dump()) for pool in report.pools],
        pods=[_pod(pod, report.fleet, now_ms) for pod in sorted(report.pods, key=_by_need)],
    )


def _by_need(pod: PodReport) -> tuple[bool, bool, str]:
    return (not pod.advice, pod.reason == "ready", pod.name)


def _pod(pod: PodReport, fleet: str, now_ms: int) -> PodView:
    return PodView(
        name=shown(pod.name),
        uid=shown(pod.uid),
        fleet=fleet,
        pool=shown(pod.pool),
        node=shown(pod.node) if pod.node else None,
        phase=shown(pod.phase),
        is_ready=pod.is_ready,
        reason=shown(pod.reason),
        sentence=shown(pod.sentence),
        advice=shown(pod.advice),
        restarts=pod.restarts,
        since_seconds=None if pod.since_ms is None else max(0.0, (now_ms - pod.since_ms) / 1000),
    )
