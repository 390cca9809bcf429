"""The guards of the steps, by name, and how to switch one off.

A guard is a condition that a step would be shorter without. The table of mutations takes each away and says what
breaks; one that nothing misses is either redundant or the scopes are too small.
"""

from collections.abc import Generator
from contextlib import contextmanager

GUARDS = {
    "window.active": "claim only while active < W",
    "window.waiting": "claim only while waiting < W",
    "window.open_cap": "sample refill: claim only while leases < open_cap * W",
    "window.fits": "sample refill: claim only what fits, outstanding + left <= n * W",
    "window.paused": "claim nothing in a paused run",
    "window.pace": "claim only while the trainer would come to the group before it is too old",
    "claim.draining": "grant nothing to a worker that drains",
    "claim.barred": "grant nothing to a worker that was evicted",
    "claim.replay": "a token that is known gets the same grant again",
    "claim.done": "claim skips a raw entry whose id is done",
    "claim.known": "claim skips a raw entry whose id is known",
    "submit.done": "submit refuses an id that is done",
    "submit.known": "submit refuses an id that is known",
    "heartbeat.owner": "heartbeat extends only what the worker owns",
    "heartbeat.listed": "heartbeat frees no grant that the worker lists",
    "heartbeat.settled": "heartbeat frees no grant of a claim whose answer may come",
    "put.gone": "put unlinks the samples of a group that is gone",
    "put.born": "put unlinks the samples of another incarnation",
    "put.keep": "put never unlinks the samples of a completed group",
    "put.hlen": "put counts what is left from HLEN, not by decrement",
    "put.first": "put tells from HSETNX who was first, not from what is left",
    "put.partial": "put drops the beginning of a sample that is finished",
    "keep.owner": "keep by the owner only",
    "keep.stored": "keep stores nothing of a sample that is finished",
    "end.partials": "whatever frees a group's samples frees the partial ones, too",
    "complete.partials": "complete frees what is left of partial samples",
    "complete.born": "complete refuses another incarnation",
    "complete.owner": "complete by the owner only",
    "complete.n": "complete only with all n samples stored",
    "release.owner": "release by the owner only",
    "release.deaths": "a group that was alone with max_attempts engines that died is a dead letter",
    "release.beside": "of a group that was not alone two deaths of engines are counted at the most",
    "drop.owner": "drop by the owner only",
    "fail.limit": "a group that failed max_attempts times is a dead letter",
    "take.pending": "take hands out the consumer's own pending entries first",
    "ack.entry": "ack acts only if its XDEL removed the entry",
    "recycle.entry": "recycle acts only if its XDEL removed the entry",
    "recycle.born": "recycle gives a new born",
    "recycle.limit": "recycle only max_recycles times",
    "ack.session": "ack counts nothing as trained that an earlier life of the trainer sent",
    "begin.books": "a trainer that begins answers for no group of before",
    "judge.entry": "judge acts only on an entry that is in the stream",
    "cancel.owner": "cancel by the owner only",
    "cancel.limit": "cancel only max_recycles times, recycles included",
    "evict.turn": "evict frees the worker's turn to load weights",
    "publish.replay": "a publication that is known gets the same version again",
    "publish.loaded": "nobody has loaded what was just published",
    "update.expiry": "the turn of a worker that died ends by itself",
    "update.newer": "nobody gets a turn at what is the policy no more",
    "update.barred": "nobody gets a turn that was evicted",
    "update.engine": "nobody loads into an engine while another worker does",
    "update.own": "a worker's turn at older weights is over when it asks for one at newer ones",
    "update.at_once": "at most at_once workers that served load at a time",
    "update.held": "a worker that can't load what nobody has loaded keeps its turn",
    "worker.gate": "a worker claims only while its weights are in use",
    "requeue.known": "requeue leaves an id alone that is known again",
    "run.epoch": "a run that is made anew has another epoch",
    "worker.reread": "a worker whose put answers `had` scores the stored sample, not its own",
}

off: set[str] = set()


def guard(name: str, condition: bool = True) -> bool:
    """The condition, as long as the guard is in place."""
    return condition and name not in off


@contextmanager
def without(*names: str) -> Generator[None, None, None]:
    if unknown := set(names) - GUARDS.keys():
        raise KeyError(f"no such guard: {sorted(unknown)}")
    off.update(names)
    try:
        yield
    finally:
        off.difference_update(names)
