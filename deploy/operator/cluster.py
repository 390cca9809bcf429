"""The cluster, as the operator and the commands use it: the only file that touches the official client.

Invariants: every call ends, within its own timeout and an overall one, and is made once: a retry is the caller's next
look. What is written is guarded: a pod is deleted by uid, a number of replicas is set over the version that was read.
Objects are patched, never replaced: the client drops fields that it doesn't know.
"""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol, cast

import kubernetes.client as k8s
import kubernetes.config
import urllib3
from kubernetes.client.exceptions import ApiException
from kubernetes.config.config_exception import ConfigException

from deploy.operator.objects import Deployment, Json, Kind, Lease, Pod, deployment_of, lease_of, pod_of

CONNECT_SECONDS, READ_SECONDS, CALL_SECONDS = 3.0, 8.0, 12.0
WATCH_SECONDS = 28  # then the caller lists again: the watch only makes that faster
POOLS_SECONDS = 58  # of Deployments, which are read again before each change, too
_THREADS = 8


class ClusterError(Exception):
    """The API server did not do what it was asked. The message is a sentence."""


class ClusterUnavailable(ClusterError):
    """No answer, or one that says later: try again."""


class NotPermitted(ClusterError):
    """403; the message names the verb and the resource that the role lacks."""


class Missing(ClusterError):
    """404."""


class Conflict(ClusterError):
    """409: it is not as it was read; look again."""


class Expired(ClusterError):
    """410: the version to watch from is too old; list again."""


class Refused(ClusterError):
    """Any other 4xx: the request can't work."""


@dataclass(frozen=True, slots=True)
class Change[T]:
    """What a watch tells: an object, and whether it is gone."""

    one: T
    is_gone: bool


class Cluster(Protocol):
    """One namespace of a cluster. Errors of all methods: ClusterError."""

    async def list_pods(self) -> tuple[str, list[Pod]]:
        """(version to watch from, the fleet's pods)."""
        ...

    def watch_pods(self, version: str) -> AsyncIterator[Change[Pod]]:
        """Changes from `version` on, for at most WATCH_SECONDS."""
        ...

    async def list_pools(self, kind: Kind = Kind.DEPLOYMENT) -> tuple[str, list[Deployment]]:
        """(version to watch from, the fleet's pools of this kind)."""
        ...

    def watch_pools(self, version: str, kind: Kind = Kind.DEPLOYMENT) -> AsyncIterator[Change[Deployment]]:
        """Changes from `version` on, for at most POOLS_SECONDS."""
        ...

    async def get_pod(self, name: str) -> Pod | None: ...

    async def delete_pod(self, name: str, uid: str) -> None:
        """Errors: Missing, Conflict where the name is another pod's by now."""
        ...

    async def get_deployment(self, name: str, kind: Kind = Kind.DEPLOYMENT) -> Deployment: ...

    async def patch_scale(self, name: str, replicas: int, version: str, kind: Kind = Kind.DEPLOYMENT) -> None:
        """Errors: Conflict where the Deployment is not at `version` any more."""
        ...

    async def get_lease(self, name: str) -> Lease | None: ...

    async def write_lease(self, name: str, spec: Json, version: str | None) -> Lease:
        """Writes over `version`; None: makes it, owned by the Deployment of that name. Errors: Conflict."""
        ...

    async def create_event(self, event: Json) -> str:
        """Its name."""
        ...

    async def patch_event(self, name: str, patch: Json) -> None: ...


type Counted = Callable[[str, str, str], None]  # verb, resource, outcome


