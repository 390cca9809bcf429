"""All metrics, on one page. Each process makes its own, with a registry of its own: nothing here is global."""

from dataclasses import dataclass
from typing import Literal, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)
_BATCH = (1, 2, 4, 8, 16, 32, 64, 128, 256)

type EngineFault = Literal[
    # The answer to the request is unsound.
    "not_json",
    "cut_off",
    "missing_field",
    "wrong_type",
    "other_request",
    "no_tokens",
    "token_outside_vocabulary",
    "logprobs_few",
    "logprobs_many",
    "logprobs_of_other_ids",
    "logprob_not_finite",
    "spans",
    "sampling_mask",
    "unknown_finish",
    "abort_without_tokens",
    "aborted_too_often",
    "refused_without_words",
    "old_weights",
    # There is none.
    "timeout",
    "unreachable",
    "full_429",
    "full_503",
    "key_refused",
    "error_500",
    "error_503",
    "error_other",
    # The engine will never take the request.
    "rejected",
]
ENGINE_FAULTS: tuple[EngineFault, ...] = get_args(EngineFault.__value__)


class WorkerMetrics:
    """What a worker counts. Times are in seconds; label values are words of the code, never of the input."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"rolloutfleet_worker_{name}", text, labels, registry=self.registry)

        def gauge(name: str, text: str) -> Gauge:
            return Gauge(f"rolloutfleet_worker_{name}", text, registry=self.registry)

        def histogram(name: str, text: str, buckets: tuple[float, ...] = _SECONDS) -> Histogram:
            return Histogram(f"rolloutfleet_worker_{name}", text, buckets=buckets, registry=self.registry)

        self.samples = counter("samples", "Samples made and stored.")
        self.samples_again = counter("samples_made_again", "Samples whose index was stored already, by another holder.")
        self.equal = counter("samples_equal", "Samples that say the same as another one of their group.")
        self.tokens = counter("tokens", "Tokens of the samples made.")
        self.tokens_continued = counter("tokens_continued", "Tokens that an earlier holder made, and that were kept.")
        self.rows_rewritten = counter("rows_rewritten", "Rows that ended since a custom generate rewrote the history.")
        self.groups = counter("groups", "Groups by how this worker's hold on them ended.", "outcome")
        self.claims = counter("claims", "Claims by the broker's answer.", "reason")
        self.retries = counter("retries", "Requests made again, by cause.", "cause")
        self.engine_faults = counter(
            "engine_faults", "Requests to the engine that brought nothing, by what was wrong.", "fault"
        )
        for fault in ENGINE_FAULTS:
            self.engine_faults.labels(fault)  # a fault that never was is a 0, not a gap
        self.updates = counter("updates", "Weight updates of the engine by how they ended: loaded, failed.", "outcome")
        for outcome in ("loaded", "failed"):
            self.updates.labels(outcome)
        self.beats_failed = counter("heartbeats_failed", "Heartbeats that the broker did not answer.")

        self.slots = gauge("slots", "Sample slots of the engine.")
        self.busy = gauge("slots_busy", "Sample slots in use.")
        self.held = gauge("groups_held", "Groups that this worker holds.")
        self.fit = gauge("fit", "1 while this worker may claim.")

        self.engine_seconds = histogram("engine_seconds", "Time of one request to the engine.")
        self.reward_seconds = histogram("reward_seconds", "Time until one sample had its reward, tries included.")
        self.group_seconds = histogram("group_seconds", "Time from claim to the end of the hold.")
        self.update_seconds = histogram("update_seconds", "Time for which no request was let in, for new weights.")
        self.put_batch = histogram("put_batch_samples", "Samples stored in one round trip.", _BATCH)


class OperatorMetrics:
    """What an operator counts. Only the one that leads does anything: take `sum` of counters, `max` of gauges."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"rolloutfleet_operator_{name}", text, labels, registry=self.registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"rolloutfleet_operator_{name}", text, labels, registry=self.registry)

        self.calls = counter("api_calls", "Calls to the API server.", "verb", "resource", "outcome")
        self.evicted = counter("workers_evicted", "Workers evicted, by whether the attempt counts.", "counts")
        self.freed = counter("leases_freed", "Leases that these evictions freed.")
        self.reaped = counter("leases_reaped", "Expired leases that the operator took away.")
        self.repairs = counter("repairs", "Repairs of the run, after the broker was another process than before.")
        self.deleted = counter("pods_deleted", "Pods deleted, by why: scale, restart.", "why")
        self.scaled = counter("replicas_set", "Changes of a number of replicas.", "pool")
        self.failures = counter("looks_failed", "Looks that failed, by what did not answer.", "what")
        self.looks = counter("looks", "Looks at the fleet while leading.")
        self.leading = gauge("leading", "1 while this process leads.")
        self.wanted = gauge("replicas_wanted", "Replicas that are wanted.", "pool")
        self.replicas = gauge("replicas", "Replicas that are set.", "pool")
        self.pods = gauge("pods", "Pods by the reason that is to be said of them.", "reason")
        self.look_seconds = Histogram(
            "rolloutfleet_operator_look_seconds", "Time of one look.", buckets=_SECONDS, registry=self.registry
        )


@dataclass(frozen=True, slots=True)
class Described:
    """A metric of a run that is read when it is scraped. `label`: beside `run`, with words of the code as values."""

    name: str
    text: str
    label: str | None = None

    @property
    def labels(self) -> tuple[str, ...]:
        return ("run", self.label) if self.label else ("run",)


