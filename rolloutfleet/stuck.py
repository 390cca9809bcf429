"""The watchdog: work is there, nothing keeps it from being claimed, and no group is completed. Pure.

Invariant: a run is stuck only after it was watched for so long without progress; what happened before a process began
to watch counts for nothing, so a restart of the watcher delays the alarm and never makes one up.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Literal

from rolloutfleet.status import Status
from rolloutfleet.window import Reason

_RETRIES = 3  # so many failed attempts without a completion are a pattern
# A person or the trainer holds the run, and the gate says so.
_NOT_OURS = (Reason.PAUSED, Reason.COMPLETED_FULL, Reason.PACE)

type Cause = Literal[
    "no_workers", "workers_draining", "engines_not_ready", "all_retries", "all_dropped", "slow_group", "unknown"
]


@dataclass(frozen=True, slots=True)
class Watch:
    """Since when (seconds of the watcher's clock) there has been work and no completion, and the counters then."""

    since: float | None
    completed: int
    failed: int = 0
    dropped: int = 0


@dataclass(frozen=True, slots=True)
class Held:
    """The group that has been held for longest."""

    id: str
    holder: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why a run is stuck, most likely."""

    cause: Cause
    sentence: str
    seconds: float
    group: str | None = None


def watch(before: Watch | None, status: Status, now: float) -> Watch:
    """What is known after one more look."""
    completed = status.stat("completed")
    fresh = Watch(now, completed, _failed(status), status.stat("dropped"))
    if not _has_work(status):
        return Watch(None, completed)
    if before is None or before.since is None or before.completed != completed:
        return fresh
    return before


def quiet_seconds(watched: Watch, now: float) -> float:
    """For how long there has been work and no completion; 0: there is progress, or nothing to do."""
    return 0.0 if watched.since is None else now - watched.since


def judge(watched: Watch, status: Status, now: float, stuck_seconds: float, held: Held | None) -> Verdict | None:
    """Why the run is stuck; None: it is not. `held`: the oldest lease, if somebody looked."""
    seconds = quiet_seconds(watched, now)
    if seconds < stuck_seconds:
        return None
    cause, why, group = _likely(watched, status, held)
    return Verdict(cause, f"no group was completed for {_span(seconds)}: {why}", seconds, group)


def _has_work(status: Status) -> bool:
    return status.reason not in _NOT_OURS and (status.queued > 0 or status.window.active > 0)


def _likely(watched: Watch, status: Status, held: Held | None) -> tuple[Cause, str, str | None]:
    workers = status.workers
    if not workers:
        return "no_workers", "no worker is alive", None
    if all(worker.draining for worker in workers):
        return "workers_draining", "every worker was told to drain", None
    states = Counter(str(worker.facts.get("state", "unknown")) for worker in workers)
    if "ready" not in states:
        state, number = states.most_common(1)[0]
        return "engines_not_ready", f"no worker is ready ({number} of {len(workers)} say {state})", None
    if (failed := _failed(status) - watched.failed) >= _RETRIES:
        return "all_retries", f"{failed} attempts failed meanwhile; look at the groups in `again`", None
    if (dropped := status.stat("dropped") - watched.dropped) > 0:
        return "all_dropped", f"the group filter dropped all {dropped} groups that were finished", None
    if held:
        return "slow_group", f"group {held.id} has been held by {held.holder} for {_span(held.seconds)}", held.id
    return "unknown", "workers are ready and hold nothing; look at their logs", None


def _failed(status: Status) -> int:
    return sum(status.stat(name) for name in ("released:fail", "released:reject", "reaped"))


def _span(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
