"""What several steps do alike: make and end groups, lease them and take the lease away.

None of these asks whether it may: the steps do.
"""

from typing import Any

from tests.model.guards import guard
from tests.model.state import Broker, Config, Group, Letter, Map
from tests.model.window import left_of

SHARED_DEATHS = 2
"""Deaths of engines that are counted of a group which wasn't alone there."""


def settings(broker: Broker) -> Config:
    if broker.config is None:
        raise LookupError("a step other than claim was called before the run was made")
    return broker.config


def group_of(broker: Broker, id: str) -> Group:
    group = broker.groups.get(id)
    if group is None:
        raise LookupError(f"no group {id}")
    return group


def update(broker: Broker, id: str, **changes: Any) -> Broker:
    group = group_of(broker, id)
    return broker._replace(groups=broker.groups.set(id, group._replace(**changes)))


def mint(broker: Broker, id: str) -> tuple[Broker, str]:
    """A new `born` for this id: it names the run's epoch and no other incarnation has it."""
    number = (broker.incarnations.get(id) or 0) + 1
    return broker._replace(incarnations=broker.incarnations.set(id, number)), f"{broker.epoch}.{number}"


def store(broker: Broker, id: str, n: int) -> tuple[Broker, str]:
    """A new group, in no list yet; the id "" becomes a name that the broker gives."""
    name = id
    if not name:
        broker, number = mint(broker, "")
        name = f"unnamed-{number}"
    broker, born = mint(broker, name)
    return broker._replace(groups=broker.groups.set(name, Group(n, born))), name


def lease(broker: Broker, id: str, token: str) -> Broker:
    group = group_of(broker, id)
    left = left_of(group, broker.stored(id, group.born))
    broker = update(broker, id, token=token, left=left, attempts=group.attempts + 1, new=False)
    return broker._replace(
        leases=broker.leases.set(id, "live"),
        grants=broker.grants.set(token, id),
        outstanding=broker.outstanding + left,
    )


def unlease(broker: Broker, id: str) -> Broker:
    group = group_of(broker, id)
    if group.token is None:
        return broker
    broker = update(broker, id, token=None, left=0, new=False)
    return broker._replace(
        leases=broker.leases.without(id),
        grants=broker.grants.without(group.token),
        outstanding=broker.outstanding - group.left,
    )


def end(broker: Broker, id: str) -> Broker:
    """The group and its samples go, its id is done."""
    group = group_of(broker, id)
    broker = unlink(unlease(broker, id), id, group.born)
    return broker._replace(groups=broker.groups.without(id), done=broker.done | {id})


def bury(broker: Broker, id: str, reason: str) -> Broker:
    group = group_of(broker, id)
    letter = Letter(id, group.born, group.n, reason, group.attempts)
    return end(broker, id)._replace(dead=broker.dead | {letter})


def give_back(broker: Broker, id: str, attempts: int) -> Broker:
    broker = update(unlease(broker, id), id, attempts=attempts)
    return broker._replace(again=broker.again | {id})


def fail(broker: Broker, id: str, reason: str, counts: bool = True) -> Broker:
    """An attempt failed. It isn't counted if it stored a new sample, or if the group isn't to blame."""
    group = group_of(broker, id)
    attempts = group.attempts if counts and not group.new else max(0, group.attempts - 1)
    if guard("fail.limit", attempts >= settings(broker).max_attempts):
        return bury(update(broker, id, attempts=attempts), id, reason)
    return give_back(broker, id, attempts)


def unlink(broker: Broker, id: str, born: str) -> Broker:
    broker = broker._replace(samples=broker.samples.without((id, born)))
    return without_partials(broker, id, born) if guard("end.partials") else broker


def without_partials(broker: Broker, id: str, born: str) -> Broker:
    return broker._replace(partials=broker.partials.without((id, born)))


def replace_partials(broker: Broker, id: str, born: str, partials: Map[int, str]) -> Broker:
    """A hash without fields is no key."""
    if not partials:
        return without_partials(broker, id, born)
    return broker._replace(partials=broker.partials.set((id, born), partials))


def worker_of(token: str) -> str:
    """A token is `worker/serial/k`; the worker's name may have slashes, too."""
    return token.rsplit("/", 2)[0]


def serial_of(token: str) -> int:
    """The number of the claim that the token is of."""
    return int(token.rsplit("/", 2)[1])


def tokens_of(broker: Broker, worker: str) -> tuple[str, ...]:
    return tuple(token for token in broker.grants.each_key() if worker_of(token) == worker)


def count_left(broker: Broker) -> Broker:
    """`left` of each lease and their sum, from the samples that are there."""
    groups = Map(
        (id, group if group.token is None else group._replace(left=left_of(group, broker.stored(id, group.born))))
        for id, group in broker.groups
    )
    return broker._replace(groups=groups, outstanding=sum(group.left for group in groups.values()))