def _of_run(name: str, text: str, label: str | None = None) -> Described:
    return Described(f"rolloutfleet_{name}", text, label)


class RunGauges:
    """What the status service says of each run. Several replicas say the same: `max by (run)`, never `sum`.

    A run that was not read for longer than 30 s has only its age: an old number is no number.
    """

    age = _of_run("snapshot_age_seconds", "Age of what is known of the run.")
    gate = _of_run("gate", "1 for the reason that holds at the gate now (open, stuck, completed_full, ...).", "reason")
    stuck = _of_run("stuck", "1 while there is work, and no group was completed for longer than stuck_seconds.")
    quiet = _of_run("no_progress_seconds", "Time in which there was work and no group was completed.")
    window = _of_run("window_groups", "W: the most groups that may be active, and the most that may wait.")
    active = _of_run("active_groups", "Groups that workers hold.")
    outstanding = _of_run("outstanding_samples", "Samples of the active groups that are not finished.")
    taken = _of_run("taken_groups", "Completed groups that a trainer holds.")
    place_left = _of_run("place_left_groups", "Groups that may be claimed now.")
    queue = _of_run("queue_groups", "Groups in a line: prompts, again, waiting (completed), dead.", "state")
    oldest = _of_run("oldest_seconds", "Age of the first in a line.", "state")
    slots = _of_run("slots", "Sample slots of the live workers.")
    busy = _of_run("slots_busy", "Sample slots in use.")
    utilisation = _of_run("slot_utilisation", "Busy share of the slots' time over the last minute.")
    workers = _of_run("workers", "Live workers by state.", "state")
    trainers = _of_run("trainers", "Consumers of the completed groups.")
    trainer_oldest = _of_run("trainer_oldest_seconds", "Age of the oldest group that a trainer holds.")
    weight_version = _of_run("weight_version", "Version that the trainer published last.")
    workers_current = _of_run("workers_current", "Workers whose engine serves that version.")
    staleness = _of_run("staleness_versions", "Versions that the newest completed groups are behind, on average.")
    staleness_max = _of_run("staleness_max_versions", "The same for the one that is furthest behind.")
    eta = _of_run("eta_seconds", "Time until all that is in line or at work is completed.")
    desired = _of_run("desired_workers", "Workers that the run can use.")


class RunCounters:
    """What the atomic steps count, by its name in the key `stats`. A run that is made anew begins at 0."""

    trained = _of_run("groups_trained", "Groups trained on, by versions behind their trainer (20: or more).", "behind")
    stale = _of_run("groups_refused_stale", "Groups that judge had made again or dropped, by the same.", "behind")
    behind = _of_run("behind_seconds", "Time that the gate spent behind each reason.", "reason")
    released = _of_run("leases_released", "Leases given back: free, fail, reject.", "reason")
    by_stat = (
        ("submitted", _of_run("groups_submitted", "Groups put in line.")),
        ("claimed", _of_run("groups_claimed", "Claims of groups.")),
        ("completed", _of_run("groups_completed", "Groups handed to the trainers.")),
        ("acked", _of_run("groups_acked", "Groups that a trainer is done with.")),
        ("dropped", _of_run("groups_dropped", "Groups that the filter refused.")),
        ("dead", _of_run("groups_dead", "Groups given up.")),
        ("recycled", _of_run("groups_recycled", "Groups made again: too old, or unsound.")),
        ("cancelled", _of_run("groups_cancelled", "Held groups that workers gave up as too old already.")),
        ("requeued", _of_run("groups_requeued", "Dead letters that were given another life.")),
        ("duplicates", _of_run("groups_duplicate", "Raw entries whose id was known.")),
        ("reaped", _of_run("leases_reaped", "Leases that expired.")),
        ("evicted", _of_run("workers_evicted", "Worker processes that were evicted.")),
        ("samples", _of_run("samples", "Samples stored.")),
        ("samples_made_again", _of_run("samples_made_again", "Samples that another holder had stored already.")),
        ("equal_samples", _of_run("samples_equal", "Samples that say the same as another one of their group.")),
        ("tokens", _of_run("tokens", "Tokens generated.")),
        ("updates_loaded", _of_run("updates_loaded", "Weight updates of engines that went well.")),
        ("updates_failed", _of_run("updates_failed", "Weight updates of engines that left their worker out.")),
        ("tokens_continued", _of_run("tokens_continued", "Tokens of an earlier holder that were kept.")),
        ("samples_surplus", _of_run("samples_surplus", "Redundant answers that a group did not need any more.")),
        ("rows_rewritten", _of_run("rows_rewritten", "Rows that ended since the history was rewritten.")),
        ("retries", _of_run("retries", "Requests made again.")),
    )
    busy_seconds = _of_run("slot_busy_seconds", "Time that sample slots were busy.")
    updating_seconds = _of_run("slot_updating_seconds", "Slot time for which new weights let no request in.")
    slot_seconds = _of_run("slot_seconds", "Time of all sample slots.")


class RedisGauges:
    """The broker, as the status service sees it: names and help texts of gauges without labels."""

    up = ("rolloutfleet_redis_up", "1 while Redis answers in time.")
    age = ("rolloutfleet_redis_age_seconds", "Time since Redis last answered.")
    memory = ("rolloutfleet_redis_memory_bytes", "Memory that Redis uses.")
    maxmemory = ("rolloutfleet_redis_maxmemory_bytes", "Bound of its memory; 0: none.")