class KubernetesCluster:
    """A real one. `counted` is told of every call."""

    def __init__(self, api: k8s.ApiClient, namespace: str, selector: str, counted: Counted) -> None:
        self._namespace = namespace
        self._selector = selector
        self._counted = counted
        self._core, self._apps = k8s.CoreV1Api(api), k8s.AppsV1Api(api)
        self._coordination = k8s.CoordinationV1Api(api)
        self._pools = {
            Kind.DEPLOYMENT: _of_deployments(self._apps),
            Kind.SET: _of_sets(k8s.CustomObjectsApi(api)),
        }
        self._threads = ThreadPoolExecutor(_THREADS, "cluster")
        self._owners: Mapping[str, Any] = {}  # of the Lease that was seen last

    async def list_pods(self) -> tuple[str, list[Pod]]:
        told = await self._json("list", "pods", self._core.list_namespaced_pod, label_selector=self._selector)
        return told["metadata"]["resourceVersion"], [pod_of(item) for item in told["items"]]

    async def watch_pods(self, version: str) -> AsyncIterator[Change[Pod]]:
        async for told, is_gone in self._watch("pods", self._core.list_namespaced_pod, version, WATCH_SECONDS):
            yield Change(pod_of(told), is_gone)

    async def list_pools(self, kind: Kind = Kind.DEPLOYMENT) -> tuple[str, list[Deployment]]:
        calls = self._pools[kind]
        told = await self._json("list", calls.resource, calls.list, label_selector=self._selector)
        return told["metadata"]["resourceVersion"], [deployment_of(item) for item in told["items"]]

    async def watch_pools(self, version: str, kind: Kind = Kind.DEPLOYMENT) -> AsyncIterator[Change[Deployment]]:
        calls = self._pools[kind]
        async for told, is_gone in self._watch(calls.resource, calls.list, version, POOLS_SECONDS):
            yield Change(deployment_of(told), is_gone)

    async def _watch(
        self, resource: str, listed: Callable[..., Any], version: str, seconds: int
    ) -> AsyncIterator[tuple[Json, bool]]:
        """(object, whether it is gone)."""
        response = await self._call(
            "watch",
            resource,
            listed,
            label_selector=self._selector,
            resource_version=version,
            watch=True,
            timeout_seconds=seconds,
            _request_timeout=(CONNECT_SECONDS, seconds + 5),
        )
        lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        loop = asyncio.get_running_loop()
        # A thread of its own that ends with the process: closing the response would not wake it from its read.
        threading.Thread(target=_read_lines, args=(response, loop, lines), name="watch", daemon=True).start()
        while (line := await lines.get()) is not None:
            told = json.loads(line)
            if told["type"] == "ERROR":
                raise Expired(str(told["object"].get("message", "the watch ended")))
            if told["type"] != "BOOKMARK":
                yield told["object"], told["type"] == "DELETED"

    async def get_pod(self, name: str) -> Pod | None:
        try:
            return pod_of(await self._json("get", "pods", self._core.read_namespaced_pod, name))
        except Missing:
            return None

    async def delete_pod(self, name: str, uid: str) -> None:
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
        await self._json("delete", "pods", self._core.delete_namespaced_pod, name, body=body)

    async def get_deployment(self, name: str, kind: Kind = Kind.DEPLOYMENT) -> Deployment:
        calls = self._pools[kind]
        return deployment_of(await self._json("get", calls.resource, calls.get, name))

    async def patch_scale(self, name: str, replicas: int, version: str, kind: Kind = Kind.DEPLOYMENT) -> None:
        body = {"metadata": {"resourceVersion": version}, "spec": {"replicas": replicas}}
        calls = self._pools[kind]
        await self._json("patch", f"{calls.resource}/scale", calls.scale, name, body=body)

    async def get_lease(self, name: str) -> Lease | None:
        try:
            return self._seen(await self._json("get", "leases", self._coordination.read_namespaced_lease, name))
        except Missing:
            return None

    async def write_lease(self, name: str, spec: Json, version: str | None) -> Lease:
        if version is None:
            meta = {"name": name, **await self._owned_by(name)}
            body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": spec}
            made = await self._json("create", "leases", self._coordination.create_namespaced_lease, body=body)
            return self._seen(made)
        body = {"metadata": {"resourceVersion": version}, "spec": spec}
        change = self._coordination.patch_namespaced_lease
        return self._seen(await self._json("patch", "leases", change, name, body=body))

    def _seen(self, told: Json) -> Lease:
        self._owners = {key: value for key, value in told["metadata"].items() if key == "ownerReferences"}
        return lease_of(told)

    async def _owned_by(self, name: str) -> Json:
        """The operator's own Deployment, which has the Lease's name: where it is uninstalled, the Lease goes with it.

        One that ends only now, after its Deployment and its Lease have gone, names the owner of before: the garbage
        collector takes what nobody owns any more. blockOwnerDeletion would need a right on the Deployment.
        """
        try:
            owner = await self.get_deployment(name)
        except Missing:
            return self._owners
        about = {"apiVersion": "apps/v1", "kind": "Deployment", "name": owner.name, "uid": owner.uid}
        return {"ownerReferences": [about]}

    async def create_event(self, event: Json) -> str:
        made = await self._json("create", "events", self._core.create_namespaced_event, body=event)
        return str(made["metadata"]["name"])

    async def patch_event(self, name: str, patch: Json) -> None:
        await self._json("patch", "events", self._core.patch_namespaced_event, name, body=patch)

    # For people: with the rights of their kubeconfig

    async def annotate_pod(self, name: str, annotations: Json) -> Pod:
        body = {"metadata": {"annotations": annotations}}
        return pod_of(await self._json("patch", "pods", self._core.patch_namespaced_pod, name, body=body))

    async def annotate_deployment(self, name: str, annotations: Json, kind: Kind = Kind.DEPLOYMENT) -> Deployment:
        body, calls = {"metadata": {"annotations": annotations}}, self._pools[kind]
        return deployment_of(await self._json("patch", calls.resource, calls.patch, name, body=body))

    async def list_deployments(self, selector: str) -> list[Json]:
        """Whole, as the API server answers: the commands read settings of the operator's out of them."""
        told = await self._json("list", "deployments", self._apps.list_namespaced_deployment, label_selector=selector)
        return cast(list[Json], told["items"])

    async def pod_logs(self, name: str, container: str, lines: int, previous: bool) -> str:
        read = self._core.read_namespaced_pod_log
        more = {"container": container, "tail_lines": lines, "previous": previous}
        data = await self._data("get", "pods/log", read, name, **more)
        return data.decode(errors="replace")

    async def _json(
        self, verb: str, resource: str, call: Callable[..., Any], *args: Any, **more: Any
    ) -> dict[str, Any]:
        data = await self._data(verb, resource, call, *args, **more)
        try:
            return json.loads(data)
        except ValueError as error:
            raise ClusterUnavailable(f"the answer to {verb} {resource} is no JSON: {error}") from error

    async def _data(self, verb: str, resource: str, call: Callable[..., Any], *args: Any, **more: Any) -> bytes:
        return await self._call(verb, resource, lambda *a, **k: call(*a, **k).data, *args, **more)

    async def _call(self, verb: str, resource: str, call: Callable[..., Any], *args: Any, **more: Any) -> Any:
        """One call in a thread. Errors: ClusterError."""
        options = {"_preload_content": False, "_request_timeout": (CONNECT_SECONDS, READ_SECONDS)} | more
        what, outcome = f"{verb} {resource}", "error"
        try:
            async with asyncio.timeout(CALL_SECONDS):
                loop = asyncio.get_running_loop()
                answer = await loop.run_in_executor(self._threads, lambda: call(*args, self._namespace, **options))
                outcome = "ok"
                return answer
        except ApiException as error:
            outcome = str(cast(Any, error).status)
            raise _meaning(error, what, self._namespace) from error
        except (urllib3.exceptions.HTTPError, ConfigException, OSError, TimeoutError) as error:
            raise ClusterUnavailable(f"no answer to {what}: {_short(error)}") from error
        finally:
            self._counted(verb, resource, outcome)


