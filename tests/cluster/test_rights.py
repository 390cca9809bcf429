"""What each component may do in the cluster, what is refused to it, and what a strict namespace says to its pods."""

import asyncio
import base64
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable, Sequence

import pytest
import yaml

from tests.cluster.jobs import Job
from tests.cluster.kube import CommandFailed, Json, kubectl, name_of
from tests.cluster.release import CHART, Release, values_of

LEASE = "leases.coordination.k8s.io/fleet-rolloutfleet-operator"
MUST = [
    *(f"{verb} pods" for verb in ("get", "list", "watch", "delete")),
    *(f"{verb} deployments.apps" for verb in ("get", "list", "watch")),
    *(f"{verb} deployments.apps/scale" for verb in ("get", "patch")),
    *(f"{verb} events" for verb in ("create", "patch")),
    "create leases.coordination.k8s.io",
    *(f"{verb} {LEASE}" for verb in ("get", "patch")),
]
MUST_NOT = [
    *(f"{verb} pods" for verb in ("create", "patch", "update", "deletecollection")),
    *("create pods/exec", "create pods/eviction", "get pods/log"),
    *(f"{verb} deployments.apps" for verb in ("create", "patch", "update", "delete")),
    *(f"{verb} secrets" for verb in ("get", "list", "watch")),
    *(f"{verb} configmaps" for verb in ("get", "list")),
    *(f"{verb} leases.coordination.k8s.io/another" for verb in ("get", "patch", "delete")),
    *("get nodes", "list namespaces", "create rolebindings.rbac.authorization.k8s.io", "create serviceaccounts/token"),
]
ALLOWED = "/api/v1/namespaces/{namespace}/pods"
# Asked for real: what is refused is refused before it is looked at whether there is such a thing.
FORBIDDEN = [
    "POST /api/v1/namespaces/{namespace}/pods",
    "PATCH /api/v1/namespaces/{namespace}/pods/one",
    "DELETE /api/v1/namespaces/{namespace}/pods",
    "GET /api/v1/namespaces/{namespace}/pods/one/log",
    "POST /api/v1/namespaces/{namespace}/pods/one/exec?command=id",
    "GET /api/v1/namespaces/{namespace}/secrets",
    "GET /api/v1/namespaces/{namespace}/configmaps",
    "POST /apis/apps/v1/namespaces/{namespace}/deployments",
    "PATCH /apis/apps/v1/namespaces/{namespace}/deployments/fleet-rolloutfleet-worker",
    "DELETE /apis/apps/v1/namespaces/{namespace}/deployments/fleet-rolloutfleet-worker",
    "PATCH /apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/another",
    "DELETE /apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/fleet-rolloutfleet-operator",
    "POST /api/v1/namespaces/{namespace}/serviceaccounts/default/token",
    "POST /apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings",
    "GET /api/v1/namespaces/default/pods",
    "GET /api/v1/namespaces",
    "GET /api/v1/nodes",
]
TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount/token"


async def allowed(release: Release, account: str, asked: Sequence[str], namespace: str = "") -> set[str]:
    """Which of these the API server would let a service account do."""
    groups = ["system:authenticated", "system:serviceaccounts", f"system:serviceaccounts:{release.namespace}"]
    who = {"user": f"system:serviceaccount:{release.namespace}:{account}", "groups": groups}
    kind = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview"}
    attributes = [{"resourceAttributes": attributes_of(what, namespace or release.namespace)} for what in asked]
    reviews: Json = {"apiVersion": "v1", "kind": "List", "items": [kind | {"spec": who | each} for each in attributes]}
    # One line a review, in the order asked.
    line = "jsonpath={.status.allowed}{'\\n'}"
    said = (await kubectl("create", "-f", "-", "-o", line, stdin=json.dumps(reviews))).split()
    return {what for what, answer in zip(asked, said, strict=True) if answer == "true"}


def attributes_of(what: str, namespace: str) -> Json:
    """Of `<verb> <resource>.<group>/<subresource, of a Lease its name>`."""
    verb, thing = what.split()
    kind, _, last = thing.partition("/")
    resource, _, group = kind.partition(".")
    names = {"name": last} if resource == "leases" else {"subresource": last}
    return {"namespace": namespace, "verb": verb, "group": group, "resource": resource} | names


@pytest.mark.slow
async def test_the_operator_may_do_what_it_must_and_nothing_else(release: Release, job: Job) -> None:
    await release.install({"worker": {"replicas": 0}})
    account = f"{release.base}-operator"
    assert await allowed(release, account, [*MUST, *MUST_NOT]) == set(MUST)
    assert await allowed(release, account, MUST, "default") == set()


