"""The official client against a server on the loopback that answers as an API server does."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import kubernetes.client as k8s
import pytest
from aiohttp import web

from deploy.operator import cluster as client
from deploy.operator.cluster import (
    Change,
    ClusterUnavailable,
    Conflict,
    Expired,
    KubernetesCluster,
    Missing,
    NotPermitted,
    Refused,
    from_kubeconfig,
    in_cluster,
)
from deploy.operator.objects import Kind, Pod

POD = {
    "metadata": {
        "name": "w-abc-1",
        "uid": "u1",
        "creationTimestamp": "2026-01-01T00:00:07Z",
        "labels": {"pod-template-hash": "abc"},
        "ownerReferences": [{"kind": "ReplicaSet", "name": "w-abc"}],
        "a field of tomorrow": 1,
    },
    "spec": {"nodeName": "n1"},
    "status": {"phase": "Running", "containerStatuses": [{"name": "worker", "state": {"waiting": {"reason": "X"}}}]},
}


class ApiServer:
    """Answers what a test gives it, and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, str, Any]] = []
        self.status = 200
        self.body: Any = {}
        self.lines: list[Any] | None = None
        self.silent = False
        self.missing = ""  # a part of paths that are answered by 404
        self.url = ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        text = await request.text()
        kind = request.headers.get("Content-Type", "")
        self.asked.append((request.method, request.path_qs, kind, json.loads(text) if text else None))
        if self.silent:
            await asyncio.sleep(3600)
        if self.missing and self.missing in request.path:
            return web.json_response({"message": "not found"}, status=404)
        if self.lines is None:
            return web.json_response(self.body, status=self.status)
        response = web.StreamResponse()
        await response.prepare(request)
        for line in self.lines:
            await response.write(json.dumps(line).encode() + b"\n")
        return response


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    made = ApiServer()
    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", made.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield made
    await runner.cleanup()


@pytest.fixture
def calls() -> list[tuple[str, str, str]]:
    return []


@pytest.fixture
def cluster(server: ApiServer, calls: list[tuple[str, str, str]]) -> KubernetesCluster:
    configuration = k8s.Configuration()
    configuration.host = server.url
    configuration.retries = False  # pyright: ignore[reportAttributeAccessIssue]

    def counted(verb: str, resource: str, outcome: str) -> None:
        calls.append((verb, resource, outcome))

    return KubernetesCluster(k8s.ApiClient(configuration), "ml", "app=worker", counted)


async def test_a_list_says_from_which_version_to_watch(server: ApiServer, cluster: KubernetesCluster) -> None:
    server.body = {"metadata": {"resourceVersion": "17"}, "items": [POD]}
    version, (pod,) = await cluster.list_pods()
    assert (version, pod.name, pod.pool, pod.node, pod.created_at) == ("17", "w-abc-1", "w", "n1", 1_767_225_607)
    assert server.asked[0][1] == "/api/v1/namespaces/ml/pods?labelSelector=app%3Dworker"


async def test_a_watch_tells_changes_and_ends_with_the_stream(server: ApiServer, cluster: KubernetesCluster) -> None:
    server.lines = [
        {"type": "MODIFIED", "object": POD},
        {"type": "BOOKMARK", "object": {}},
        {"type": "DELETED", "object": POD},
    ]
    seen: list[Change[Pod]] = [change async for change in cluster.watch_pods("17")]
    assert [(change.one.name, change.is_gone) for change in seen] == [("w-abc-1", False), ("w-abc-1", True)]
    assert "resourceVersion=17" in server.asked[0][1]
    assert f"timeoutSeconds={client.WATCH_SECONDS}" in server.asked[0][1]


async def test_deployments_are_listed_and_watched_by_the_same_labels(
    server: ApiServer, cluster: KubernetesCluster
) -> None:
    one = {"metadata": {"name": "w", "uid": "d1", "generation": 4}, "spec": {"replicas": 3}}
    server.body = {"metadata": {"resourceVersion": "17"}, "items": [one]}
    version, pools = await cluster.list_pools()
    server.lines = [{"type": "MODIFIED", "object": one}]
    told = [change.one async for change in cluster.watch_pools(version)]
    assert [(pool.name, pool.replicas, pool.generation) for pool in [*pools, *told]] == [("w", 3, 4)] * 2
    path = "/apis/apps/v1/namespaces/ml/deployments?labelSelector=app%3Dworker"
    assert server.asked[0][1] == path
    assert server.asked[1][1].startswith(f"{path}&resourceVersion=17")


