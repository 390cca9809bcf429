"""Pods as an API server tells them: statuses of worker pods, in the shapes that kubelet and scheduler write."""

from typing import Any

type Object = dict[str, Any]

UID = "0a53c1de-5f7b-4a39-8f3e-6d1c2f0b9a77"
_BEGAN = "2026-01-01T00:00:40Z"


def pod(phase: str = "Running", *, node: str = "gpu-7", ends: bool = False, **status: Any) -> Object:
    """A pod of a Deployment. `status`: what is in it besides the phase."""
    meta: Object = {
        "name": "fleet-worker-6c9d7bb5f4-x2x4v",
        "namespace": "ml",
        "uid": UID,
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": {"pod-template-hash": "6c9d7bb5f4", "app.kubernetes.io/component": "worker"},
        "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "fleet-worker-6c9d7bb5f4"}],
    }
    if ends:
        meta |= {"deletionTimestamp": "2026-01-01T01:00:00Z", "deletionGracePeriodSeconds": 675}
    spec = {"nodeName": node} if node else {}
    return {"metadata": meta, "spec": spec, "status": {"phase": phase, "qosClass": "Burstable", **status}}


def condition(kind: str, is_true: bool, reason: str = "", message: str = "") -> Object:
    told = {"type": kind, "status": "True" if is_true else "False", "lastTransitionTime": _BEGAN}
    return told | ({"reason": reason} if reason else {}) | ({"message": message} if message else {})


def running(name: str, *, ready: bool = True, started: bool = True, restarts: int = 0, **more: Any) -> Object:
    state = {"running": {"startedAt": _BEGAN}}
    return _container(name, state, ready=ready, started=started, restartCount=restarts, **more)


def waiting(name: str, reason: str, message: str = "", restarts: int = 0, **more: Any) -> Object:
    state = {"waiting": {"reason": reason} | ({"message": message} if message else {})}
    return _container(name, state, restartCount=restarts, **more)


def over(code: int, reason: str) -> Object:
    """An end, as `lastState` or `state` hold it."""
    times = {"startedAt": _BEGAN, "finishedAt": "2026-01-01T00:10:00Z", "containerID": "containerd://1"}
    return {"terminated": {"exitCode": code, "reason": reason, **times}}


def _container(name: str, state: Object, **more: Any) -> Object:
    told: Object = {"name": name, "image": "rolloutfleet:0.1.0", "imageID": "", "state": state, "lastState": {}}
    return told | {"ready": False, "started": False, "restartCount": 0} | more


def unplaced(reason: str, message: str) -> Object:
    """A pod that has no node."""
    return pod("Pending", node="", conditions=[condition("PodScheduled", False, reason, message)])


def placed(*containers: Object, sandbox: bool = True, **status: Any) -> Object:
    """One that has a node, and whose containers are not all there. The first one is the engine."""
    conditions = [
        condition("PodReadyToStartContainers", sandbox),
        condition("Initialized", False, "ContainersNotInitialized"),
        condition("Ready", False, "ContainersNotReady"),
        condition("PodScheduled", True),
    ]
    engine, *others = containers
    return pod("Pending", conditions=conditions, initContainerStatuses=[engine], containerStatuses=others, **status)


def up(*, ready: bool = True, worker: Object | None = None, conditions: tuple[Object, ...] = (), **more: Any) -> Object:
    """One whose containers run."""
    found = [condition("PodScheduled", True), condition("Ready", ready, "" if ready else "ContainersNotReady")]
    return pod(
        conditions=[*conditions, *found],
        initContainerStatuses=[running("engine")],
        containerStatuses=[worker or running("worker", ready=ready)],
        **more,
    )
