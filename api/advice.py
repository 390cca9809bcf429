"""What to do about what holds the fleet back, in one clause. One catalogue, for the page and for people."""

from api.estimates import is_worth_it
from api.models import Slots
from rolloutfleet.status import Status
from rolloutfleet.stuck import Cause
from rolloutfleet.window import Reason

_GATE = {
    Reason.COMPLETED_FULL: "nothing, if the trainer is to set the pace; otherwise fewer GPUs for rollouts would do",
    Reason.NO_PROMPTS: "submit more prompt groups, or sooner",
    Reason.BUSY: "add workers",
    Reason.PACE: "nothing, while the trainer trains; otherwise look why it publishes nothing, or raise max_staleness",
    Reason.NO_CAPACITY: "start a worker, or set sample_concurrency to a number",
    Reason.PAUSED: "resume the run",
}
_STUCK: dict[Cause, str] = {
    "no_workers": "start workers",
    "workers_draining": "undrain them, or start others",
    "engines_not_ready": "look at the engines of the workers below",
    "all_retries": "look at the reasons in `again` and among the dead letters",
    "all_dropped": "look at the group filter",
    "slow_group": "look at the group; its worker can be drained",
    "unknown": "look at the logs of the workers",
}


def advice(status: Status, slots: Slots, stuck: Cause | None) -> str:
    """The mend; empty: nothing is to be done."""
    if stuck:
        return _STUCK[stuck]
    if status.reason is Reason.ACTIVE_FULL:
        return _active_full(status, slots)
    if status.reason is Reason.OPEN:
        return "" if status.workers else "start workers"
    return _GATE[status.reason]


def _active_full(status: Status, slots: Slots) -> str:
    if status.window.samples < slots.total:
        return f"raise sample_concurrency: the workers have {slots.total} slots"
    measured, estimate = slots.utilisation_5_minutes, slots.with_refill_sample
    if measured is not None and estimate is not None and is_worth_it(estimate, measured):
        gain = f"would use {estimate:.0%} of them instead of {measured:.0%}"
        return f"slots idle behind slow samples: refill = sample {gain}"
    return "add workers" if measured is not None and measured > 0.9 else ""
