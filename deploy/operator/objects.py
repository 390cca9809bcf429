"""What the operator reads of Kubernetes objects: small values, made from the JSON that the API server answers.

Invariant: what an object doesn't say is None, empty or unknown, and never makes a reader fail: objects are written by
others, and newer servers say more.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, cast

type Json = Mapping[str, Any]

PREFIX = "rolloutfleet.io/"
DRAIN = f"{PREFIX}drain"  # on a pod: somebody wants it drained
REPLICAS = f"{PREFIX}replicas"  # on a Deployment: "<number> instead of <worker.replicas>"
RESTART = f"{PREFIX}restart"  # on a Deployment: pods created up to this second are to be replaced
_SET_NAME = "leaderworkerset.sigs.k8s.io/name"  # on the pods of a LeaderWorkerSet


class Kind(StrEnum):
    """What a pool is: one pod for each engine, or a set of groups, whose first pod holds the worker."""

    DEPLOYMENT = "Deployment"
    SET = "LeaderWorkerSet"


@dataclass(frozen=True, slots=True)
class Exit:
    """How a container ended. `at`: seconds, whole, of the node's clock; None: it isn't said."""

    code: int
    reason: str  # Error, OOMKilled, Completed, ...
    at: int | None = None

    @property
    def is_fault(self) -> bool:
        return self.code != 0 or self.reason == "OOMKilled"

    def __str__(self) -> str:
        return f"exit code {self.code}" + ("" if self.reason in ("", "Error", "Completed") else f" ({self.reason})")


@dataclass(frozen=True, slots=True)
class Container:
    """The state of one container. `started_at`: seconds, whole, of the node's clock; None: it does not run."""

    name: str
    started_at: int | None = None
    is_ready: bool = False
    is_started: bool = False
    restarts: int = 0
    waiting: str = ""
    message: str = ""
    ended: Exit | None = None  # now, or before the last restart


@dataclass(frozen=True, slots=True)
class Condition:
    is_true: bool
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod at one moment. Times are seconds of the API server's clock.

    `pool`: its Deployment or LeaderWorkerSet, if it has one; `index`: of its group in such a set.
    """

    name: str
    uid: str
    pool: str = ""
    index: int = 0
    node: str = ""
    phase: str = "Unknown"
    reason: str = ""
    message: str = ""
    created_at: int = 0
    is_deleting: bool = False
    annotations: Mapping[str, str] = field(default_factory=dict[str, str])
    conditions: Mapping[str, Condition] = field(default_factory=dict[str, Condition])
    containers: Mapping[str, Container] = field(default_factory=dict[str, Container])

    @property
    def is_alive(self) -> bool:
        """Whether its ReplicaSet, or its set, counts it."""
        return not self.is_deleting and self.phase not in ("Failed", "Succeeded")

    @property
    def is_ready(self) -> bool:
        return self.is_alive and self.holds("Ready")

    @property
    def is_disrupted(self) -> bool:
        """The cluster takes it: a drain, a preemption, pressure on its node."""
        return self.is_deleting or self.holds("DisruptionTarget")

    def holds(self, condition: str) -> bool:
        return condition in self.conditions and self.conditions[condition].is_true


@dataclass(frozen=True, slots=True)
class Deployment:
    """A Deployment at one moment, or a LeaderWorkerSet: its replicas are groups, of which each has one worker."""

    name: str
    uid: str
    resource_version: str
    replicas: int  # spec
    kind: Kind = Kind.DEPLOYMENT
    generation: int = 0
    observed: int = 0
    updated: int = 0
    existing: int = 0  # status.replicas
    ready: int = 0
    annotations: Mapping[str, str] = field(default_factory=dict[str, str])
    conditions: Mapping[str, Condition] = field(default_factory=dict[str, Condition])

    @property
    def failure(self) -> str:
        """Why it can't make its pods: a quota, pod security; empty: it can."""
        condition = self.conditions.get("ReplicaFailure")
        return condition.message or condition.reason if condition and condition.is_true else ""

    @property
    def is_rolling(self) -> bool:
        """Whether a rollout runs: pods of an older template are there, or its controller has not looked yet."""
        updates = self.conditions.get("UpdateInProgress")  # a LeaderWorkerSet says it so
        return (
            self.observed < self.generation or self.updated < self.existing or (updates is not None and updates.is_true)
        )

    @property
    def is_settled(self) -> bool:
        """Whether its pods are made. Those that a quota forbids never are: then shrinking is what helps."""
        return not self.is_rolling and (self.updated >= self.replicas or bool(self.failure))


@dataclass(frozen=True, slots=True)
class Lease:
    """Who leads. `renewals` changes with every write of the holder."""

    holder: str
    resource_version: str
    transitions: int = 0
    acquired: str = ""


