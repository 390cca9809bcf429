"""The broker's steps: each takes the state and its arguments and gives the state afterwards and the answer.

Answers are the words of the Lua scripts. What a real broker resolves by its clock is an argument here: which ids of
`again` are due, which leases expired, which entries have been idle for long. The claim is in `claims`, what is about
new weights in `weights`.
"""

from collections.abc import Callable
from typing import NamedTuple

from tests.model import parts
from tests.model.claims import claim, extend, reap
from tests.model.guards import guard
from tests.model.state import ORPHAN, Broker, Config, Entry, EntryName, Group, Map, Prompt, new_run
from tests.model.weights import publish, update, without_turns

TOO_STALE = "too stale, each time that it was made"


def submit(broker: Broker, groups: tuple[tuple[str, int], ...]) -> tuple[Broker, tuple[str, ...]]:
    """`queued`, `known` or `done` for each (id, n), or only `no_run`."""
    if broker.config is None:
        return broker, ("no_run",)
    answers: list[str] = []
    for id, n in groups:
        if guard("submit.done", id in broker.done):
            answers.append("done")
        elif guard("submit.known", broker.groups.has(id)):
            answers.append("known")
        else:
            broker = queue(parts.store(broker, id, n)[0], id)
            answers.append("queued")
    return broker, tuple(answers)


def queue(broker: Broker, id: str) -> Broker:
    return broker._replace(prompts=(*broker.prompts, Prompt(id)))


def push(broker: Broker, id: str, n: int) -> tuple[Broker, str]:
    """A producer's bare RPUSH of a JSON object: nothing is checked before the claim."""
    return broker._replace(prompts=(*broker.prompts, Prompt(id, n))), "ok"


class Heard(NamedTuple):
    """`word` is `ok`, `draining`, `gone` (evicted) or `no_run`."""

    word: str
    lost: tuple[str, ...] = ()


def heartbeat(
    broker: Broker, worker: str, tokens: tuple[str, ...], settled: int = 0, slots: int | None = None
) -> tuple[Broker, Heard]:
    """Extend what the worker lists and owns, and answer the tokens that it lost.

    All claims with a serial below `settled` are over for the worker: a grant of them that it doesn't list is given
    back, since its reply never came. 0: no sweep. `slots` None leaves the capacity alone.
    """
    if broker.config is None or worker in broker.barred:
        return broker, Heard("no_run" if broker.config is None else "gone")
    lost = tuple(token for token in tokens if not broker.grants.has(token))
    broker = extend(broker, tuple(held(broker, token, "heartbeat.owner") for token in tokens))
    for token in parts.tokens_of(broker, worker) if settled else ():
        is_listed = guard("heartbeat.listed", token in tokens)
        is_unheard = guard("heartbeat.settled", parts.serial_of(token) >= settled)
        if not is_listed and not is_unheard:
            broker = release(broker, token, "free")[0]
    if slots is not None:
        broker = broker._replace(capacity=broker.capacity.set(worker, slots))
    return broker, Heard("draining" if worker in broker.draining else "ok", lost)


def put(broker: Broker, id: str, born: str, index: int, value: str) -> tuple[Broker, str]:
    """MULTI {HSETNX; script}: `stored`, `had`, or `gone` and nothing is kept."""
    broker, is_new = set_if_new(broker, id, born, index, value)
    group = broker.groups.get(id)
    if group is None:
        return (parts.unlink(broker, id, born) if guard("put.gone") else broker), "gone"
    if guard("put.born", group.born != born):
        return parts.unlink(broker, id, born), "gone"
    if group.entry is not None and not guard("put.keep"):
        return parts.unlink(broker, id, born), "gone"
    if guard("put.partial"):
        broker = drop_finished(broker, id, born)
    if group.token is not None:
        broker = recount(broker, id, group, is_new)
    if not guard("put.first"):
        is_new = is_new or parts.group_of(broker, id).left != group.left
    return broker, "stored" if is_new else "had"


def drop_finished(broker: Broker, id: str, born: str) -> Broker:
    """A finished sample takes the place of its beginning."""
    stored = broker.stored(id, born)
    begun = Map((index, value) for index, value in broker.begun(id, born) if not stored.has(index))
    return parts.replace_partials(broker, id, born, begun)


def keep(broker: Broker, token: str, index: int, value: str) -> tuple[Broker, str]:
    """The first tokens of a sample for the group's next holder: `kept`, or `lost`."""
    id = held(broker, token, "keep.owner")
    if id is None:
        return broker, "lost"
    group = parts.group_of(broker, id)
    if index >= group.n or guard("keep.stored", broker.stored(id, group.born).has(index)):
        return broker, "kept"
    begun = broker.begun(id, group.born).set(index, value)
    return parts.replace_partials(broker, id, group.born, begun), "kept"


