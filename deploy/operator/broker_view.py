"""What the operator reads of the run, in one round trip; what it told workers lies in Redis, for the next leader.

Invariants: `told` is read before `grants`: a worker whose mark was there when it held nothing can claim nothing any
more. A mark of the operator's stands in `marks` before the worker is told, and until it is told otherwise: marks that
people gave by themselves are not among them.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from redis.exceptions import RedisError

from rolloutfleet.answers import as_dict, as_texts
from rolloutfleet.broker import Broker
from rolloutfleet.calls import Arg
from rolloutfleet.errors import BrokerUnavailable
from rolloutfleet.pods import FleetKeys
from rolloutfleet.status import Status, WorkerStatus, status_commands, status_of

_KEPT_SECONDS = 86_400  # a mark of the broker's is kept as long


@dataclass(frozen=True, slots=True)
class Mark:
    """A drain that the operator told a worker. `since_ms`: server time."""

    why: str  # scale, restart or person
    since_ms: int


@dataclass(frozen=True, slots=True)
class BrokerView:
    """A run as the operator sees it. Leases and samples are by worker; a worker's name is `<pod uid>/<start ms>`."""

    status: Status
    grants: Mapping[str, str]  # token -> group
    held: Mapping[str, int]  # pod uid -> groups
    by_pod: Mapping[str, Sequence[WorkerStatus]]  # pod uid -> its live workers
    marks: Mapping[str, Mark]
    server_id: str  # another after each start of the server
    repaired_id: str  # of the server on which the run was last repaired
    version: str  # of the weights that the trainer published last; empty: none

    @property
    def now_ms(self) -> int:
        return self.status.now_ms


def worker_of(token: str) -> str:
    """The worker in a token `<worker>/<serial>/<i>`."""
    return token.rsplit("/", 2)[0]


def pod_uid(worker: str) -> str:
    return worker.rpartition("/")[0]


def started_ms(worker: str) -> int | None:
    """When the process began, by its node's clock; None: the name doesn't say."""
    text = worker.rpartition("/")[2]
    return int(text) if text.isdecimal() else None


async def read_view(broker: Broker, keys: FleetKeys) -> BrokerView | None:
    """None: there is no such run. Errors: BrokerUnavailable; ValueError where somebody wrote nonsense."""
    commands: list[list[Arg]] = [
        *status_commands(broker.keys),
        ["HGETALL", broker.keys.named("grants")],
        ["HGETALL", keys.marks],
        ["HGET", keys.operator, "repaired"],
        ["HGET", broker.keys.named("policy"), "version"],
        ["INFO", "server"],
    ]
    answers = await broker.calls.read(commands)
    status = status_of(broker.keys.run, answers[:-5])
    if status is None:
        return None
    grants, marks, repaired, version, info = answers[-5:]
    tokens = as_texts(grants)
    return BrokerView(
        status=status,
        grants=tokens,
        held=Counter(pod_uid(worker_of(token)) for token in tokens),
        by_pod=_by_pod(status),
        marks={worker: _mark(text) for worker, text in as_texts(marks).items()},
        server_id=_server_id(info),
        repaired_id=repaired.decode() if isinstance(repaired, bytes) else "",
        version=version.decode() if isinstance(version, bytes) else "",
    )


async def samples_left(broker: Broker, view: BrokerView) -> Counter[str]:
    """Samples that are not finished, by pod uid."""
    key = broker.keys
    lefts = await broker.calls.read([["HGET", key.group(group), "left"] for group in view.grants.values()])
    found = Counter[str]()
    for token, left in zip(view.grants, lefts, strict=True):
        found[pod_uid(worker_of(token))] += max(1, int(left)) if isinstance(left, bytes) else 1
    return found


async def write_marks(broker: Broker, keys: FleetKeys, marks: Mapping[str, Mark]) -> None:
    """Tells workers to drain. Errors: BrokerUnavailable; then it may be told or not, and the next look shows it."""
    fields = [part for worker, mark in marks.items() for part in (worker, json.dumps([mark.why, mark.since_ms]))]
    await broker.calls.read([["HSET", keys.marks, *fields], ["EXPIRE", keys.marks, _KEPT_SECONDS]])
    await broker.drain(list(marks))


async def take_back_marks(broker: Broker, keys: FleetKeys, workers: Sequence[str]) -> None:
    """Lets workers claim again. Errors: BrokerUnavailable; the next look tries again."""
    await broker.undrain(workers)
    await broker.calls.read([["HDEL", keys.marks, *workers]])


async def note_repair(broker: Broker, keys: FleetKeys, server_id: str) -> None:
    await broker.calls.read([["HSET", keys.operator, "repaired", server_id], ["EXPIRE", keys.operator, _KEPT_SECONDS]])


def _by_pod(status: Status) -> dict[str, list[WorkerStatus]]:
    found: dict[str, list[WorkerStatus]] = {}
    for worker in status.workers:
        found.setdefault(pod_uid(worker.name), []).append(worker)
    return found


def _mark(text: str) -> Mark:
    why, since_ms = cast(list[Any], json.loads(text))
    return Mark(str(why), int(since_ms))


def _server_id(info: Any) -> str:
    if isinstance(info, RedisError):
        raise BrokerUnavailable(f"INFO is refused: {info}")
    found = as_dict(info) if not isinstance(info, dict) else cast(dict[Any, Any], info)
    return str(found.get("run_id", ""))