def pod_of(told: Json) -> Pod:
    meta, spec, status = _part(told, "metadata"), _part(told, "spec"), _part(told, "status")
    statuses = [*_list(status, "initContainerStatuses"), *_list(status, "containerStatuses")]
    return Pod(
        name=_text(meta, "name"),
        uid=_text(meta, "uid"),
        pool=_pool(meta),
        index=_index(meta),
        node=_text(spec, "nodeName"),
        phase=_text(status, "phase") or "Unknown",
        reason=_text(status, "reason"),
        message=_text(status, "message"),
        created_at=seconds_of(_text(meta, "creationTimestamp")) or 0,
        is_deleting=bool(meta.get("deletionTimestamp")),
        annotations=_texts(meta, "annotations"),
        conditions=_conditions(status),
        containers={container.name: container for container in map(_container, statuses)},
    )


def deployment_of(told: Json) -> Deployment:
    meta, spec, status = _part(told, "metadata"), _part(told, "spec"), _part(told, "status")
    kind = Kind.SET if told.get("kind") == Kind.SET else Kind.DEPLOYMENT
    generation = _number(meta, "generation")
    return Deployment(
        name=_text(meta, "name"),
        uid=_text(meta, "uid"),
        resource_version=_text(meta, "resourceVersion"),
        replicas=_number(spec, "replicas", 1),
        kind=kind,
        generation=generation,
        # Older LeaderWorkerSets don't say what they have seen.
        observed=_number(status, "observedGeneration", generation if kind is Kind.SET else 0),
        updated=_number(status, "updatedReplicas"),
        existing=_number(status, "replicas"),
        ready=_number(status, "readyReplicas"),
        annotations=_texts(meta, "annotations"),
        conditions=_conditions(status),
    )


def lease_of(told: Json) -> Lease:
    meta, spec = _part(told, "metadata"), _part(told, "spec")
    return Lease(
        holder=_text(spec, "holderIdentity"),
        resource_version=_text(meta, "resourceVersion"),
        transitions=_number(spec, "leaseTransitions"),
        acquired=_text(spec, "acquireTime"),
    )


def seconds_of(text: str) -> int | None:
    """Seconds since 1970 of a time as Kubernetes writes it; None: it is no time."""
    try:
        return int(datetime.fromisoformat(text).timestamp()) if text else None
    except ValueError:
        return None


def micro_time(seconds: float) -> str:
    """A time as Kubernetes' MicroTime wants it."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _pool(meta: Json) -> str:
    """The Deployment: its ReplicaSet is named after it and after the hash of its template. A set labels its pods."""
    if name_of_set := _texts(meta, "labels").get(_SET_NAME, ""):
        return name_of_set
    template = _texts(meta, "labels").get("pod-template-hash", "")
    owners = [one for one in _list(meta, "ownerReferences") if one.get("kind") == "ReplicaSet"]
    if not owners or not template:
        return ""
    name = _text(owners[0], "name")
    return name.removesuffix(f"-{template}") if name.endswith(f"-{template}") else ""


def _index(meta: Json) -> int:
    """Of the group in its set: the first pod of a group is named after both."""
    last = _text(meta, "name").rpartition("-")[2]
    return int(last) if _SET_NAME in _texts(meta, "labels") and last.isdecimal() else 0


def _container(told: Json) -> Container:
    state, last = _part(told, "state"), _part(told, "lastState")
    running, waiting = state.get("running"), _part(state, "waiting")
    ended = state.get("terminated") or last.get("terminated")
    return Container(
        name=_text(told, "name"),
        started_at=seconds_of(_text(cast(Json, running), "startedAt")) if running else None,
        is_ready=bool(told.get("ready")),
        is_started=bool(told.get("started")),
        restarts=_number(told, "restartCount"),
        waiting=_text(waiting, "reason"),
        message=_text(waiting, "message"),
        ended=_exit(ended) if ended else None,
    )


def _exit(told: Json) -> Exit:
    return Exit(_number(told, "exitCode"), _text(told, "reason"), seconds_of(_text(told, "finishedAt")))


def _conditions(status: Json) -> dict[str, Condition]:
    return {
        _text(one, "type"): Condition(one.get("status") == "True", _text(one, "reason"), _text(one, "message"))
        for one in _list(status, "conditions")
    }


def _part(told: Json, name: str) -> Json:
    found = told.get(name)
    return cast(Json, found) if isinstance(found, Mapping) else {}


def _list(told: Json, name: str) -> Sequence[Json]:
    found = told.get(name)
    return cast(Sequence[Json], found) if isinstance(found, list) else []


def _texts(told: Json, name: str) -> dict[str, str]:
    return {str(key): str(value) for key, value in _part(told, name).items()}


def _text(told: Json, name: str) -> str:
    found = told.get(name)
    return found if isinstance(found, str) else ""


def _number(told: Json, name: str, default: int = 0) -> int:
    found = told.get(name)
    return found if isinstance(found, int) else default