async def test_a_watch_from_a_version_that_is_too_old_says_list_again(
    server: ApiServer, cluster: KubernetesCluster
) -> None:
    server.lines = [{"type": "ERROR", "object": {"code": 410, "message": "too old resource version"}}]
    with pytest.raises(Expired, match="too old"):
        async for _ in cluster.watch_pods("1"):
            pass


async def test_a_pod_is_deleted_by_uid(server: ApiServer, cluster: KubernetesCluster) -> None:
    await cluster.delete_pod("w-abc-1", "u1")
    method, path, _, body = server.asked[0]
    assert (method, path, body["preconditions"]) == ("DELETE", "/api/v1/namespaces/ml/pods/w-abc-1", {"uid": "u1"})


async def test_the_scale_is_patched_over_the_version_that_was_read(
    server: ApiServer, cluster: KubernetesCluster
) -> None:
    await cluster.patch_scale("w", 3, "99")
    method, path, kind, body = server.asked[0]
    assert (method, path) == ("PATCH", "/apis/apps/v1/namespaces/ml/deployments/w/scale")
    assert kind in ("application/strategic-merge-patch+json", "application/merge-patch+json")
    assert body == {"metadata": {"resourceVersion": "99"}, "spec": {"replicas": 3}}


async def test_a_set_is_read_scaled_and_annotated_by_merges(server: ApiServer, cluster: KubernetesCluster) -> None:
    """Strategic merges are for kinds of Kubernetes itself."""
    one = {"kind": "LeaderWorkerSet", "metadata": {"name": "w", "uid": "s1"}, "spec": {"replicas": 3}}
    server.body = one | {"metadata": {"name": "w", "uid": "s1", "resourceVersion": "9"}, "items": [one]}
    _, (listed,) = await cluster.list_pools(Kind.SET)
    read = await cluster.get_deployment("w", Kind.SET)
    await cluster.patch_scale("w", 2, read.resource_version, Kind.SET)
    await cluster.annotate_deployment("w", {"k": "v"}, Kind.SET)
    path = "/apis/leaderworkerset.x-k8s.io/v1/namespaces/ml/leaderworkersets"
    merge = "application/merge-patch+json"
    assert [listed.kind, read.kind] == [Kind.SET, Kind.SET]
    assert server.asked == [
        ("GET", f"{path}?labelSelector=app%3Dworker", server.asked[0][2], None),
        ("GET", f"{path}/w", server.asked[1][2], None),
        ("PATCH", f"{path}/w/scale", merge, {"metadata": {"resourceVersion": "9"}, "spec": {"replicas": 2}}),
        ("PATCH", f"{path}/w", merge, {"metadata": {"annotations": {"k": "v"}}}),
    ]


async def test_sets_are_watched(server: ApiServer, cluster: KubernetesCluster) -> None:
    one = {"kind": "LeaderWorkerSet", "metadata": {"name": "w"}, "spec": {"replicas": 3}}
    server.lines = [{"type": "ADDED", "object": one}]
    (change,) = [change async for change in cluster.watch_pools("17", Kind.SET)]
    assert (change.one.name, change.one.kind) == ("w", Kind.SET)
    assert "watch=true" in server.asked[0][1].lower()


async def test_a_lease_is_made_and_patched(server: ApiServer, cluster: KubernetesCluster) -> None:
    server.body = {"metadata": {"resourceVersion": "5"}, "spec": {"holderIdentity": "me"}}
    server.missing = "/deployments/"
    made = await cluster.write_lease("lease", {"holderIdentity": "me"}, None)
    await cluster.write_lease("lease", {"holderIdentity": "me"}, made.resource_version)
    assert [method for method, *_ in server.asked] == ["GET", "POST", "PATCH"]
    assert server.asked[1][3]["metadata"] == {"name": "lease"}
    assert server.asked[2][3]["metadata"] == {"resourceVersion": "5"}


async def test_a_lease_goes_with_the_deployment_of_its_name(server: ApiServer, cluster: KubernetesCluster) -> None:
    server.body = {"metadata": {"name": "lease", "uid": "d1"}}
    await cluster.write_lease("lease", {"holderIdentity": "me"}, None)
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "lease", "uid": "d1"}
    assert server.asked[1][3]["metadata"]["ownerReferences"] == [owner]


