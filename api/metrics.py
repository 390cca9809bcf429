"""The snapshot as Prometheus metrics. Names and texts are in rolloutfleet/metrics.py.

Invariants: label values are names of runs and words of the code; a number that is not known is not exported; a run that
was not read for 30 s has only its age.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from api.models import RedisView, RunStatus, ServerView
from api.publisher import Snapshot
from api.sampler import Sampler
from rolloutfleet.metrics import Described, RedisGauges, RunCounters, RunGauges
from rolloutfleet.stuck import quiet_seconds
from rolloutfleet.window import Reason

OLDEST_SECONDS = 30.0
REASONS = (*Reason, "stuck")
WORKER_STATES: tuple[str, ...] = (
    *("ready", "starting", "engine_down", "reward_down"),
    *("fingerprint", "logprobs", "draining", "no_run", "unknown"),
)
_RELEASES = ("free", "fail", "reject", "died", "died_alone")

type Values = Mapping[str, float | None]


def registry_of(snapshot: Snapshot, sampler: Sampler) -> CollectorRegistry:
    """A registry that answers one scrape."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Scrape(snapshot, sampler))
    return registry


class _Scrape(Collector):
    def __init__(self, snapshot: Snapshot, sampler: Sampler) -> None:
        self._reply = snapshot.reply
        self._sampler = sampler

    def collect(self) -> Iterator[Metric]:
        yield from redis_metrics(self._reply.redis, self._reply.server)
        yield one_each(RunGauges.age, {run.name: run.age_seconds for run in self._reply.runs})
        fresh = [run for run in self._reply.runs if run.age_seconds <= OLDEST_SECONDS]
        yield from run_gauges(fresh)
        yield one_each(RunGauges.quiet, {run.name: self._quiet(run.name) for run in fresh})
        yield from labelled_gauges(fresh)
        yield from run_counters(fresh)
        yield self._behind(fresh)

    def _quiet(self, run: str) -> float | None:
        book = self._sampler.books.get(run)
        return quiet_seconds(book.watch, book.at) if book and book.watch else None

    def _behind(self, runs: Iterable[RunStatus]) -> Metric:
        described = RunCounters.behind
        family = CounterMetricFamily(described.name, described.text, labels=described.labels)
        for run in runs:
            last = book.history.last if (book := self._sampler.books.get(run.name)) else None
            for reason, ms in sorted(last.behind_ms.items()) if last else ():
                family.add_metric([run.name, reason], ms / 1000)
        return family


def redis_metrics(redis: RedisView, server: ServerView | None) -> Iterator[Metric]:
    """The broker; what it does not tell is left out."""
    values = (
        (RedisGauges.up, float(redis.state == "ok")),
        (RedisGauges.age, redis.age_seconds),
        (RedisGauges.memory, server.used_memory_bytes if server else None),
        (RedisGauges.maxmemory, server.maxmemory_bytes if server else None),
    )
    for (name, text), value in values:
        if value is not None:
            yield GaugeMetricFamily(name, text, value=value)


def one_each(described: Described, values: Values) -> Metric:
    """One number for each run that knows it."""
    family = GaugeMetricFamily(described.name, described.text, labels=described.labels)
    for run, value in values.items():
        if value is not None:
            family.add_metric([run], value)
    return family


def run_gauges(runs: Iterable[RunStatus]) -> Iterator[Metric]:
    """All gauges that have no other label than the run."""
    found = [(run.name, _numbers(run)) for run in runs]
    for described in dict.fromkeys(described for _, numbers in found for described in numbers):
        yield one_each(described, {name: numbers.get(described) for name, numbers in found})


def _numbers(run: RunStatus) -> dict[Described, float | None]:
    stale, held = run.staleness, [one.oldest_seconds for one in run.trainers if one.oldest_seconds is not None]
    behind = max(stale.histogram, default=None) if stale else None
    return {
        RunGauges.stuck: float(run.stuck is not None),
        RunGauges.window: run.window.size,
        RunGauges.active: run.window.active,
        RunGauges.outstanding: run.window.outstanding_samples,
        RunGauges.taken: run.window.taken,
        RunGauges.place_left: run.window.place_left,
        RunGauges.slots: run.slots.total,
        RunGauges.busy: run.slots.busy,
        RunGauges.utilisation: run.slots.utilisation,
        RunGauges.trainers: len(run.trainers),
        RunGauges.trainer_oldest: max(held, default=None),
        RunGauges.weight_version: run.weight_version,
        RunGauges.workers_current: run.weights.workers_current if run.weights else None,
        RunGauges.staleness: stale.mean if stale else None,
        RunGauges.staleness_max: behind,
        RunGauges.eta: run.eta_seconds,
        RunGauges.desired: run.desired_workers,
    }


def labelled_gauges(runs: Iterable[RunStatus]) -> Iterator[Metric]:
    """Gate, queues and workers by reason or state."""
    gate, queue, oldest, workers = (
        GaugeMetricFamily(one.name, one.text, labels=one.labels)
        for one in (RunGauges.gate, RunGauges.queue, RunGauges.oldest, RunGauges.workers)
    )
    for run in runs:
        for reason in REASONS:
            gate.add_metric([run.name, str(reason)], float(run.gate.reason == reason))
        for state, line in run.queues:
            queue.add_metric([run.name, state], line.groups)
            if line.oldest_seconds is not None:
                oldest.add_metric([run.name, state], line.oldest_seconds)
        for state, number in worker_states(run).items():
            workers.add_metric([run.name, state], number)
    yield from (gate, queue, oldest, workers)


def worker_states(run: RunStatus) -> dict[str, int]:
    """Live workers by state; a state that is not of this list counts as unknown."""
    counts: dict[str, int] = dict.fromkeys(WORKER_STATES, 0)
    for worker in run.workers:
        counts[worker.state if worker.state in counts else "unknown"] += 1
    return counts


def run_counters(runs: Iterable[RunStatus]) -> Iterator[Metric]:
    """What the steps count; `tokens` only where somebody counts them."""
    found = list(runs)
    for stat, described in RunCounters.by_stat:
        yield _counter(described, {run.name: _stat(run, stat) for run in found})
    for stat, described in (
        ("busy_ms", RunCounters.busy_seconds),
        ("updating_ms", RunCounters.updating_seconds),
        ("slot_ms", RunCounters.slot_seconds),
    ):
        yield _counter(described, {run.name: run.counters.get(stat, 0) / 1000 for run in found})
    released = CounterMetricFamily(
        RunCounters.released.name, RunCounters.released.text, labels=RunCounters.released.labels
    )
    for run in found:
        for kind in _RELEASES:
            released.add_metric([run.name, kind], run.counters.get(f"released:{kind}", 0))
    yield released
    yield _by_staleness(RunCounters.trained, found, ("trained",))
    yield _by_staleness(RunCounters.stale, found, ("recycled", "dropped"))


def _by_staleness(described: Described, runs: Iterable[RunStatus], fates: tuple[str, ...]) -> Metric:
    family = CounterMetricFamily(described.name, described.text, labels=described.labels)
    for run in runs:
        groups = Counter[str]()
        for fate in fates:
            groups.update(run.judged.get(fate, {}))
        for behind, number in groups.items():
            family.add_metric([run.name, behind], number)
    return family


def _stat(run: RunStatus, stat: str) -> float | None:
    return run.counters.get(stat, None if stat == "tokens" else 0)


def _counter(described: Described, values: Values) -> Metric:
    family = CounterMetricFamily(described.name, described.text, labels=described.labels)
    for run, value in values.items():
        if value is not None:
            family.add_metric([run], value)
    return family
