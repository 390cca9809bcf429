"""The last minutes of a run as columns, for strip charts."""

from api.models import History as HistoryReply
from rolloutfleet.history import FINE_SECONDS, History, Point, growth


def columns(run: str, history: History, seconds: float, step_seconds: float) -> HistoryReply:
    """The points of the last `seconds`, one in each step; the newest is always among them."""
    points = thin(list(history.fine), seconds, step_seconds)
    pairs = list(zip([None, *points[:-1]], points, strict=True)) if points else []

    def rates(counter: str) -> list[float | None]:
        return [growth(then, now, counter) if then else None for then, now in pairs]

    return HistoryReply(
        run=run,
        step_seconds=step_seconds,
        at_ms=[point.at_ms for point in points],
        reason=[point.reason for point in points],
        slots_busy=[point.busy for point in points],
        slots_total=[point.slots for point in points],
        active=[point.active for point in points],
        waiting=[point.waiting for point in points],
        queued=[point.queued for point in points],
        window=[point.window for point in points],
        groups_per_second=rates("completed"),
        samples_per_second=rates("samples"),
        tokens_per_second=rates("tokens"),
    )


def thin(points: list[Point], seconds: float, step_seconds: float) -> list[Point]:
    """From the newest back, one point in each step."""
    kept: list[Point] = []
    for point in reversed(points):
        if points[-1].at - point.at > seconds:
            break
        if not kept or kept[-1].at - point.at >= step_seconds - FINE_SECONDS / 2:
            kept.append(point)
    return kept[::-1]
