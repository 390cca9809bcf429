"""A run as lines of text, for `rolloutfleet status`, `rolloutfleet top` and the main job."""

from collections.abc import Sequence

from rolloutfleet.status import Status, WorkerStatus


def lines(status: Status, width: int | None = None) -> list[str]:
    """The gate first, then the window as a picture, the queues, the workers. Each line fits into `width` characters;
    without a width none is cut, and pictures are made for 80."""
    shown = [
        _gate(status),
        *_window(status, width or 80),
        _queues(status),
        _behind(status),
        *_stale(status),
        *_weights(status),
        *_losses(status),
        *_workers(status.workers),
    ]
    return [line[:width] for line in shown]


def _gate(status: Status) -> str:
    known = status.gate_seconds is not None and status.gate == status.reason
    since = f" (for {duration(status.gate_seconds or 0)})" if known else ""
    return f"{status.run}: {status.sentence}{since}"


def _window(status: Status, width: int) -> list[str]:
    window = status.window
    concurrency = f"sample_concurrency {status.config.sample_concurrency}, n {window.n}, refill {window.refill}"
    return [
        f"window    {window.size} groups ({concurrency})",
        f"active    {bar(window.used, window.size, width - 20)} {window.used}/{window.size}",
        f"waiting   {bar(window.waiting, window.size, width - 20)} {window.waiting}/{window.size}",
    ]


def _queues(status: Status) -> str:
    done = f"{status.stat('completed')} completed, {status.stat('acked')} trained, {status.dead} dead"
    return f"groups    {status.prompts} queued, {status.again} again, {status.taken} taken, {done}"


def _behind(status: Status) -> str:
    behind = status.seconds_behind
    total = sum(behind.values()) or 1
    shares = sorted(((seconds / total, reason) for reason, seconds in behind.items()), reverse=True)
    return "gate      " + (", ".join(f"{reason} {share:.0%}" for share, reason in shares) or "no claim yet")


def _stale(status: Status) -> list[str]:
    """How many versions behind their trainer groups were, where a trainer says its version; what the pace leaves."""
    told = [
        f"{fate} {', '.join(f'{behind}: {groups}' for behind, groups in each.items())}"
        for fate, each in status.judged.items()
        if each
    ]
    left = status.window.pace_left
    room = [] if left is None else [f"{max(0, left)} groups until the next update"]
    return [f"behind    {'; '.join([*told, *room])}"] if told or room else []


def _weights(status: Status) -> list[str]:
    policy = status.policy
    if policy is None:
        return []
    label = f" ({policy.label})" if policy.label else ""
    stood = "" if not status.stood else f"; {status.stood:.1%} of the slots' time stood for updates"
    on = f"on {status.workers_current} of {len(status.workers)} workers"
    return [f"weights   version {policy.version}{label}, {policy.mode}, {on}{stood}"]


def _losses(status: Status) -> list[str]:
    losses = status.losses
    if not losses.causes:
        return []
    causes = ", ".join(f"{number} {cause}" for cause, number in sorted(losses.causes.items()))
    tenths = " ".join(map(str, losses.deciles)) if losses.deciles else "not known yet"
    return [f"given up  {causes}; from short to long, by tenths: {tenths}"]


def _workers(workers: Sequence[WorkerStatus]) -> list[str]:
    if not workers:
        return ["workers   none is alive"]
    busy = [int(worker.facts.get("busy", 0)) for worker in workers]
    slots = sum(worker.slots for worker in workers)
    total = f"workers   {len(workers)}, slots {bar(sum(busy), slots, 30)} {sum(busy)}/{slots}"
    return [total, *(_worker(worker, one) for worker, one in zip(workers, busy, strict=True))]


def _worker(worker: WorkerStatus, busy: int) -> str:
    state = "draining" if worker.draining else str(worker.facts.get("state", "unknown"))
    held, reason = worker.facts.get("held", "?"), worker.facts.get("reason")
    why = f"; {reason}" if reason else ""
    return f"  {worker.name:30} {state:14} {busy:>4}/{worker.slots:<4} slots, {held} groups{why}"


def bar(part: int, whole: int, width: int) -> str:
    """A bar of `width` characters."""
    filled = 0 if whole <= 0 else min(width, round(width * part / whole))
    return "#" * filled + "." * (width - filled)


def duration(seconds: float) -> str:
    """12 s, 3 min, 2 h."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"