async def test_what_the_operators_token_may_not_do_is_answered_403(release: Release, job: Job) -> None:
    await release.install({"worker": {"replicas": 0}})
    ask = await client_of(release, f"{release.base}-operator")
    assert await ask("GET", ALLOWED.format(namespace=release.namespace)) == 200
    answers = {what: await ask(*what.format(namespace=release.namespace).split()) for what in FORBIDDEN}
    assert {what: code for what, code in answers.items() if code != 403} == {}


async def test_workers_and_the_api_carry_no_token_and_their_account_may_do_nothing(release: Release, job: Job) -> None:
    await release.install({"worker": {"replicas": 1}, "api": {"enabled": True}})
    for component in ("worker", "api"):
        (pod,) = await release.live(component)
        volumes = [name for volume in pod["spec"]["volumes"] for name in volume if name == "projected"]
        assert volumes == [], component
        inside = ("exec", "-n", release.namespace, name_of(pod), "-c", pod["spec"]["containers"][0]["name"], "--")
        with pytest.raises(CommandFailed, match="No such file"):
            await kubectl(*inside, "ls", TOKEN)
        ask = await client_of(release, pod["spec"]["serviceAccountName"])
        asked = [f"GET {ALLOWED}", *FORBIDDEN]
        answers = {what: await ask(*what.format(namespace=release.namespace).split()) for what in asked}
        assert {what: code for what, code in answers.items() if code != 403} == {}, component


async def client_of(release: Release, account: str) -> Callable[[str, str], Awaitable[int]]:
    """A function (method, path) -> status, of requests as this service account."""
    config = await of_account(release, account)
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    trust = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
    headers = {"Authorization": f"Bearer {user['token']}", "Content-Type": "application/json"}

    def status(method: str, path: str) -> int:
        body = None if method == "GET" else b"{}"
        request = urllib.request.Request(f"{cluster['server']}{path}", body, headers, method=method)
        try:
            with urllib.request.urlopen(request, context=trust, timeout=30) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            return error.code

    return lambda method, path: asyncio.to_thread(status, method, path)


async def of_account(release: Release, account: str) -> Json:
    """A kubeconfig with the rights of a service account."""
    config: Json = json.loads(await kubectl("config", "view", "--minify", "--raw", "--flatten", "-o", "json"))
    token = (await kubectl("create", "token", account, "-n", release.namespace)).strip()
    config["users"] = [{"name": each["name"], "user": {"token": token}} for each in config["users"]]
    return config


async def test_a_restricted_namespace_admits_every_pod_but_engines_with_an_exception(
    release: Release, job: Job
) -> None:
    enforced = "pod-security.kubernetes.io/enforce=restricted"
    await kubectl("label", "namespace", release.namespace, enforced)
    await release.install({"worker": {"replicas": 1}, "api": {"enabled": True}})
    await release.workers_ready(1)
    await _dry_run(release, {"engine": {"mode": "sidecar", "model": "some/model"}})
    privileged = {"engine": {"mode": "sidecar", "model": "some/model"}, "worker": {"pod": {"hostIPC": True}}}
    with pytest.raises(CommandFailed, match="hostIPC"):
        await _dry_run(release, privileged)


async def _dry_run(release: Release, over: Json) -> None:
    """The worker's pod by itself, as the namespace's rules see it."""
    values = values_of(release.run) | {"worker": over.get("worker", {})} | {"engine": over["engine"]}
    rendered = await release.helm("template", release.name, str(CHART), "--values", "-", stdin=json.dumps(values))
    found: list[Json] = [each for each in yaml.safe_load_all(rendered) if each]
    (worker,) = [
        each for each in found if each["kind"] == "Deployment" and each["metadata"]["name"] == release.deployment
    ]
    template: Json = worker["spec"]["template"]
    metadata = template["metadata"] | {"name": "tried", "namespace": release.namespace}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
    await kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(pod))


async def test_a_disruption_budget_lets_one_worker_go_at_a_time(release: Release, job: Job) -> None:
    await release.install({"worker": {"replicas": 3, "pdb": {"enabled": True, "maxUnavailable": 1}}})
    first, second, _ = await release.workers_ready(3)
    await _evict(release, first)
    with pytest.raises(CommandFailed, match="disruption budget"):
        await _evict(release, second)


async def _evict(release: Release, pod: Json) -> None:
    name = name_of(pod)
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": release.namespace},
    }
    path = f"/api/v1/namespaces/{release.namespace}/pods/{name}/eviction"
    await kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(eviction))
