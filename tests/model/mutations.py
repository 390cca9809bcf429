"""The table of mutations: each guard taken away, what breaks, and the scope in which that is found.

A scope is as small as it can be: the shortest trace to the breach is then a story of a dozen moves.
"""

from typing import NamedTuple

from tests.model.environment import WITHOUT_WEIGHTS
from tests.model.explore import UNREACHABLE
from tests.model.loading import STANDING
from tests.model.scopes import LEFT_TO_REPAIR, ONE, PACED, PAIR, RECYCLES, TWO_PLACES, events
from tests.model.state import Config
from tests.model.world import Scope


class Mutation(NamedTuple):
    """`breaks` names an invariant that doesn't hold any more; the walk ends at its first breach."""

    off: str
    breaks: str
    scope: Scope


ALONE = Scope((1,), ONE)
LATE = ALONE._replace(events=events(lose=1, expire=1))
DEATHS = Scope((1,), ONE, workers=1, events=events(died=3, died_alone=3), faults=3)
ROLLING = Scope((1,), ONE, at_once=1, events=events(publish=1))
TRIPLE = Config(sample_concurrency=3, n=3, refill="sample")

MUTATIONS: tuple[Mutation, ...] = (
    Mutation("window.active", "I1 window", Scope((1, 1), ONE)),
    Mutation("window.waiting", "I2 waiting", Scope((1, 1), ONE)),
    Mutation(
        "window.open_cap",
        "I2 waiting",
        Scope((1, 1, 1, 1), Config(sample_concurrency=6, n=3, refill="sample", open_cap=1), workers=3),
    ),
    Mutation("window.fits", "I1 window", Scope((2, 3), Config(sample_concurrency=4, n=2, refill="sample"))),
    Mutation(
        "window.paused",
        "I1 closed by hand",
        ALONE._replace(events=events(configure=1), configs=(ONE._replace(paused=True),)),
    ),
    Mutation("window.pace", "I1 pace", Scope((1, 1), PACED)),
    Mutation("begin.books", UNREACHABLE, Scope((1, 1), PACED, workers=1, events=events(crash=1))),
    Mutation("claim.draining", "I1 closed by hand", ALONE._replace(events=events(drain=1))),
    Mutation("claim.barred", "I1 closed by hand", ALONE._replace(events=events(evict=1))),
    Mutation("claim.replay", "I6 leases", Scope((1, 1), TWO_PLACES, events=events(lose=1))),
    Mutation("claim.done", "I3 done is done", ALONE._replace(events=events(push=1))),
    Mutation("claim.known", "I4 no loss", ALONE._replace(events=events(push=1))),
    Mutation("submit.done", "I3 done is done", ALONE._replace(events=events(resend=1))),
    Mutation("submit.known", "I4 no loss", ALONE._replace(events=events(resend=1))),
    Mutation("heartbeat.owner", "I8 lost is lost", ALONE._replace(events=events(expire=2))),
    Mutation("heartbeat.listed", "I8 a heartbeat keeps", ALONE._replace(events=events(expire=1))),
    Mutation("heartbeat.settled", "I8 a heartbeat keeps", ALONE._replace(events=events(lose=1))),
    Mutation("put.gone", "I5 samples", Scope((1,), ONE, events=events(lose=1))),
    Mutation("put.born", "I5 samples", LATE._replace(events=events(recycle=1, lose=1))),
    Mutation("put.keep", "I7 samples stay", Scope((1,), ONE, events=events(lose=1))),
    Mutation(
        "put.first",
        "I9 rewards",
        Scope((2,), PAIR, events=events(noscript=1, expire=1), has_repair=True, exempt=LEFT_TO_REPAIR),
    ),
    Mutation("put.hlen", "I6 outstanding", Scope((3,), TRIPLE, events=events(lose=1))),
    Mutation("put.partial", "I5 finished", ALONE._replace(events=events(keep=1))),
    Mutation("keep.owner", "I8 lost is lost", ALONE._replace(events=events(keep=1, expire=1))),
    Mutation("keep.stored", "I5 finished", ALONE._replace(events=events(keep=1, lose=1))),
    Mutation("end.partials", "I5 partials", ALONE._replace(events=events(keep=1, reject=1))),
    Mutation(
        "complete.partials",
        "I5 partials",
        Scope((1,), ONE, events=events(keep=1, noscript=1), has_repair=True, exempt=LEFT_TO_REPAIR),
    ),
    Mutation("complete.born", "I9 rewards", LATE._replace(events=events(flush=1, lose=1, expire=1), faults=3)),
    Mutation("complete.owner", "I8 lost is lost", ALONE._replace(events=events(expire=1))),
    Mutation(
        "complete.owner",
        "I2 waiting",
        Scope((1, 1, 1), ONE, events=events(expire=2), exempt=frozenset({"I8 lost is lost"})),
    ),
    Mutation("complete.n", "I9 rewards", ALONE._replace(events=events(hasty=1))),
    Mutation("release.owner", "I8 lost is lost", ALONE._replace(events=events(expire=1, fail=1))),
    Mutation("release.deaths", "I10 bounds", DEATHS),
    Mutation("release.beside", "I10 bounds", DEATHS),
    Mutation("drop.owner", "I8 lost is lost", ALONE._replace(events=events(expire=1, drop=1))),
    Mutation("fail.limit", "I10 bounds", ALONE._replace(events=events(fail=2))),
    Mutation("take.pending", UNREACHABLE, ALONE._replace(events=events(lose=1))),
    Mutation("ack.entry", "I4 one place", ALONE._replace(events=events(recycle=1, lose=1))),
    Mutation("recycle.entry", "I4 one place", Scope(
        (1,), ONE._replace(max_recycles=2), events=events(recycle=2, lose=1), faults=3
    )),
    Mutation("recycle.born", "I7 samples stay", ALONE._replace(events=events(recycle=1))),
    Mutation(
        "recycle.born",
        "I3 entered once",
        ALONE._replace(events=events(recycle=1), exempt=frozenset({"I7 samples stay"})),
    ),
    Mutation("recycle.limit", "I10 bounds", ALONE._replace(events=events(recycle=2))),
    Mutation("ack.session", UNREACHABLE, Scope((1, 1), PACED, workers=1, events=events(crash=1, lose=1))),
    Mutation("judge.entry", "I4 one place", Scope(
        (1,), RECYCLES._replace(max_recycles=2), events=events(judge=2, lose=1), faults=3
    )),
    Mutation("cancel.owner", "I8 lost is lost", Scope((1,), RECYCLES, events=events(expire=1, cancel=1))),
    Mutation("cancel.limit", "I10 bounds", Scope((1,), RECYCLES, events=events(cancel=2))),
    Mutation("publish.replay", "weights version", ROLLING._replace(workers=1, events=events(publish=1, lose=1))),
    Mutation("publish.loaded", STANDING, ROLLING._replace(n=(), events=events(publish=2, unloadable=1), faults=3)),
    Mutation("update.expiry", UNREACHABLE, ROLLING._replace(events=events(publish=2, kill=1), faults=3)),
    Mutation("update.newer", "weights turn", ROLLING._replace(n=(), events=events(publish=2, lose=1), faults=3)),
    Mutation("update.barred", "weights turns", ROLLING._replace(n=(), events=events(publish=1, evict=1), faults=2)),
    Mutation("update.engine", "weights turns", ROLLING._replace(n=(), has_one_engine=True)),
    Mutation(
        "update.own",
        "weights turns",
        ROLLING._replace(n=(), workers=1, events=events(publish=2, unloadable=1), faults=3),
    ),
    Mutation("update.at_once", "weights turn", ROLLING._replace(n=(), events=events(publish=2))),
    Mutation("update.held", STANDING, ROLLING._replace(n=(), events=events(publish=2, unloadable=1), faults=3)),
    Mutation("evict.turn", "weights turns", ROLLING._replace(n=(), events=events(publish=1, evict=1))),
    Mutation("worker.gate", WITHOUT_WEIGHTS, ROLLING),
    Mutation("requeue.known", "I4 no loss", Scope(
        (1,), ONE._replace(max_attempts=1), workers=1, events=events(fail=1, trim=1, resend=1, requeue=1), faults=4
    )),
    Mutation("run.epoch", "I3 entered once", ALONE._replace(events=events(flush=1))),
    Mutation("worker.reread", "I9 rewards", LATE._replace(events=events(expire=1))),
)  # fmt: skip
