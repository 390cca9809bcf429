"""The scopes that are explored, small ones first.

`QUICK` are exhausted within seconds and run with the tests; `DEEP` are for `python -m tests.model`.
"""

from tests.model.state import Config
from tests.model.world import Scope


def events(**counts: int) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(counts.items()))


def described(scope: Scope) -> str:
    """In one line, as the table of mutations shows it."""
    config = scope.config
    workers = "1 worker" if scope.workers == 1 else f"{scope.workers} workers"
    window = f"S = {config.sample_concurrency}, n = {config.n}, {config.refill} refill"
    bought = ", ".join(f"{event} {count}" for event, count in scope.events) or "nothing goes wrong"
    return f"groups of {', '.join(map(str, scope.n))}; {window}; {workers}; {bought}"


ONE = Config(sample_concurrency=1, n=1)
PAIR = Config(sample_concurrency=2, n=2)
TWO_PLACES = Config(sample_concurrency=2, n=1)
SAMPLES = Config(sample_concurrency=4, n=2, refill="sample", open_cap=2)
MORTAL = Config(sample_concurrency=1, n=1, max_attempts=1)

PACED = Config(sample_concurrency=2, n=1, max_staleness=0)

RECYCLES = Config(sample_concurrency=1, n=1, max_staleness=0, groups_per_update=9, stale="recycle", cancel_stale=True)

LEFT_TO_REPAIR = frozenset({"I5 samples", "I6 outstanding"})
"""What a worker leaves behind that dies between NOSCRIPT and its next try."""
NO_STREAM = frozenset({"I4 one place", "I2 waiting", "I10 bounds"})
"""A stream that is deleted takes its entries along until repair, and a repaired group has one attempt more."""
RESIZED = frozenset({"I2 waiting"})
"""What waits was admitted by the larger window."""
ORPHANED = frozenset({"I2 waiting"})
"""What a deleted consumer held waits again."""

QUICK: dict[str, Scope] = {
    "one-group": Scope((1,), ONE, events=events(lose=1, expire=1, kill=1)),
    "two-groups": Scope((1, 1), ONE, events=events(lose=1, expire=1, kill=1), faults=1),
    "two-samples": Scope((2,), PAIR, events=events(lose=1, expire=1, kill=1)),
    "two-places": Scope((1, 1), TWO_PLACES, events=events(lose=1, expire=1), faults=1),
    "sample-refill": Scope((2, 2, 1), SAMPLES, events=events(expire=1), faults=1),
    "big-group": Scope((3, 1), SAMPLES._replace(sample_concurrency=2), events=events(lose=1, expire=1), faults=1),
    "overcommit": Scope((1, 1, 1), ONE._replace(overcommit=1500), events=events(expire=1), faults=1),
    "automatic": Scope(
        (1,), ONE._replace(sample_concurrency=None), events=events(lose=1, kill=1), exempt=RESIZED
    ),
    "hands": Scope((1,), ONE, events=events(drop=1, fail=1, free=1, reject=1, evict=1, lose=1)),
    "paced": Scope((1, 1), PACED, events=events(lose=1, expire=1, crash=1, recycle=1), faults=1),
    "engine-deaths": Scope((1, 1), ONE, workers=1, events=events(died=2, died_alone=2, lose=1), faults=3),
    "judged": Scope((1,), RECYCLES, events=events(judge=2, cancel=1, lose=1, expire=1), faults=3),
    "judged-dead": Scope(
        (1,), RECYCLES._replace(recycle_then="dead"), workers=1, events=events(judge=2, lose=1), faults=3
    ),
    "judged-dropped": Scope((1,), RECYCLES._replace(stale="drop"), workers=1, events=events(judge=2, lose=1), faults=3),
    "dropped": Scope((1, 1), ONE, workers=1, events=events(drop=2, lose=1)),
    "dead-letters": Scope(
        (1,), MORTAL, workers=1, events=events(fail=1, requeue=1, resend=1, trim=1, lose=1), faults=4
    ),
    "producers": Scope(
        (1,), ONE, workers=1, events=events(push=1, push_unnamed=1, push_bad=1, resend=1, trim=1, lose=1)
    ),
    "recycled": Scope((1,), ONE, events=events(recycle=2, lose=1, expire=1), faults=3),
    "trainers": Scope((1,), ONE, workers=1, trainers=2, events=events(steal=1, crash=1, leave=1, lose=1, recycle=1)),
    "published": Scope((1,), ONE, at_once=0, events=events(publish=2, lose=1, expire=1)),
    "rolling": Scope((1,), ONE, at_once=1, events=events(publish=2, unloadable=1, lose=1)),
    "rolling-deaths": Scope((1,), ONE, at_once=1, events=events(publish=2, kill=1, evict=1)),
    "one-engine": Scope((1,), ONE, at_once=0, has_one_engine=True, events=events(publish=1, away=1, lose=1)),
    "forgotten-claims": Scope((1,), TWO_PLACES, events=events(forget=1, beat=1, lose=2, expire=1), faults=2),
    "drained": Scope((1,), ONE, events=events(drain=1, lose=1, expire=1)),
    "resized": Scope(
        (1, 1), ONE, events=events(configure=2), configs=(ONE, TWO_PLACES, PAIR), exempt=RESIZED
    ),
    "paused": Scope((1,), ONE, events=events(configure=1, lose=1), configs=(ONE._replace(paused=True),)),
    "flushed": Scope((1,), ONE, events=events(flush=1, lose=1, expire=1)),
    "repaired": Scope((1,), ONE, events=events(repair=1, lose=1, expire=1)),
    "begun": Scope((1,), ONE, events=events(keep=2, lose=1, expire=1, recycle=1), faults=3),
    "begun-no-script": Scope(
        (1,), ONE, events=events(keep=1, noscript=1, expire=1), faults=3, has_repair=True, exempt=LEFT_TO_REPAIR
    ),
    "no-script": Scope((2,), PAIR, events=events(noscript=1, expire=1), has_repair=True, exempt=LEFT_TO_REPAIR),
    "stream-deleted": Scope(
        (1,), ONE, events=events(delete_stream=1, lose=1, expire=1), has_repair=True, exempt=NO_STREAM
    ),
    "consumer-deleted": Scope(
        (1, 1), ONE, workers=1, trainers=2, events=events(delete_consumer=1), has_repair=True, exempt=ORPHANED
    ),
}  # fmt: skip

