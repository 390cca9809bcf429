"""A cluster in this process: one namespace, with versions, preconditions, conflicts, and controllers as Kubernetes'.

Objects are JSON, as the API server tells them. The Deployment controller and the ReplicaSet's are run after each write
unless `controllers` is off: the ReplicaSet makes what is missing at once, and drops what is too much in Kubernetes' own
order (without a node, Pending, not ready, young); a LeaderWorkerSet has its pods by index, and drops the highest.
`settle` is the scheduler and the kubelet: it starts what has a
place, and ends what is being deleted. `on_call` is called with each verb and resource, before and after the call.
"""

import asyncio
import copy
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Any

from deploy.operator.cluster import Change, ClusterUnavailable, Conflict, Expired, Missing, NotPermitted
from deploy.operator.objects import Deployment, Json, Kind, Lease, Pod, deployment_of, lease_of, pod_of

type Object = dict[str, Any]

START = 1_764_400_000  # seconds
_RESOURCES = {Kind.DEPLOYMENT: "deployments", Kind.SET: "leaderworkersets"}
_SET_NAME = "leaderworkerset.sigs.k8s.io/name"


class FakeCluster:
    """`gpus`: pods that run at once; None: any number."""

    def __init__(self, gpus: int | None = None) -> None:
        self.gpus = gpus
        self.pods: dict[str, Object] = {}
        self.deployments: dict[str, Object] = {}
        self.others: list[Object] = []  # Deployments that nobody controls: the operator's
        self.leases: dict[str, Object] = {}
        self.events: list[Object] = []
        self.calls: Counter[tuple[str, str]] = Counter()
        self.away = False
        self.forbidden: set[tuple[str, str]] = set()
        self.controllers = True
        self.quota: int | None = None
        self.on_call: Callable[[str, str, str], None] = lambda verb, resource, when: None
        self.dropped: list[str] = []  # pods that a ReplicaSet chose
        self.now = START
        self._version = itertools.count(100)
        self._number = itertools.count(1)
        self._pod_watchers: list[asyncio.Queue[Change[Pod] | None]] = []
        self._pool_watchers: list[asyncio.Queue[Change[Deployment] | None]] = []

    # What tests do

    def deployment(self, name: str, replicas: int, kind: Kind = Kind.DEPLOYMENT) -> None:
        """Makes a Deployment or a LeaderWorkerSet, and its pods run."""
        self.deployments[name] = {
            "kind": kind,
            "metadata": {"name": name, "uid": f"uid-{name}", "generation": 1, "annotations": {}},
            "spec": {"replicas": replicas, "template": 1},
            "status": {},
        }
        self._touch(self.deployments[name])
        self.control()
        self.settle()

    def settle(self) -> None:
        """Scheduler and kubelet: pods that end have ended, and those with a place are ready."""
        for name in [name for name, pod in self.pods.items() if pod["metadata"].get("deletionTimestamp")]:
            self.end(name)
        running = sum(1 for pod in self.pods.values() if pod["spec"].get("nodeName"))
        for pod in self.pods.values():
            if pod["spec"].get("nodeName"):
                continue
            if self.gpus is not None and running >= self.gpus:
                self._unschedulable(pod)
                continue
            running += 1
            self._start(pod)
        self.control()

    def end(self, name: str) -> None:
        """The pod's object is deleted: it ended, or somebody forced it."""
        pod = self.pods.pop(name)
        self._tell(pod, is_gone=True)
        self.control()

    def change(self, name: str, change: Callable[[Object], None]) -> None:
        """Somebody changes a pod."""
        change(self.pods[name])
        self._touch(self.pods[name])
        self._tell(self.pods[name])
        self.control()

    def not_ready(self, name: str) -> None:
        self.change(name, lambda pod: pod["status"].update(conditions=[_condition("Ready", False)]))

    def restart_container(self, name: str, code: int = 137, reason: str = "Error") -> None:
        """The worker's container ends, and is started again."""
        self.now += 10

        def change(pod: Object) -> None:
            status = pod["status"]["containerStatuses"][0]
            status["lastState"] = {"terminated": {"exitCode": code, "reason": reason}}
            status["state"] = {"running": {"startedAt": _time(self.now)}}
            status["restartCount"] = status.get("restartCount", 0) + 1

        self.change(name, change)

    def annotate(self, name: str, **annotations: str) -> None:
        """On a pod or a Deployment; `_` stands for the prefix."""
        of = self.pods.get(name) or self.deployments[name]
        of["metadata"].setdefault("annotations", {}).update(annotations)
        self._touch(of)
        if name in self.pods:
            self._tell(of)

    def roll(self, name: str) -> None:
        """A new template: the rollout begins, one pod at a time, with each `settle`."""
        deployment = self.deployments[name]
        deployment["spec"]["template"] += 1
        deployment["metadata"]["generation"] += 1
        self._touch(deployment)
        self.control()

    def names(self, pool: str = "") -> list[str]:
        """Pods that are not being deleted."""
        return [
            pod["metadata"]["name"] for pod in self.pods.values() if _is_active(pod) and _pool(pod).startswith(pool)
        ]

    def replicas(self, name: str) -> int:
        return self.deployments[name]["spec"]["replicas"]

    def uid(self, name: str) -> str:
        return self.pods[name]["metadata"]["uid"]

    # What the operator calls

    async def list_pods(self) -> tuple[str, list[Pod]]:
        with self._called("list", "pods"):
            return str(next(self._version)), [pod_of(copy.deepcopy(pod)) for pod in self.pods.values()]

    async def watch_pods(self, version: str) -> AsyncIterator[Change[Pod]]:
        with self._called("watch", "pods"):
            changes: asyncio.Queue[Change[Pod] | None] = asyncio.Queue()
            self._pod_watchers.append(changes)
        async for change in _until_cut(changes):
            yield change

    async def list_pools(self, kind: Kind = Kind.DEPLOYMENT) -> tuple[str, list[Deployment]]:
        with self._called("list", _RESOURCES[kind]):
            found = [one for one in self.deployments.values() if one["kind"] == kind]
            return str(next(self._version)), [deployment_of(copy.deepcopy(one)) for one in found]

    async def watch_pools(self, version: str, kind: Kind = Kind.DEPLOYMENT) -> AsyncIterator[Change[Deployment]]:
        with self._called("watch", _RESOURCES[kind]):
            changes: asyncio.Queue[Change[Deployment] | None] = asyncio.Queue()
            self._pool_watchers.append(changes)
        async for change in _until_cut(changes):
            yield change

    def cut_watches(self) -> None:
        for changes in (*self._pod_watchers, *self._pool_watchers):
            changes.put_nowait(None)
        self._pod_watchers.clear()
        self._pool_watchers.clear()

    async def get_pod(self, name: str) -> Pod | None:
        with self._called("get", "pods"):
            return pod_of(copy.deepcopy(self.pods[name])) if name in self.pods else None

    async def delete_pod(self, name: str, uid: str) -> None:
        with self._called("delete", "pods"):
            if name not in self.pods:
                raise Missing(f'pods "{name}" not found')
            pod = self.pods[name]
            if pod["metadata"]["uid"] != uid:
                raise Conflict(f"the UID in the precondition ({uid}) does not match")
            pod["metadata"].setdefault("deletionTimestamp", _time(self.now))
            self._touch(pod)
            self._tell(pod)
            self.control()

    async def get_deployment(self, name: str, kind: Kind = Kind.DEPLOYMENT) -> Deployment:
        with self._called("get", _RESOURCES[kind]):
            if name not in self.deployments or self.deployments[name]["kind"] != kind:
                raise Missing(f'{_RESOURCES[kind]} "{name}" not found')
            return deployment_of(copy.deepcopy(self.deployments[name]))

    async def patch_scale(self, name: str, replicas: int, version: str, kind: Kind = Kind.DEPLOYMENT) -> None:
        with self._called("patch", f"{_RESOURCES[kind]}/scale"):
            deployment = self.deployments[name]
            if deployment["metadata"]["resourceVersion"] != version:
                raise Conflict("the object has been modified")
            self.set_replicas(name, replicas)

    def set_replicas(self, name: str, replicas: int) -> None:
        deployment = self.deployments[name]
        if deployment["spec"]["replicas"] != replicas:
            deployment["spec"]["replicas"] = replicas
            deployment["metadata"]["generation"] += 1
        self._touch(deployment)
        self.control()

    async def get_lease(self, name: str) -> Lease | None:
        with self._called("get", "leases"):
            return lease_of(self.leases[name]) if name in self.leases else None

    async def write_lease(self, name: str, spec: Json, version: str | None) -> Lease:
        with self._called("create" if version is None else "patch", "leases"):
            if version is None and name in self.leases:
                raise Conflict(f'leases "{name}" already exists')
            if version is not None and name not in self.leases:
                raise Missing(f'leases "{name}" not found')
            lease = self.leases.setdefault(name, {"metadata": {"name": name}, "spec": {}})
            if version is not None and lease["metadata"]["resourceVersion"] != version:
                raise Conflict("the object has been modified")
            lease["spec"].update(spec)
            self._touch(lease)
            return lease_of(lease)

    async def create_event(self, event: Json) -> str:
        with self._called("create", "events"):
            self.events.append(dict(event))
            return event["metadata"]["name"]

    async def patch_event(self, name: str, patch: Json) -> None:
        with self._called("patch", "events"):
            next(event for event in self.events if event["metadata"]["name"] == name).update(patch)

    # What people call besides

    async def annotate_pod(self, name: str, annotations: Json) -> Pod:
        with self._called("patch", "pods"):
            if name not in self.pods:
                raise Missing(f'pods "{name}" not found')
            self._annotate(self.pods[name], annotations)
            self._tell(self.pods[name])
            return pod_of(self.pods[name])

    async def annotate_deployment(self, name: str, annotations: Json, kind: Kind = Kind.DEPLOYMENT) -> Deployment:
        with self._called("patch", _RESOURCES[kind]):
            self._annotate(self.deployments[name], annotations)
            return deployment_of(self.deployments[name])

    async def list_deployments(self, selector: str) -> list[Json]:
        """Those whose labels hold every part of the selector, and the operator's own."""
        with self._called("list", "deployments"):
            wanted = dict(part.split("=") for part in selector.split(","))
            all_of_them = [*self.deployments.values(), *self.others]
            found = [one for one in all_of_them if one.get("kind") != Kind.SET]
            return [one for one in found if wanted.items() <= one["metadata"].get("labels", {}).items()]

    async def pod_logs(self, name: str, container: str, lines: int, previous: bool) -> str:
        with self._called("get", "pods/log"):
            return f"{name} {container} {lines} {previous}\nsecond line\n"

    def _annotate(self, of: Object, annotations: Json) -> None:
        known = of["metadata"].setdefault("annotations", {})
        for key, value in annotations.items():
            if value is None:
                known.pop(key, None)
            else:
                known[key] = value
        self._touch(of)

    # Controllers

    def control(self) -> None:
        if self.controllers:
            for name, one in self.deployments.items():
                (self._control_set if one["kind"] == Kind.SET else self._control)(name)

    def _control(self, name: str) -> None:
        deployment = self.deployments[name]
        template, replicas = deployment["spec"]["template"], deployment["spec"]["replicas"]
        mine = self._active(name)
        old = [pod for pod in mine if pod["template"] != template]
        new = [pod for pod in mine if pod["template"] == template]
        # maxSurge 0, maxUnavailable 1: an old one goes when all the others are ready.
        if old and all(_is_ready(pod) for pod in mine) and len(mine) >= replicas:
            self._drop(old[0])
            old = old[1:]
        for pod in sorted(new, key=_first_dropped)[: max(0, len(old) + len(new) - replicas)]:
            self.dropped.append(pod["metadata"]["name"])
            self._drop(pod)
        failed = False
        while len(self._active(name)) < replicas and not failed:
            failed = self.quota is not None and len(self.pods) >= self.quota
            if not failed:
                self._create(name, template)
        self._say_status(deployment, failed)

    def _control_set(self, name: str) -> None:
        """One pod for each index, the first of its group; a rollout is not made here."""
        of = self.deployments[name]
        for pod in self._active(name):
            if pod_of(pod).index >= of["spec"]["replicas"]:
                self.dropped.append(pod["metadata"]["name"])
                self._drop(pod)
        for index in range(of["spec"]["replicas"]):
            if f"{name}-{index}" not in self.pods:
                self._create(name, of["spec"]["template"], index)
        self._say_status(of, failed=False)

    def _say_status(self, deployment: Object, failed: bool) -> None:
        pods = self._active(deployment["metadata"]["name"])
        status = {
            "observedGeneration": deployment["metadata"]["generation"],
            "replicas": len(pods),
            "updatedReplicas": sum(pod["template"] == deployment["spec"]["template"] for pod in pods),
            "readyReplicas": sum(map(_is_ready, pods)),
            "conditions": [_condition("ReplicaFailure", True, "FailedCreate", "exceeded quota")] if failed else [],
        }
        if status != deployment["status"]:
            deployment["status"] = status
            self._touch(deployment)

    def _active(self, name: str) -> list[Object]:
        return [pod for pod in self.pods.values() if _pool(pod) == name and _is_active(pod)]

    def _drop(self, pod: Object) -> None:
        pod["metadata"]["deletionTimestamp"] = _time(self.now)
        self._touch(pod)
        self._tell(pod)

    def _create(self, name: str, template: int, index: int | None = None) -> None:
        number = next(self._number)
        pod: Object = {
            "metadata": {
                "name": f"{name}-{template}-{number}",
                "uid": f"pod-{number}",
                "creationTimestamp": _time(self.now),
                "labels": {"pod-template-hash": str(template)},
                "ownerReferences": [{"kind": "ReplicaSet", "name": f"{name}-{template}"}],
            },
            "spec": {},
            "status": {"phase": "Pending"},
            "template": template,
        }
        if index is not None:
            pod["metadata"] |= {"name": f"{name}-{index}", "labels": {_SET_NAME: name}, "ownerReferences": []}
        self.pods[pod["metadata"]["name"]] = pod
        self._touch(pod)
        self._tell(pod)

    def _start(self, pod: Object) -> None:
        self.now += 1
        pod["spec"]["nodeName"] = "node-1"
        running = {"name": "worker", "ready": True, "state": {"running": {"startedAt": _time(self.now)}}}
        conditions = [_condition("Ready", True), _condition("PodScheduled", True)]
        pod["status"] = {"phase": "Running", "conditions": conditions, "containerStatuses": [running]}
        self._touch(pod)
        self._tell(pod)

    def _unschedulable(self, pod: Object) -> None:
        message = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
        pod["status"]["conditions"] = [_condition("PodScheduled", False, "Unschedulable", message)]
        self._touch(pod)
        self._tell(pod)

    # Inside

    def _called(self, verb: str, resource: str) -> "_Call":
        self.calls[verb, resource] += 1
        if self.away:
            raise ClusterUnavailable(f"no answer to {verb} {resource}")
        if (verb, resource) in self.forbidden:
            raise NotPermitted(f"not permitted: {verb} {resource}")
        return _Call(self, verb, resource)

    def _touch(self, told: Object) -> None:
        told["metadata"]["resourceVersion"] = str(next(self._version))
        if self.deployments.get(told["metadata"].get("name", "")) is told:
            for changes in self._pool_watchers:
                changes.put_nowait(Change(deployment_of(copy.deepcopy(told)), is_gone=False))

    def _tell(self, pod: Object, *, is_gone: bool = False) -> None:
        for changes in self._pod_watchers:
            changes.put_nowait(Change(pod_of(copy.deepcopy(pod)), is_gone))


