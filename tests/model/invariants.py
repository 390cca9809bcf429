"""The invariants I1 to I9, each a function that says whether it holds; its first sentence is what is reported.

Some are facts of a state, some of one step (what it did between `before` and `after`). I10, that rest can be reached
from every state, needs the whole graph: see `explore`; here is only what bounds it.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from tests.model import window
from tests.model.claims import Claimed
from tests.model.parts import SHARED_DEATHS, serial_of, settings
from tests.model.state import Broker, EntryName


class Step(NamedTuple):
    before: Broker
    name: str
    arguments: tuple[Any, ...]
    answer: object
    after: Broker


def i1_window(step: Step) -> bool:
    """After each claim that grants, active <= W, or it is the only lease."""
    if not is_new_grant(step):
        return True
    config = settings(step.after)
    active = window.active(step.after, config)
    return active <= window.size(step.after, config) or len(step.after.leases) == 1


def i1_pace(step: Step) -> bool:
    """After each claim that grants, what is under way is trained on before it is older than max_staleness."""
    left = window.pace_left(step.after, settings(step.after)) if is_new_grant(step) else None
    return left is None or left >= 0


def i1_closed_by_hand(step: Step) -> bool:
    """Nothing is granted in a paused run, nor to a worker that drains or was evicted."""
    if not is_new_grant(step):
        return True
    worker = step.arguments[0]
    return not settings(step.after).paused and worker not in step.after.draining | step.after.barred


def is_new_grant(step: Step) -> bool:
    answer = step.answer
    return isinstance(answer, Claimed) and any(not step.before.grants.has(grant.token) for grant in answer.grants)


def i2_waiting(broker: Broker) -> bool:
    """At most 2W - 1 completed groups wait; in sample refill (1 + open_cap) W - 1."""
    config = settings(broker)
    rounds = 1 if config.refill == "group" else config.open_cap
    places = window.size(broker, config)
    return window.waiting(broker) <= max(0, (1 + rounds) * places - 1)


def i3_entered_once(step: Step, entered: frozenset[EntryName]) -> bool:
    """Each incarnation appears at most once in `completed`."""
    grew = len(step.after.completed) > len(step.before.completed)
    return not grew or step.after.completed[-1].name not in entered


def i3_done_is_done(step: Step) -> bool:
    """An id within the horizon of `done` is not made again, but by requeue."""
    if step.name not in ("submit", "claim"):
        return True
    return not any(id in step.before.done for id in step.after.groups.each_key() if not step.before.groups.has(id))


def i4_one_place(broker: Broker) -> bool:
    """Each stored group is in exactly one of prompts, again, leases, the stream; nothing points to one that is gone."""
    waiting = [prompt.id for prompt in broker.prompts if prompt.n is None]
    pointers = waiting + list(broker.again) + list(broker.leases.each_key()) + [entry.id for entry in broker.completed]
    return len(pointers) == len(broker.groups) and all(id in pointers for id in broker.groups.each_key())


def i4_no_loss(step: Step) -> bool:
    """A group goes only into `done`, and is replaced only by its own recycling."""
    if step.name == "flush":
        return True
    for id, group in step.before.groups:
        now = step.after.groups.get(id)
        if now is None and id not in step.after.done:
            return False
        if now is not None and now.born != group.born and step.name not in ("recycle", "judge", "cancel"):
            return False
    return True


def i5_samples(broker: Broker) -> bool:
    """No samples outlive their incarnation."""
    for id, born in broker.samples.each_key():
        group = broker.groups.get(id)
        if group is None or group.born != born:
            return False
    return True


def i5_partials(broker: Broker) -> bool:
    """The tokens of an unfinished sample outlive neither their incarnation nor its completion."""
    for id, born in broker.partials.each_key():
        group = broker.groups.get(id)
        if group is None or group.born != born or group.entry is not None:
            return False
    return True


def i5_finished(step: Step) -> bool:
    """A step leaves no beginning beside a sample that it finished, and puts none beside one that is finished."""
    for (id, born), begun in step.after.partials:
        stored, kept = step.after.stored(id, born), step.before.begun(id, born)
        is_mine = step.name == "put" and step.arguments[:2] == (id, born)
        if any(stored.has(index) and (is_mine or kept.get(index) != value) for index, value in begun):
            return False
    return True


def i6_leases(broker: Broker) -> bool:
    """Leases, grants and groups with a token are the same."""
    grants = {(token, id) for token, id in broker.grants}
    tokens = {(group.token, id) for id, group in broker.groups if group.token is not None}
    return grants == tokens and sorted(broker.grants.values()) == list(broker.leases.each_key())


def i6_outstanding(broker: Broker) -> bool:
    """Outstanding is the sum of max(1, left) over the leases, and left is what is missing."""
    total = 0
    for id, group in broker.groups:
        if group.token is not None:
            if group.left != window.left_of(group, broker.stored(id, group.born)):
                return False
            total += group.left
    return broker.outstanding == total


def i7_samples_stay(step: Step) -> bool:
    """A finished sample is neither lost nor replaced while its incarnation lives."""
    for (id, born), samples in step.before.samples:
        before, after = step.before.groups.get(id), step.after.groups.get(id)
        if before is None or after is None or not before.born == after.born == born:
            continue
        now = step.after.stored(id, born)
        if any(now.get(index) != value for index, value in samples):
            return False
    return True


def i7_beginnings_stay(step: Step) -> bool:
    """What was kept of an unfinished sample stays until another beginning, or the finished sample, replaces it."""
    for (id, born), begun in step.before.partials:
        before, after = step.before.groups.get(id), step.after.groups.get(id)
        if before is None or after is None or not before.born == after.born == born or after.entry is not None:
            continue
        stored, now = step.after.stored(id, born), step.after.begun(id, born)
        if not all(now.has(index) or stored.has(index) for index in begun.each_key()):
            return False
    return True


def i8_lost_is_lost(step: Step) -> bool:
    """A lease that was lost can extend, complete, release, drop and keep nothing."""
    if step.name in ("complete", "release", "drop", "keep", "cancel"):
        return step.before.grants.has(step.arguments[0]) or step.after == step.before
    if step.name != "heartbeat":
        return True
    listed = {step.before.grants.get(token) for token in step.arguments[1]}
    extended = [id for id, lease in step.after.leases if lease != step.before.leases.get(id)]
    return all(id in listed for id in extended)


def i8_a_heartbeat_keeps(step: Step) -> bool:
    """A heartbeat takes no lease away that it lists, nor one of a claim that it doesn't say is over."""
    if step.name != "heartbeat":
        return True
    _, listed, settled, _ = step.arguments
    taken = [token for token in step.before.grants.each_key() if not step.after.grants.has(token)]
    return not any(token in listed or serial_of(token) >= settled for token in taken)