DEEP: dict[str, Scope] = {
    "one-group-deep": Scope((1,), ONE, events=events(lose=2, expire=2, kill=1), faults=4),
    "two-groups-deep": Scope((1, 1), ONE, events=events(lose=2, expire=2, kill=1), faults=2),
    "three-groups": Scope((1, 1, 1), ONE, events=events(lose=1, expire=1, kill=1), faults=1),
    "two-samples-deep": Scope((2,), PAIR, events=events(lose=2, expire=2, kill=1), faults=3),
    "unequal-groups": Scope((2, 1), PAIR, events=events(lose=1, expire=1, kill=1), faults=2),
    "two-places-deep": Scope((1, 1), TWO_PLACES, events=events(lose=1, expire=2, kill=1), faults=2),
    "sample-refill-deep": Scope((2, 2, 1), SAMPLES, events=events(lose=1, expire=1, kill=1), faults=1),
    "sample-refill-capped": Scope((1, 2, 1), SAMPLES._replace(open_cap=1), events=events(lose=1, expire=1), faults=1),
    "big-groups": Scope((3, 1, 2), SAMPLES._replace(sample_concurrency=3), events=events(expire=1), faults=1),
    "three-workers": Scope((1, 1, 1), TWO_PLACES, workers=3, events=events(expire=1), faults=1),
    "paced-deep": Scope((1, 1, 1), PACED, events=events(lose=1, expire=1, crash=1, drop=1, recycle=1), faults=2),
    "paced-by-twos": Scope(
        (1, 1, 1), PACED._replace(groups_per_update=2), events=events(crash=1, lose=1), faults=2
    ),
    "hands-deep": Scope(
        (2,), PAIR, events=events(drop=1, fail=1, free=1, evict=1, expire=1, lose=1, requeue=1), faults=3
    ),
    "dead-letters-deep": Scope(
        (1, 1), MORTAL, workers=1, events=events(fail=1, requeue=1, resend=1, trim=1, expire=1, lose=1), faults=4
    ),
    "producers-deep": Scope((1, 1), ONE, events=events(push=2, resend=1, trim=1, lose=1), faults=3),
    "recycled-deep": Scope((2,), PAIR, events=events(recycle=1, lose=2, expire=1, kill=1), faults=3),
    "recycled-twice": Scope(
        (1,), ONE._replace(max_recycles=2), events=events(recycle=3, lose=1, expire=1), faults=4
    ),
    "trainers-deep": Scope(
        (1, 1), ONE, workers=1, trainers=2, events=events(steal=1, crash=1, leave=1, lose=1, recycle=1), faults=3
    ),
    "forgotten-claims-deep": Scope((1, 1), TWO_PLACES, events=events(forget=1, beat=1, lose=1, expire=1), faults=2),
    "evicted": Scope((1, 1), TWO_PLACES, events=events(evict=2, lose=1, expire=1), faults=2),
    "resized-deep": Scope(
        (1, 1, 1), ONE, events=events(configure=2, expire=1), faults=2,
        configs=(ONE, TWO_PLACES, PAIR), exempt=RESIZED,
    ),
    "resized-sample": Scope(
        (2, 1, 1), SAMPLES, events=events(configure=2), faults=2, exempt=RESIZED,
        configs=(SAMPLES, SAMPLES._replace(sample_concurrency=2), SAMPLES._replace(n=1)),
    ),
    "flushed-deep": Scope((1,), ONE, events=events(flush=1, lose=2, expire=1), faults=3),
    "flushed-two-groups": Scope((1, 1), ONE, events=events(flush=1, lose=1, expire=1), faults=2),
    "repaired-deep": Scope((1, 1), ONE, events=events(repair=2, lose=1, expire=1), faults=2),
    "no-script-deep": Scope(
        (2,), PAIR, events=events(noscript=1, lose=1, expire=1), has_repair=True, exempt=LEFT_TO_REPAIR
    ),
    "stream-deleted-deep": Scope(
        (1, 1), ONE, events=events(delete_stream=1, lose=1, expire=1), has_repair=True, exempt=NO_STREAM
    ),
    "rolling-unloadable": Scope((1,), ONE, at_once=1, events=events(publish=2, unloadable=1, lose=1), faults=3),
    "rolling-evicted": Scope((1,), ONE, at_once=1, events=events(publish=2, kill=1, evict=1), faults=3),
    "unequal-groups-deeper": Scope((2, 1), PAIR, events=events(lose=1, expire=1, kill=1), faults=3),
    "mixed": Scope(
        (2,), PAIR, faults=3,
        events=events(
            lose=1, expire=1, kill=1, drop=1, fail=1, free=1, evict=1, recycle=1, requeue=1, trim=1, resend=1
        ),
    ),
    "two-groups-deeper": Scope((1, 1), ONE, events=events(lose=2, expire=2, kill=1), faults=3),
}  # fmt: skip
SCOPES: dict[str, Scope] = {**QUICK, **DEEP}