@dataclass(frozen=True, slots=True)
class _Calls:
    """The client's functions for one kind of pool. Those of a name take it, then the namespace."""

    resource: str
    list: Callable[..., Any]
    get: Callable[..., Any]
    patch: Callable[..., Any]
    scale: Callable[..., Any]


def _of_deployments(api: k8s.AppsV1Api) -> _Calls:
    return _Calls(
        "deployments",
        api.list_namespaced_deployment,
        api.read_namespaced_deployment,
        api.patch_namespaced_deployment,
        api.patch_namespaced_deployment_scale,
    )


def _of_sets(api: k8s.CustomObjectsApi) -> _Calls:
    """By the client's interface for kinds that it doesn't know, whose patches are merges only if they say so."""
    about = {"group": "leaderworkerset.x-k8s.io", "version": "v1", "plural": "leaderworkersets"}

    def of(call: Callable[..., Any], *names: str, **fixed: str) -> Callable[..., Any]:
        def called(*given: str, **more: Any) -> Any:
            return call(**about, **dict(zip(names, given, strict=True)), **fixed, **more)

        return called

    named, merge = ("name", "namespace"), {"_content_type": "application/merge-patch+json"}
    return _Calls(
        "leaderworkersets",
        of(api.list_namespaced_custom_object, "namespace"),
        of(api.get_namespaced_custom_object, *named),
        of(api.patch_namespaced_custom_object, *named, **merge),
        of(api.patch_namespaced_custom_object_scale, *named, **merge),
    )