def set_if_new(broker: Broker, id: str, born: str, index: int, value: str) -> tuple[Broker, bool]:
    samples = broker.stored(id, born)
    if samples.has(index):
        return broker, False
    return broker._replace(samples=broker.samples.set((id, born), samples.set(index, value))), True


def recount(broker: Broker, id: str, group: Group, is_new: bool) -> Broker:
    """From what is there and never by one less: a put that is executed twice would count twice."""
    left = max(1, group.left - 1)
    if guard("put.hlen"):
        left = max(1, group.n - len(broker.stored(id, group.born)))
    broker = parts.update(broker, id, left=left, new=group.new or is_new)
    return broker._replace(outstanding=broker.outstanding + left - group.left)


def complete(broker: Broker, token: str, id: str, born: str, rewards: tuple[str | None, ...]) -> tuple[Broker, str]:
    """`ok`, `missing` samples, `lost`, or `gone`. The former owner whose answer was lost is told `ok` again."""
    group = broker.groups.get(id)
    if group is None or guard("complete.born", group.born != born):
        return broker, "gone"
    if group.entry is not None:
        return broker, "ok" if group.by == token else "lost"
    if guard("complete.owner", group.token != token):
        return broker, "lost"
    if guard("complete.n", len(broker.stored(id, group.born)) != group.n):
        return broker, "missing"
    entry = Entry(id, group.born, broker.stream, rewards)
    if guard("complete.partials"):
        broker = parts.without_partials(broker, id, group.born)
    broker = parts.update(parts.unlease(broker, id), id, entry=entry.name, by=token)
    return broker._replace(completed=(*broker.completed, entry), again=broker.again - {id}), "ok"


def release(broker: Broker, token: str, kind: str, reason: str = "") -> tuple[Broker, str]:
    """kind `free`: `ok`, and not counted. `fail`: `ok` or `dead`. `reject`: `dead`. `lost` changes nothing.

    `died`, `died_alone`: as `free`, and the death of the engine is counted unless a sample was stored. It buries only a
    group that was alone with it.
    """
    id = held(broker, token, "release.owner")
    if id is None:
        return broker, "lost"
    if kind == "reject":
        return parts.bury(broker, id, reason), "dead"
    if kind.startswith("died"):
        broker = count_death(broker, id, is_alone=kind == "died_alone")
        group, most = parts.group_of(broker, id), parts.settings(broker).max_attempts
        if kind == "died_alone" and not group.new and guard("release.deaths", group.deaths >= most):
            return parts.bury(broker, id, reason), "dead"
        return parts.give_back(broker, id, max(0, group.attempts - 1)), "ok"
    if kind == "free":
        return parts.give_back(broker, id, max(0, parts.group_of(broker, id).attempts - 1)), "ok"
    broker = parts.fail(broker, id, reason)
    return broker, "ok" if broker.groups.has(id) else "dead"


def count_death(broker: Broker, id: str, *, is_alone: bool) -> Broker:
    group = parts.group_of(broker, id)
    if group.new:
        return broker
    is_counted = is_alone or not guard("release.beside", group.deaths >= parts.SHARED_DEATHS)
    return parts.update(broker, id, deaths=group.deaths + is_counted)


def held(broker: Broker, token: str, owner: str) -> str | None:
    """The id that the token holds. Without its guard the step takes any group that is held, as by its id."""
    id = broker.grants.get(token)
    return next(broker.leases.each_key(), None) if id is None and not guard(owner) else id


def drop(broker: Broker, token: str) -> tuple[Broker, str]:
    """The group filter refused it: `ok`, or `lost`."""
    id = held(broker, token, "drop.owner")
    return (broker, "lost") if id is None else (parts.end(broker, id), "ok")


def evict(broker: Broker, worker: str, counts: bool = True) -> tuple[Broker, int]:
    """Free and bar; counts unless the cluster took the pod. Its turn to load weights is over, too.

    Answers how many leases were freed.
    """
    if broker.config is None:
        return broker, 0
    tokens = parts.tokens_of(broker, worker)
    for token in tokens:
        broker = parts.fail(broker, broker.grants.get(token) or "", "worker evicted", counts)
    broker = broker._replace(
        barred=broker.barred | {worker},
        draining=broker.draining - {worker},
        capacity=broker.capacity.without(worker),
    )
    return without_turns(broker, worker) if guard("evict.turn") else broker, len(tokens)


