"""The steps by which new weights come to the workers: a version for each publication, and whose turn it is to load."""

from tests.model.guards import guard
from tests.model.parts import settings
from tests.model.state import ORPHAN, Broker, Map, Turn

REMEMBERED = 16
"""Publications whose token is known: a call that is repeated gets its version again."""


def publish(broker: Broker, token: str, at_once: int = 0) -> tuple[Broker, int | str]:
    """The version that these weights got, or `no_run`. One update more, and the books are squared."""
    if broker.config is None:
        return broker, "no_run"
    known = next((version for version, theirs in broker.recent if theirs == token), 0)
    if guard("publish.replay", known > 0):
        return broker, known
    version = broker.version + 1
    broker = broker._replace(
        version=version,
        at_once=at_once,
        loaded=0 if guard("publish.loaded") else broker.loaded,
        recent=((version, token), *broker.recent)[:REMEMBERED],
    )
    return count_update(broker), version


def count_update(broker: Broker) -> Broker:
    config = settings(broker)
    if config.max_staleness is None:
        return broker
    updates, each = broker.updates + 1, config.groups_per_update
    taken = sum(entry.who not in (None, ORPHAN) for entry in broker.completed)
    trained = min(max(broker.trained, updates * each - taken), (updates + 1) * each)
    return broker._replace(updates=updates, trained=trained)


def update(
    broker: Broker, word: str, worker: str, version: int, engine: str, serves: bool = True
) -> tuple[Broker, str]:
    """begin: `go`, `wait`, `newer` or `gone` (evicted). failed: `held`, as long as nobody has loaded it, or `ok`.

    loaded, left: `ok`, and the turn is over. `serves`: the worker's engine serves older weights meanwhile.
    """
    if broker.config is None:
        return broker, "no_run"
    if guard("update.expiry"):
        broker = broker._replace(turns=Map(pair for pair in broker.turns if pair[1] == "live"))
    turn = Turn(worker, version, engine)
    is_mine, is_policy = broker.turns.has(turn), version == broker.version
    if word == "begin":
        return (prolong(broker, turn), "go") if is_mine else begin(broker, turn, serves)
    if word == "failed" and is_mine and is_policy and guard("update.held", broker.loaded == 0):
        return prolong(broker, turn), "held"
    broker = broker._replace(turns=broker.turns.without(turn))
    has_loaded = word == "loaded" and is_mine and is_policy
    return broker._replace(loaded=broker.loaded + has_loaded), "ok"


def begin(broker: Broker, turn: Turn, serves: bool) -> tuple[Broker, str]:
    """A worker's turn at older weights is over when it asks for one at newer ones."""
    if guard("update.newer", turn.version != broker.version):
        return broker, "newer"
    if guard("update.barred", turn.worker in broker.barred):
        return broker, "gone"
    others = [other for other in broker.turns.each_key() if other.worker != turn.worker]
    if guard("update.engine", any(other.engine == turn.engine for other in others)):
        return broker, "wait"
    if guard("update.own"):
        broker = broker._replace(turns=Map(pair for pair in broker.turns if pair[0] in others))
    if guard("update.at_once", serves and 0 < broker.at_once <= len(others)):
        return broker, "wait"
    return prolong(broker, turn), "go"


def prolong(broker: Broker, turn: Turn) -> Broker:
    return broker._replace(turns=broker.turns.set(turn, "live"))


def without_turns(broker: Broker, worker: str) -> Broker:
    return broker._replace(turns=Map(pair for pair in broker.turns if pair[0].worker != worker))
