"""From what was read to what is shown: pure functions from a RunBook to the models.

Invariant: what is not known becomes null; no number is made up for a process that is too young to know it.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from api.advice import advice
from api.estimates import with_refill_sample
from api.fleet_models import FleetView, PodView
from api.look import Look
from api.models import (
    Gate,
    Losses,
    Queue,
    Queues,
    Rate,
    Rates,
    RunStatus,
    Shares,
    Slots,
    Staleness,
    Stuck,
    TrainerView,
    WeightsView,
    WindowView,
    Worker,
)
from api.sampler import RunBook
from api.settings import ApiSettings
from api.text import shown
from rolloutfleet.demand import Demand, desired_workers
from rolloutfleet.history import History, Spent, whole_run
from rolloutfleet.messages import UNKNOWN_VERSION
from rolloutfleet.status import Status, WorkerStatus
from rolloutfleet.stuck import Verdict, judge
from rolloutfleet.window import Reason, Window

# Reasons behind which more workers would be given no more work.
SLACK = (Reason.COMPLETED_FULL, Reason.PACE, Reason.NO_PROMPTS)
MINUTE, FIVE_MINUTES, FIFTEEN_MINUTES, HOUR = 60.0, 300.0, 900.0, 3600.0


def run_view(
    book: RunBook, look: Look, now: float, settings: ApiSettings, fleets: Sequence[FleetView] = ()
) -> RunStatus:
    """All about a run at `now` (monotonic seconds)."""
    status, history = look.status, book.history
    pods = {pod.uid: pod for fleet in fleets for pod in fleet.pods}
    verdict = verdict_of(book, look, settings.stuck_seconds)
    slots = slots_view(status, history)
    return RunStatus(
        name=status.run,
        age_seconds=max(0.0, now - book.at),
        problem=book.problem,
        gate=gate_view(book, status, verdict, slots),
        stuck=None if verdict is None else _stuck(verdict),
        window=window_view(status),
        queues=queues_view(look),
        rates=rates_view(history),
        slots=slots,
        workers=[worker_view(worker, status, pods) for worker in sorted(status.workers, key=lambda one: one.name)],
        fleets=tuple(fleets),
        trainers=[
            TrainerView(
                consumer=one.name,
                taken=one.taken,
                idle_seconds=one.idle_seconds,
                oldest_seconds=_age(one.oldest_ms, status),
            )
            for one in look.consumers
        ],
        staleness=staleness_view(look),
        judged=status.judged,
        weights=weights_view(status),
        weight_version=look.version,
        weight_label=look.version_label,
        eta_seconds=eta_seconds(status, history),
        desired_workers=demand_view(book, look, settings)[0],
        losses=losses_view(status),
        counters=status.counters,
        config=status.config,
    )


def losses_view(status: Status) -> Losses:
    losses = status.losses
    deciles = None if losses.deciles is None else list(losses.deciles)
    return Losses(causes=dict(losses.causes), deciles=deciles, is_biased=losses.is_biased)


def verdict_of(book: RunBook, look: Look, stuck_seconds: float) -> Verdict | None:
    """What the watchdog says as of the last look: while Redis is away nobody knows of progress."""
    return judge(book.watch, look.status, book.at, stuck_seconds, book.held) if book.watch else None


def gate_view(book: RunBook, status: Status, verdict: Verdict | None, slots: Slots) -> Gate:
    closed = status.window.closed()
    return Gate(
        reason="stuck" if verdict else status.reason,
        at_gate=status.reason,
        is_open=closed is None and status.is_claimable,
        sentence=shown(verdict.sentence) if verdict else status.sentence,
        advice=advice(status, slots, verdict.cause if verdict else None),
        since_seconds=verdict.seconds if verdict else since_seconds(book, status),
        last_5_minutes=shares_view(book.history.spent(FIVE_MINUTES)),
        last_hour=shares_view(book.history.spent(HOUR)),
        whole_run=shares_view(whole_run(status)),
    )


def since_seconds(book: RunBook, status: Status) -> float | None:
    """For how long the reason has held: as the gate says, or as this process saw it begin; None: neither."""
    if status.gate == status.reason and status.gate_seconds is not None:
        return max(0.0, status.gate_seconds)
    began = book.history.reason_since
    return None if began is None else max(0.0, book.at - began)


def shares_view(spent: Spent | None) -> Shares | None:
    if spent is None:
        return None
    return Shares(seconds=spent.seconds, observed_seconds=spent.observed_seconds, shares=spent.shares)


def window_view(status: Status) -> WindowView:
    window = status.window
    return WindowView(
        sample_concurrency=window.samples,
        source="auto" if status.config.sample_concurrency == "auto" else "fixed",
        n=window.n,
        overcommit=window.overcommit,
        refill=window.refill,
        size=window.size,
        active=window.active,
        used=window.used,
        outstanding_samples=window.outstanding,
        waiting=window.waiting,
        taken=status.taken,
        pace_left=window.pace_left,
        place_left=place_left(window),
    )


def place_left(window: Window) -> int:
    """Groups that may be claimed now, were they in line; 0 while the gate is closed."""
    if window.closed():
        return 0
    left = window.size - window.used
    if window.refill == "sample":
        left = min(left, window.open_cap * window.size - window.active)
    if window.pace_left is not None:
        left = min(left, window.pace_left)
    return max(0, left)


def queues_view(look: Look) -> Queues:
    status = look.status

    def queue(groups: int, first_ms: int | None) -> Queue:
        return Queue(groups=groups, oldest_seconds=_age(first_ms, status) if groups else None)

    return Queues(
        prompts=queue(status.prompts, look.prompts_ms),
        again=queue(status.again, look.again_ms),
        waiting=queue(status.window.waiting, look.waiting_ms),
        dead=queue(status.dead, look.dead_ms),
    )


def rates_view(history: History) -> Rates:
    def rate(seconds: float) -> Rate:
        return Rate(
            groups=history.rate("completed", seconds),
            samples=history.rate("samples", seconds),
            tokens=history.rate("tokens", seconds),
        )

    return Rates(minute=rate(MINUTE), five_minutes=rate(FIVE_MINUTES), fifteen_minutes=rate(FIFTEEN_MINUTES))


def slots_view(status: Status, history: History) -> Slots:
    spent, utilisation = history.spent(FIVE_MINUTES), history.utilisation(FIVE_MINUTES)
    share = spent.shares.get(Reason.ACTIVE_FULL, 0.0) if spent and spent.observed_seconds else None
    last = history.last
    slots = [worker.slots for worker in status.workers]
    return Slots(
        busy=last.busy if last else None,
        total=sum(slots),
        utilisation=history.utilisation(MINUTE),
        utilisation_5_minutes=utilisation,
        with_refill_sample=with_refill_sample(status.window, slots, utilisation, share),
    )


def worker_view(worker: WorkerStatus, status: Status, pods: Mapping[str, PodView]) -> Worker:
    """`pods`: by uid, as the operators report them."""
    facts = worker.facts
    pod = pods.get(worker.name.rsplit("/", 1)[0])
    return Worker(
        name=worker.name,
        pod=shown(facts.get("pod") or worker.name.rsplit("/", 1)[0]),
        host=_word(facts.get("host")),
        state="draining" if worker.draining else shown(facts.get("state", "unknown")),
        reason=shown(facts.get("reason") or ""),
        is_draining=worker.draining,
        slots=worker.slots,
        busy=_count(facts.get("busy")),
        held=_count(facts.get("held")),
        weight_version=_word(facts.get("weight_version")),
        engine=_word(facts.get("engine")),
        heartbeat_seconds=max(0.0, status.config.lease_seconds - worker.lease_seconds),
        lease_seconds=worker.lease_seconds,
        pod_name=_word(facts.get("pod_name")),
        node=_word(facts.get("node")),
        pod_reason=pod.reason if pod else None,
        advice=pod.advice if pod else "",
    )


def weights_view(status: Status) -> WeightsView | None:
    policy = status.policy
    if policy is None:
        return None
    return WeightsView(
        mode=policy.mode,
        workers_current=status.workers_current or 0,
        workers_failed=sum(worker.facts.get("state") == "weights_failed" for worker in status.workers),
        stood=status.stood,
    )


def staleness_view(look: Look) -> Staleness | None:
    if look.version is None:
        return None
    behind = [look.version - version for version in look.oldest_versions if version != UNKNOWN_VERSION]
    return Staleness(
        groups=len(look.oldest_versions),
        unknown=len(look.oldest_versions) - len(behind),
        histogram=dict(sorted(Counter(behind).items())),
        mean=sum(behind) / len(behind) if behind else None,
    )


def eta_seconds(status: Status, history: History) -> float | None:
    """Until all that is in line or at work is completed, at the rate of the last 5 min (1 min in a young process)."""
    rate = history.rate("completed", FIVE_MINUTES)
    if rate is None:
        rate = history.rate("completed", MINUTE)
    groups = status.queued + status.window.active
    if not groups:
        return 0.0
    return groups / rate if rate else None


def demand_view(book: RunBook, look: Look, settings: ApiSettings) -> tuple[int, str]:
    """How many workers the run can use, and why."""
    status, history, span = look.status, book.history, settings.cool_down_seconds
    able = [worker for worker in status.workers if not worker.draining]
    spent = history.spent(span)
    shares = spent.shares if spent and spent.observed_seconds else None
    state = Demand(
        window=status.window,
        is_auto=status.config.sample_concurrency == "auto",
        reason=status.reason,
        queued=status.queued,
        workers=len(able),
        slots=sum(worker.slots for worker in able),
        busy_now=_sum(_count(worker.facts.get("busy")) for worker in able),
        busy=history.busy(span),
        slack=None if shares is None else sum(shares.get(reason, 0.0) for reason in SLACK),
        bounds=settings.bounds,
    )
    return desired_workers(state)


def _stuck(verdict: Verdict) -> Stuck:
    return Stuck(cause=verdict.cause, sentence=shown(verdict.sentence), seconds=verdict.seconds, group=verdict.group)


def _age(ms: int | None, status: Status) -> float | None:
    return None if ms is None else max(0.0, (status.now_ms - ms) / 1000)


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) else None


def _word(value: Any) -> str | None:
    return None if value in (None, "") else shown(value)


def _sum(counts: Iterable[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None