def take(
    broker: Broker,
    consumer: str,
    count: int = 1,
    known: tuple[EntryName, ...] = (),
    idle: tuple[EntryName, ...] = (),
) -> tuple[Broker, tuple[Entry, ...]]:
    """Up to `count` entries: the consumer's own, less those it knows; others' that are `idle`; new ones."""
    own = [entry for entry in broker.completed if entry.who == consumer and entry.name not in known]
    over = [entry for entry in broker.completed if entry.name in idle and entry.who not in (None, ORPHAN, consumer)]
    new = [entry for entry in broker.completed if entry.who is None]
    chosen = ((own if guard("take.pending") else []) + over + new)[:count]
    names = {entry.name for entry in chosen}
    completed = tuple(entry._replace(who=consumer) if entry.name in names else entry for entry in broker.completed)
    return broker._replace(completed=completed), tuple(entry._replace(who=consumer) for entry in chosen)


def ack(broker: Broker, name: EntryName, who: str = "", life: int = 0) -> tuple[Broker, str]:
    """The group is done: `ok`, or `gone` if the entry isn't there any more. An earlier life's is not counted."""
    entry = broker.entry(name)
    if guard("ack.entry", entry is None) or not broker.groups.has(name[0]):
        return broker, "gone"
    if not guard("ack.session", who != "" and broker.lives.get(who) != life):
        broker = count_trained(broker)
    return parts.end(without_entry(broker, name), name[0]), "ok"


def count_trained(broker: Broker) -> Broker:
    is_paced = parts.settings(broker).max_staleness is not None
    return broker._replace(trained=broker.trained + 1) if is_paced else broker


def begin(broker: Broker, who: str = "", life: int = 0) -> tuple[Broker, str]:
    """A trainer begins to take: the books are opened anew."""
    if who:
        broker = broker._replace(lives=broker.lives.set(who, life))
    return (broker._replace(updates=0, trained=0) if guard("begin.books") else broker), "ok"


def without_entry(broker: Broker, name: EntryName) -> Broker:
    return broker._replace(completed=tuple(entry for entry in broker.completed if entry.name != name))


def recycle(broker: Broker, name: EntryName) -> tuple[Broker, str]:
    """The group is made anew, newly born: `ok`, `limit`, or `gone` if the entry isn't there any more."""
    entry = broker.entry(name)
    group = broker.groups.get(name[0])
    if guard("recycle.entry", entry is None) or group is None:
        return broker, "gone"
    if guard("recycle.limit", group.recycled >= parts.settings(broker).max_recycles):
        return broker, "limit"
    return queue(make_anew(without_entry(broker, name), name[0]), name[0]), "ok"


def make_anew(broker: Broker, id: str) -> Broker:
    group = parts.group_of(broker, id)
    broker = parts.unlink(broker, id, group.born)
    broker, born = parts.mint(broker, id) if guard("recycle.born") else (broker, group.born)
    recycled = group.recycled + 1
    return parts.update(broker, id, born=born, attempts=0, deaths=0, recycled=recycled, entry=None, by=None)


def judge(broker: Broker, name: EntryName, behind: int) -> tuple[Broker, str]:
    """What becomes of a completed group that is so many versions behind its trainer."""
    group, config = broker.groups.get(name[0]), parts.settings(broker)
    if guard("judge.entry", broker.entry(name) is None) or group is None:
        return broker, "gone"
    if behind < 0:
        return broker, "ahead"
    if config.max_staleness is None or behind <= config.max_staleness:
        return broker, "ok"
    is_at_limit = config.stale == "recycle" and group.recycled >= config.max_recycles
    match config.recycle_then if is_at_limit else config.stale:
        case "recycle":
            return queue(make_anew(without_entry(broker, name), name[0]), name[0]), "recycled"
        case "drop":
            return parts.end(without_entry(broker, name), name[0]), "dropped"
        case "dead":
            return parts.bury(without_entry(broker, name), name[0], TOO_STALE), "dead"
        case _:
            return broker, "stale"


def cancel(broker: Broker, token: str, behind: int) -> tuple[Broker, str]:
    """The holder of a group that is so many versions behind what was published gives it back, to be made anew."""
    id, config = held(broker, token, "cancel.owner"), parts.settings(broker)
    if id is None:
        return broker, "lost"
    if not config.cancel_stale or config.max_staleness is None or behind <= config.max_staleness:
        return broker, "fresh"
    if guard("cancel.limit", parts.group_of(broker, id).recycled >= config.max_recycles):
        return broker, "limit"
    broker = make_anew(parts.unlease(broker, id), id)
    return broker._replace(again=broker.again | {id}), "ok"


