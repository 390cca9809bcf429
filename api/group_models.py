"""What the API answers about single groups and dead letters. The rules are those of models.py."""

from typing import Annotated, Literal

from api.model import Model, said

type GroupState = Literal["queued", "again", "active", "waiting", "taken"]
type Place = Literal["queued", "again", "active", "waiting", "taken", "over", "dead"]


class GroupRow(Model):
    """A group in a list. What does not apply to its state is null."""

    id: Annotated[str | None, said("null: a raw entry without an id.", "gsm8k-17")]
    state: Annotated[GroupState, said("Where it is.", "active")]
    n: Annotated[int | None, said("Samples; null: a raw entry that does not say.", 8)]
    finished: Annotated[int | None, said("Samples that are stored.", 5)]
    attempts: Annotated[int | None, said("Claims that count.", 1)]
    holder: Annotated[str | None, said("Worker that holds it, or consumer that took it.", "pod-3/1700000000000")]
    submitted_ms: Annotated[int | None, said("Server time.", 1_764_433_000_000)]
    claimed_ms: Annotated[int | None, said("Server time of the last claim.", 1_764_433_300_000)]
    due_seconds: Annotated[float | None, said("again: until it may be claimed; active: until its lease ends.", 31.5)]
    reason: Annotated[str | None, said("Why its last attempt ended.", "lease expired")]
    entry: Annotated[str | None, said("Its entry in `completed`.", "1764433380000-0")]


class GroupsPage(Model):
    """A page of groups in one state, in the order of the line."""

    run: Annotated[str, said("Name of the run.", "math")]
    state: GroupState
    total: Annotated[int, said("Groups in this state.", 1200)]
    groups: list[GroupRow]
    next: Annotated[str | None, said("`after` for the next page; null: this was the last.", "50")]


class GroupEvent(Model):
    """Something that happened to a group, as far as its record says."""

    at_ms: Annotated[int, said("Server time.", 1_764_433_300_000)]
    what: Annotated[str, said("submitted, claimed, failed, completed, over, dead.", "claimed")]
    detail: Annotated[str, said("By whom, or why; may be empty.", "pod-3/1700000000000")]


class GroupReply(Model):
    """One group: where it is, and what happened to it."""

    run: Annotated[str, said("Name of the run.", "math")]
    id: Annotated[str, said("Its id.", "gsm8k-17")]
    place: Annotated[Place, said("Where it is; over: acked or dropped.", "active")]
    sentence: Annotated[str, said("The same for a person.", "held by pod-3/1700000000000, 5 of 8 samples finished")]
    born: Annotated[str | None, said("Its incarnation.", "1764433000.123-1764433000456-17")]
    n: Annotated[int | None, said("Samples.", 8)]
    finished: Annotated[list[int], said("Indices of the samples that are stored.", [0, 1, 3, 4, 7])]
    attempts: Annotated[int | None, said("Claims that count.", 1)]
    recycled: Annotated[int | None, said("How often a trainer found it too old.", 0)]
    holder: Annotated[str | None, said("Worker that holds it, or consumer that took it.", "pod-3/1700000000000")]
    lease_seconds: Annotated[float | None, said("Until the lease ends.", 55.0)]
    due_seconds: Annotated[float | None, said("Until it may be claimed again.", 0.0)]
    reason: Annotated[str | None, said("Why its last attempt ended.", "engine: 500")]
    entry: Annotated[str | None, said("Its entry in `completed` or `dead`.", "1764433380000-0")]
    history: Annotated[list[GroupEvent], said("What is known of its way, oldest first.")]
    text: Annotated[str | None, said("The prompt group as it came; at most the first 64 KiB.", '{"prompt": "6 * 7?"}')]


class DeadLetterRow(Model):
    """A group that was given up."""

    entry: Annotated[str, said("Its entry in `dead`; what requeue and drop are given.", "1764433380000-0")]
    id: Annotated[str, said("Its id; empty: the entry never was a group.", "gsm8k-17")]
    reason: Annotated[str, said("Why it was given up.", "lease expired")]
    attempts: Annotated[int, said("Attempts that counted.", 5)]
    at_ms: Annotated[int, said("Server time.", 1_764_433_380_000)]
    text: Annotated[str, said("The prompt group, at most its first KiB.", '{"prompt": "6 * 7?"}')]


class DeadPage(Model):
    """A page of dead letters, newest first."""

    run: Annotated[str, said("Name of the run.", "math")]
    total: Annotated[int, said("All dead letters.", 3)]
    letters: list[DeadLetterRow]
    next: Annotated[str | None, said("`after` for the next page; null: this was the last.", "1764433380000-0")]