class _Call:
    def __init__(self, cluster: FakeCluster, verb: str, resource: str) -> None:
        self._cluster, self._verb, self._resource = cluster, verb, resource

    def __enter__(self) -> None:
        self._cluster.on_call(self._verb, self._resource, "before")

    def __exit__(self, kind: object, *rest: object) -> None:
        if kind is None:
            self._cluster.on_call(self._verb, self._resource, "after")


async def _until_cut[T](changes: asyncio.Queue[T | None]) -> AsyncIterator[T]:
    while (change := await changes.get()) is not None:
        yield change
    raise Expired("too old resource version")


def _condition(kind: str, is_true: bool, reason: str = "", message: str = "") -> Object:
    return {"type": kind, "status": "True" if is_true else "False", "reason": reason, "message": message}


def _pool(pod: Object) -> str:
    return pod_of(pod).pool


def _is_active(pod: Object) -> bool:
    return not pod["metadata"].get("deletionTimestamp") and pod["status"]["phase"] not in ("Failed", "Succeeded")


def _is_ready(pod: Object) -> bool:
    return pod_of(pod).is_ready


def _first_dropped(pod: Object) -> tuple[object, ...]:
    """Kubernetes' order of controller.ActivePodsWithRanks, without deletion cost."""
    is_placed, is_running = bool(pod["spec"].get("nodeName")), pod["status"]["phase"] == "Running"
    return (is_placed, is_running, _is_ready(pod), -int(pod["metadata"]["uid"].split("-")[1]))


def _time(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
