"""The claim: the step on which the fleet's window rests.

A token is `worker/claim/k`; `worker/claim` is the base that the caller chose for one claim of up to k groups.
"""

from typing import NamedTuple

from tests.model import parts, window
from tests.model.guards import guard
from tests.model.state import Broker, Letter, Prompt

SKIPS = 64
"""How many entries a claim looks at for one place before it answers `again`."""


class Grant(NamedTuple):
    """What a worker gets with a lease. `stored` and `begun` are indices: of finished samples, and of partial ones."""

    token: str
    id: str
    born: str
    n: int
    attempts: int
    stored: tuple[int, ...]
    begun: tuple[int, ...] = ()
    deaths: int = 0


class Claimed(NamedTuple):
    """`reason` is `open` with grants, otherwise why there are none."""

    reason: str
    grants: tuple[Grant, ...] = ()


class Candidate(NamedTuple):
    prompt: Prompt
    is_again: bool


def claim(
    broker: Broker,
    worker: str,
    base: str,
    places: int = 1,
    due: tuple[str, ...] = (),
    expired: tuple[str, ...] | None = None,
    skips: int = SKIPS,
) -> tuple[Broker, Claimed]:
    """Grant up to `places` groups: those of `due` that are in `again`, in that order, then the head of `prompts`.

    `expired` are the leases that this claim reaps first, all expired ones if None.
    """
    if broker.config is None:
        return broker, Claimed("no_run")
    if guard("claim.barred", worker in broker.barred):
        return broker, Claimed("gone")
    tokens = tuple(f"{base}/{place}" for place in range(places))
    known = tuple(token for token in tokens if broker.grants.has(token))
    if known and guard("claim.replay"):
        broker = extend(broker, tuple(broker.grants.get(token) for token in known))
        return broker, Claimed("open", tuple(grant_of(broker, token) for token in known))
    if guard("claim.draining", worker in broker.draining):
        return broker, Claimed("draining")
    return grant_all(reap(broker, expired)[0], tokens, due, skips)


def reap(broker: Broker, expired: tuple[str, ...] | None = None) -> tuple[Broker, int]:
    """Expired leases fail: all of them, or those that a bounded reap came to."""
    ids = broker.expired() if expired is None else expired
    for id in ids:
        broker = parts.fail(broker, id, "lease expired")
    return broker, len(ids)


def extend(broker: Broker, ids: tuple[str | None, ...]) -> Broker:
    leases = broker.leases
    for id in ids:
        if id is not None:
            leases = leases.set(id, "live")
    return broker._replace(leases=leases)


def grant_all(broker: Broker, tokens: tuple[str, ...], due: tuple[str, ...], skips: int) -> tuple[Broker, Claimed]:
    """Looks once more than it grants: `busy` means that another would have had room."""
    grants: list[Grant] = []
    while True:
        broker, candidate, reason = find(broker, due, skips)
        if candidate is None or len(grants) == len(tokens):
            return broker, Claimed("open" if grants else reason or "busy", tuple(grants))
        token = tokens[len(grants)]
        broker = grant_one(broker, candidate, token)
        grants.append(grant_of(broker, token))


def find(broker: Broker, due: tuple[str, ...], skips: int) -> tuple[Broker, Candidate | None, str]:
    """The next group that may be claimed, or the reason why none may. What can never be claimed leaves its list."""
    config = parts.settings(broker)
    if (reason := window.gate(broker, config)) != "open":
        return broker, None, reason
    for _ in range(skips):
        candidate = first(broker, due)
        if candidate is None:
            return broker, None, "no_prompts"
        if not is_stale(broker, candidate.prompt):
            has_room = window.fits(broker, config, left_of(broker, candidate.prompt))
            return (broker, candidate, "") if has_room else (broker, None, "active_full")
        broker = discard(broker, candidate)
    return broker, None, "again"


def first(broker: Broker, due: tuple[str, ...]) -> Candidate | None:
    for id in due:
        if id in broker.again:
            return Candidate(Prompt(id), is_again=True)
    if broker.prompts:
        return Candidate(broker.prompts[0], is_again=False)
    return None


def is_stale(broker: Broker, prompt: Prompt) -> bool:
    """A producer that RPUSHes checks nothing, so the claim does what submit does."""
    if prompt.n is None:
        return not broker.groups.has(prompt.id)
    is_done = guard("claim.done", prompt.id in broker.done)
    return prompt.n < 1 or is_done or guard("claim.known", broker.groups.has(prompt.id))


def discard(broker: Broker, candidate: Candidate) -> Broker:
    """A bad entry becomes a dead letter without an id, and touches no group that may have its id."""
    broker = pop(broker, candidate)
    if candidate.prompt.n is None or candidate.prompt.n >= 1:
        return broker
    broker, born = parts.mint(broker, "")
    return broker._replace(dead=broker.dead | {Letter("", born, 0, "bad entry", 0)})


def left_of(broker: Broker, prompt: Prompt) -> int:
    if prompt.n is not None:
        return prompt.n
    group = parts.group_of(broker, prompt.id)
    return window.left_of(group, broker.stored(prompt.id, group.born))


def pop(broker: Broker, candidate: Candidate) -> Broker:
    if candidate.is_again:
        return broker._replace(again=broker.again - {candidate.prompt.id})
    return broker._replace(prompts=broker.prompts[1:])


def grant_one(broker: Broker, candidate: Candidate, token: str) -> Broker:
    broker = pop(broker, candidate)
    id, n = candidate.prompt
    if n is not None:
        broker, id = parts.store(broker, id, n)
    return parts.lease(broker, id, token)


def grant_of(broker: Broker, token: str) -> Grant:
    id = broker.grants.get(token)
    if id is None:
        raise LookupError(f"nobody holds {token}")
    group = parts.group_of(broker, id)
    stored = tuple(broker.stored(id, group.born).each_key())
    begun = tuple(broker.begun(id, group.born).each_key())
    return Grant(token, id, group.born, group.n, group.attempts, stored, begun, group.deaths)