def i9_rewards(broker: Broker) -> bool:
    """Every entry has its n samples, and its rewards were computed from exactly these."""
    for entry in broker.completed:
        samples, group = broker.stored(entry.id, entry.born), broker.groups.get(entry.id)
        if group is None or len(samples) != group.n or tuple(samples.values()) != entry.rewards:
            return False
    return True


def i10_bounds(broker: Broker) -> bool:
    """No group is attempted or recycled more often than its bounds say, nor tried on with more engines that die."""
    config = settings(broker)
    most_deaths = max(SHARED_DEATHS, config.max_attempts - 1)
    return all(
        group.attempts <= config.max_attempts and group.recycled <= config.max_recycles and group.deaths <= most_deaths
        for group in broker.groups.values()
    )


def weights_version(step: Step) -> bool:
    """A publication has one version, above all before it, however often it is called; nothing else changes versions."""
    if step.name == "publish":
        known = {token: version for version, token in step.before.recent}
        rises = step.arguments[0] not in known
        expected = step.before.version + 1 if rises else known[step.arguments[0]]
        return step.answer == expected and step.after.version == step.before.version + rises
    return step.after.version == step.before.version or step.name == "flush"


def weights_turn(step: Step) -> bool:
    """A turn is granted at the policy alone; to one that serves, only while at most at_once have one."""
    new = [turn for turn in step.after.turns.each_key() if not step.before.turns.has(turn)]
    serves = step.name == "update" and bool((*step.arguments, True)[4])
    most = step.after.at_once if new and serves and step.after.at_once else len(step.after.turns)
    return all(turn.version == step.after.version for turn in new) and len(step.after.turns) <= most


def weights_turns(broker: Broker) -> bool:
    """Each worker has one turn at the most, each engine is in one turn at the most, no evicted worker has one."""
    turns = list(broker.turns.each_key())
    workers, engines = {turn.worker for turn in turns}, {turn.engine for turn in turns}
    return len(workers) == len(engines) == len(turns) and not workers & broker.barred


OF_A_STATE: tuple[Callable[[Broker], bool], ...] = (
    i4_one_place, i6_leases, i6_outstanding, i5_samples, i5_partials, i9_rewards, i2_waiting, i10_bounds,
    weights_turns,
)  # fmt: skip
OF_A_STEP: tuple[Callable[[Step], bool], ...] = (
    i1_window, i1_pace, i1_closed_by_hand, i8_lost_is_lost, i8_a_heartbeat_keeps, i3_done_is_done, i4_no_loss,
    i7_samples_stay, i5_finished, i7_beginnings_stay, weights_version, weights_turn,
)  # fmt: skip


def named(invariant: Callable[..., bool]) -> str:
    """`I4 one place`: the number and the name, as tables show it."""
    number, _, words = invariant.__name__.partition("_")
    return f"{number.upper() if number[1:].isdigit() else number} {words.replace('_', ' ')}"


def broken_by_step(step: Step, entered: frozenset[EntryName]) -> str:
    """The first invariant that the step broke, or ""."""
    if step.after is step.before:
        return ""
    for invariant in OF_A_STEP:
        if not invariant(step):
            return named(invariant)
    return "" if i3_entered_once(step, entered) else named(i3_entered_once)


def broken_in(broker: Broker, exempt: frozenset[str] = frozenset()) -> str:
    """The first invariant, by its name, that doesn't hold in this state, or ""."""
    for invariant in OF_A_STATE:
        if not invariant(broker) and named(invariant) not in exempt:
            return named(invariant)
    return ""