def requeue_dead(broker: Broker, id: str, born: str) -> tuple[Broker, str]:
    """A dead letter back into `again`: `ok`; `known` again meanwhile, then only the letter goes; or `gone`.

    `cut` for a bad entry, of which there is only the beginning.
    """
    letter = next((letter for letter in broker.dead if (letter.id, letter.born) == (id, born)), None)
    if letter is None:
        return broker, "gone"
    if letter.id == "":
        return broker, "cut"
    broker = broker._replace(dead=broker.dead - {letter})
    if guard("requeue.known", broker.groups.has(id)):
        return broker, "known"
    broker = parts.store(broker, id, letter.n)[0]
    return broker._replace(done=broker.done - {id}, again=broker.again | {id}), "ok"


def configure(broker: Broker, config: Config) -> tuple[Broker, str]:
    """Another S or n, pause, resume. Groups that are stored keep their n; another bound opens the books anew."""
    before = broker.config
    if before is None or bound_of(before) != bound_of(config):
        broker = broker._replace(updates=0, trained=0)
    return broker._replace(config=config), "ok"


def bound_of(config: Config) -> tuple[int | None, int]:
    return config.max_staleness, config.groups_per_update


class Repaired(NamedTuple):
    """How much of each was mended; all zero in a healthy run."""

    groups: int = 0
    grants: int = 0
    samples: int = 0
    entries: int = 0
    outstanding: int = 0


def repair(broker: Broker, consumer: str) -> tuple[Broker, Repaired]:
    """Rebuild what is derived. Entries of deleted consumers become pending at `consumer`."""
    stray = [id for id, _ in broker.groups if is_stray(broker, id)]
    grants = Map(pair for pair in broker.grants if broker.leases.has(pair[1]))
    samples = Map(pair for pair in broker.samples if is_of_a_group(broker, *pair[0]))
    partials = Map(pair for pair in broker.partials if is_of_a_group(broker, *pair[0]))
    orphans = sum(entry.who == ORPHAN for entry in broker.completed)
    after = broker._replace(
        grants=grants,
        samples=samples,
        partials=partials,
        again=broker.again.union(stray),
        completed=tuple(e._replace(who=consumer) if e.who == ORPHAN else e for e in broker.completed),
    )
    for id in stray:
        after = parts.update(after, id, entry=None, by=None)
    after = parts.count_left(after)
    return after, Repaired(
        groups=len(stray),
        grants=len(broker.grants) - len(grants),
        samples=len(broker.samples) - len(samples) + len(broker.partials) - len(partials),
        entries=orphans,
        outstanding=abs(after.outstanding - broker.outstanding),
    )


def is_stray(broker: Broker, id: str) -> bool:
    """In no list, not leased, not in the stream: nothing would ever bring it forward."""
    waits = id in broker.again or Prompt(id) in broker.prompts
    return not (waits or broker.leases.has(id) or any(entry.id == id for entry in broker.completed))


def is_of_a_group(broker: Broker, id: str, born: str) -> bool:
    group = broker.groups.get(id)
    return group is not None and group.born == born


def flush(broker: Broker, epoch: str) -> tuple[Broker, str]:
    """An operator emptied Redis and made the run anew."""
    return new_run(parts.settings(broker), epoch if guard("run.epoch") else broker.epoch), "ok"


def trim_done(broker: Broker, id: str) -> tuple[Broker, str]:
    """`done` is bounded by time and number: beyond its horizon an id is forgotten."""
    return broker._replace(done=broker.done - {id}), "ok"


STEPS: dict[str, Callable[..., tuple[Broker, object]]] = {
    step.__name__: step
    for step in (
        submit, push, claim, heartbeat, put, keep, complete, release, drop, reap, evict, take, ack, recycle,
        judge, cancel, begin, publish, update, requeue_dead, configure, repair, flush, trim_done,
    )
}  # fmt: skip

WAKES = frozenset(
    {
        "submit", "claim", "heartbeat", "put", "complete", "release", "drop", "reap", "evict", "take", "ack", "recycle",
        "judge", "cancel", "begin", "publish", "requeue_dead", "configure", "repair",
    }
)  # fmt: skip
"""The steps that push a token into `wake` when they changed something; a bare RPUSH is seen at the next poll."""


def wakes(broker: Broker, step: str, arguments: tuple[object, ...]) -> bool:
    """Whether this call may be the one that wakes: put only in sample refill, ack only of an entry not pending."""
    if step == "put":
        return broker.config is not None and broker.config.refill == "sample"
    if step == "ack":
        name, *session = arguments
        if session and broker.lives.get(str(session[0])) != session[1]:
            return True  # it was under way for `pace`, and is not trained
        return any(entry.name == name and entry.who in (None, ORPHAN) for entry in broker.completed)
    return step in WAKES