def in_cluster() -> k8s.ApiClient:
    """With the service account of this pod. Errors: ClusterUnavailable."""
    configuration = k8s.Configuration()
    try:
        kubernetes.config.load_incluster_config(client_configuration=configuration)
    except (ConfigException, OSError) as error:
        raise ClusterUnavailable(f"this process runs in no pod with a service account ({error})") from error
    return _client(configuration)


def from_kubeconfig(context: str | None) -> tuple[k8s.ApiClient, str]:
    """With a person's kubeconfig; and the namespace that it names. Errors: ClusterUnavailable."""
    configuration = k8s.Configuration()
    try:
        kubernetes.config.load_kube_config(context=context, client_configuration=configuration)
        active = cast(tuple[Any, dict[str, Any] | None], kubernetes.config.list_kube_config_contexts())[1]
    except (ConfigException, OSError, ValueError) as error:
        raise ClusterUnavailable(f"the kubeconfig names no cluster ({error}): set KUBECONFIG") from error
    chosen: dict[str, Any] = (active or {}).get("context", {})
    return _client(configuration), str(chosen.get("namespace") or "default")


def _client(configuration: k8s.Configuration) -> k8s.ApiClient:
    configuration.retries = cast(Any, False)  # urllib3's three tries would make a timeout of 1 s last 4
    return k8s.ApiClient(configuration)


def _read_lines(response: Any, loop: asyncio.AbstractEventLoop, lines: asyncio.Queue[bytes | None]) -> None:
    """Ends with None, however the stream ends: the caller lists again."""
    rest = b""
    try:
        for part in response.stream(65_536, decode_content=True):
            *whole, rest = (rest + part).split(b"\n")
            for line in filter(None, whole):
                loop.call_soon_threadsafe(lines.put_nowait, line)
    except (urllib3.exceptions.HTTPError, OSError, ValueError, AttributeError):
        pass  # cut off; a relist finds what was missed
    except RuntimeError:
        return  # the loop has ended: so has the process
    try:
        loop.call_soon_threadsafe(lines.put_nowait, None)
    except RuntimeError:
        return


_KINDS: dict[int | None, type[ClusterError]] = {403: NotPermitted, 404: Missing, 409: Conflict, 410: Expired}


def _meaning(error: ApiException, what: str, namespace: str) -> ClusterError:
    told: Any = error
    status: int | None = told.status
    if status == 403:
        return NotPermitted(f"not permitted: {what} in namespace {namespace} (the role lacks this verb)")
    if status == 401:
        return ClusterUnavailable(f"{what}: the credentials are refused (401)")
    if not status or status == 429 or status >= 500:
        return ClusterUnavailable(f"{what}: the API server answers {status or 'nothing'} ({_said(error)})")
    return _KINDS.get(status, Refused)(f"{what}: {_said(error)} ({status})")


def _said(error: Any) -> str:
    """The message of the Status in the body, or what there is."""
    try:
        return str(json.loads(error.body)["message"])
    except (ValueError, TypeError, KeyError):
        return str(error.reason or "no reason")


def _short(error: Exception) -> str:
    """The cause, without the whole chain of what urllib3 tried."""
    reason: object = getattr(error, "reason", None) or error
    return str(reason) or type(error).__name__