async def test_a_lease_that_is_made_after_its_deployment_went_names_the_owner_of_before(
    server: ApiServer, cluster: KubernetesCluster
) -> None:
    """So the garbage collector takes it, and not an operator that has ended by then."""
    server.missing = "/deployments/"
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "lease", "uid": "d1"}
    server.body = {"metadata": {"name": "lease", "ownerReferences": [owner]}}
    await cluster.get_lease("lease")
    await cluster.write_lease("lease", {"holderIdentity": "me"}, None)
    assert server.asked[2][3]["metadata"]["ownerReferences"] == [owner]


async def test_events_are_made_and_counted(server: ApiServer, cluster: KubernetesCluster) -> None:
    server.body = {"metadata": {"name": "w.1"}}
    name = await cluster.create_event({"metadata": {"name": "w.1"}, "involvedObject": {"name": "w"}})
    await cluster.patch_event(name, {"count": 2})
    assert [(method, path.rpartition("/")[2]) for method, path, *_ in server.asked] == [
        ("POST", "events"),
        ("PATCH", "w.1"),
    ]


async def test_what_people_may_do(server: ApiServer, cluster: KubernetesCluster) -> None:
    server.body = POD
    await cluster.annotate_pod("w-abc-1", {"k": "v"})
    await cluster.annotate_deployment("w", {"k": None})
    server.body = {"items": [POD]}
    await cluster.list_deployments("a=b")
    log = await cluster.pod_logs("w-abc-1", "worker", 7, True)
    assert server.asked[1][3] == {"metadata": {"annotations": {"k": None}}}
    assert "tailLines=7" in server.asked[3][1]
    assert log.startswith("{")


async def test_a_pod_that_is_not_there_is_none(server: ApiServer, cluster: KubernetesCluster) -> None:
    server.status, server.body = 404, {"message": "not found"}
    assert await cluster.get_pod("w") is None


@pytest.mark.parametrize(
    ("status", "kind", "says"),
    [
        (403, NotPermitted, "not permitted: get deployments in namespace ml"),
        (404, Missing, "get deployments: said so"),
        (409, Conflict, "said so"),
        (422, Refused, "said so"),
        (429, ClusterUnavailable, "said so"),
        (500, ClusterUnavailable, "said so"),
        (401, ClusterUnavailable, "credentials are refused"),
    ],
)
async def test_an_answer_means_what_the_caller_can_do(
    server: ApiServer, cluster: KubernetesCluster, calls: list[tuple[str, str, str]], status: int, kind: type, says: str
) -> None:
    server.status, server.body = status, {"message": "said so"}
    with pytest.raises(kind, match=says):
        await cluster.get_deployment("w")
    assert calls == [("get", "deployments", str(status))]
    assert len(server.asked) == 1


async def test_a_watch_that_is_refused_is_no_stream(server: ApiServer, cluster: KubernetesCluster) -> None:
    server.status, server.body = 403, {"message": "no"}
    with pytest.raises(NotPermitted):
        async for _ in cluster.watch_pods("1"):
            pass


async def test_a_server_that_says_nothing_is_waited_for_once(
    server: ApiServer, cluster: KubernetesCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "READ_SECONDS", 0.2)
    server.silent = True
    with pytest.raises(ClusterUnavailable, match="no answer to get deployments"):
        await cluster.get_deployment("w")
    assert len(server.asked) == 1


async def test_a_server_that_is_away_is_a_sentence(server: ApiServer, cluster: KubernetesCluster) -> None:
    cluster._apps.api_client.configuration.host = "http://127.0.0.1:9"  # pyright: ignore
    with pytest.raises(ClusterUnavailable, match="no answer to get deployments"):
        await cluster.get_deployment("w")


async def test_an_answer_that_is_no_json_is_no_answer(server: ApiServer, cluster: KubernetesCluster) -> None:
    server.body = None
    server.lines = []
    with pytest.raises(ClusterUnavailable, match="no JSON"):
        await cluster.get_deployment("w")


def test_outside_of_a_pod_there_is_no_service_account(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(ClusterUnavailable, match="no pod with a service account"):
        in_cluster()


def test_a_kubeconfig_names_the_namespace(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "config"
    parts: dict[str, Any] = {
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "ml"}}],
        "current-context": "x",
        "apiVersion": "v1",
        "kind": "Config",
    }
    config.write_text(json.dumps(parts))
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(config))
    api, namespace = from_kubeconfig(None)
    assert (namespace, api.configuration.host, api.configuration.retries) == ("ml", "https://127.0.0.1:1", False)
