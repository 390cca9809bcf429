"""Rules that every rendered object keeps. Each answers with what breaks it, a line each.

An exception is listed here with its reason, and nowhere else: what is no longer needed fails a test.
"""

import re
from collections.abc import Callable, Iterator
from itertools import combinations

from tests.helm.pods import COMPONENT, Container, Map, PodOf, containers_of, listed, pods_of, quantity, selects
from tests.helm.render import Object, named

type Rule = Callable[[list[Object]], Iterator[str]]

WRITES = "SGLang and its libraries write beside themselves"
PART = "only the first pod of an engine serves its API; LeaderWorkerSet replaces the whole of it"
EXPLICIT = "an explicit value, for the interconnect"
ONLY_WAY = "SGLang takes its keys in no other way"
EXCEPTIONS = {
    "worker/engine: root file system is writable": WRITES,
    "engine/engine: root file system is writable": WRITES,
    "worker/engine: no readinessProbe": "the pod is ready when its worker says so; /ready is 503 during weight updates",
    "engine/engine: no startupProbe": PART,
    "engine/engine: no livenessProbe": PART,
    "engine/engine: no readinessProbe": PART,
    "worker: hostNetwork": EXPLICIT,
    "worker: hostIPC": EXPLICIT,
    "engine: hostNetwork": EXPLICIT,
    "engine: hostIPC": EXPLICIT,
    "worker: hostPath models": "an explicit value: modelCache.type hostPath",
    "engine: hostPath models": "an explicit value: modelCache.type hostPath",
    "worker/engine: $(ENGINE_API_KEY) is an argument": ONLY_WAY,
    "engine/engine: $(ENGINE_API_KEY) is an argument": ONLY_WAY,
}
SELECTED_BY = {"app.kubernetes.io/name", "app.kubernetes.io/instance", COMPONENT, "rolloutfleet/pool"}
SECRET = re.compile(r"PASSWORD|TOKEN$|KEY$|AUTH$|REDIS_URL")
OPERATOR = "operator"
DNS_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


def is_restricted(objects: list[Object]) -> Iterator[str]:
    """The restricted pod security standard, and a read-only root."""
    for pod in pods_of(objects):
        for name in ("hostNetwork", "hostPID", "hostIPC"):
            if pod.spec.get(name):
                yield f"{pod.component}: {name}"
        for volume in listed(pod.spec, "volumes"):
            if "hostPath" in volume:
                yield f"{pod.component}: hostPath {volume['name']}"
        security = pod.spec["securityContext"]
        if security.get("seccompProfile") != {"type": "RuntimeDefault"} or security.get("runAsNonRoot") is not True:
            yield f"{pod.name}: no seccompProfile, or not non-root"
        for container in pod.containers():
            yield from _container_is_restricted(container)


def _container_is_restricted(container: Container) -> Iterator[str]:
    security = container.spec.get("securityContext", {})
    if security.get("allowPrivilegeEscalation") is not False:
        yield f"{container.name}: allowPrivilegeEscalation"
    if security.get("capabilities") != {"drop": ["ALL"]}:
        yield f"{container.name}: capabilities"
    if security.get("privileged") or security.get("runAsUser") == 0 or security.get("runAsNonRoot") is False:
        yield f"{container.name}: root or privileged"
    if security.get("readOnlyRootFilesystem") is not True:
        yield f"{container.name}: root file system is writable"


def has_probes(objects: list[Object]) -> Iterator[str]:
    """All three on what runs for good; each with time enough for a busy node."""
    for container in containers_of(objects):
        if not container.pod.runs_on or container.kind == "init":
            continue
        for name in ("startupProbe", "livenessProbe", "readinessProbe"):
            probe = container.spec.get(name)
            if probe is None:
                yield f"{container.name}: no {name}"
            elif probe.get("timeoutSeconds", 1) < 5:
                yield f"{container.name}: {name} has less than 5 s"


def has_sound_selectors(objects: list[Object]) -> Iterator[str]:
    """Nothing in them that a user or a version can change; each finds its own pods and nobody else's."""
    pods = pods_of(objects)
    owners = {named(one): one["spec"]["selector"] for one in objects if one["kind"] in ("Deployment", "StatefulSet")}
    for pod in pods:
        selector = owners.get(pod.name)
        if selector is None:
            continue
        if not SELECTED_BY.issuperset(selector["matchLabels"]) or not selects(selector, pod.labels):
            yield f"{pod.name}: selector {selector}"
        others = [other.name for other in pods if other is not pod and selects(selector, other.labels)]
        if others:
            yield f"{pod.name} also selects {', '.join(others)}"
    for one in objects:
        yield from _selects_something(one, pods)


def _selects_something(one: Object, pods: list[PodOf]) -> Iterator[str]:
    spec = one.get("spec", {})
    match one["kind"]:
        case "Service":
            found = [pod for pod in pods if pod.runs_on and spec["selector"].items() <= pod.labels.items()]
            ports = {port["name"] for pod in found for each in pod.containers() for port in listed(each.spec, "ports")}
            if missing := {port["targetPort"] for port in spec["ports"]} - ports:
                yield f"{named(one)}: no pod has the ports {missing}"
        case "PodDisruptionBudget" | "PodMonitor":
            if not any(selects(spec["selector"], pod.labels) for pod in pods):
                yield f"{named(one)} selects nothing"
        case "NetworkPolicy":
            if not any(selects(spec["podSelector"], pod.labels) for pod in pods):
                yield f"{named(one)} selects nothing"
        case _:
            return


def keeps_secrets(objects: list[Object]) -> Iterator[str]:
    """By reference only; no token of the API server but where it is used."""
    for one in objects:
        if one["kind"] == "Secret":
            yield f"{named(one)} is rendered"
    for pod in pods_of(objects):
        mounts = pod.spec.get("automountServiceAccountToken") is not False
        if mounts != pod.spec.get("serviceAccountName", "").endswith(f"-{OPERATOR}"):
            yield f"{pod.name}: automountServiceAccountToken"
        for container in pod.containers():
            yield from _keeps_secrets(container)


def _keeps_secrets(container: Container) -> Iterator[str]:
    for name, variable in container.env.items():
        value = variable.get("value")
        if value is not None and SECRET.search(name) and "$(" not in value:
            yield f"{container.name}: {name} is in the open"
    from_secrets = {name for name, one in container.env.items() if "secretKeyRef" in one.get("valueFrom", {})}
    for argument in container.arguments:
        for name in re.findall(r"\$\((\w+)\)", argument):
            if name in from_secrets:
                yield f"{container.name}: $({name}) is an argument"


def has_resources(objects: list[Object]) -> Iterator[str]:
    """Requests of CPU and memory, a limit of memory; none of CPU, which only throttles."""
    for container in containers_of(objects):
        given: Map = container.spec.get("resources", {})
        requests, limits = given.get("requests", {}), given.get("limits", {})
        if not {"cpu", "memory"} <= requests.keys() or "memory" not in limits or "cpu" in limits:
            yield f"{container.name}: resources {given}"
        elif quantity(requests["memory"]) > quantity(limits["memory"]):
            yield f"{container.name}: asks for more memory than its limit"


def has_sound_volumes(objects: list[Object]) -> Iterator[str]:
    """Each mount has its volume, each volume is mounted, nothing grows without a bound, shared memory fits."""
    for pod in pods_of(objects):
        volumes = {volume["name"]: volume for volume in listed(pod.spec, "volumes")}
        claimed = {claim["metadata"]["name"] for claim in listed(pod.owner["spec"], "volumeClaimTemplates")}
        mounted = {mount["name"] for one in pod.containers() for mount in listed(one.spec, "volumeMounts")}
        if mounted != volumes.keys() | claimed:
            yield f"{pod.name}: mounts {sorted(mounted)}, volumes {sorted(volumes.keys() | claimed)}"
        for name, volume in volumes.items():
            if "emptyDir" in volume and not volume["emptyDir"].get("sizeLimit"):
                yield f"{pod.name}: {name} has no sizeLimit"
        for container in pod.containers():
            if any(mount["mountPath"] == "/dev/shm" for mount in listed(container.spec, "volumeMounts")):
                limit = quantity(container.spec["resources"]["limits"]["memory"])
                if quantity(volumes["shm"]["emptyDir"]["sizeLimit"]) >= limit:
                    yield f"{container.name}: /dev/shm is not below the memory limit"


def has_plain_environment(objects: list[Object]) -> Iterator[str]:
    """No variable twice: the last one would win, silently."""
    for container in containers_of(objects):
        names = [one["name"] for one in listed(container.spec, "env")]
        if doubled := {name for name in names if names.count(name) > 1}:
            yield f"{container.name}: {sorted(doubled)} twice"


def has_names_of_its_own(objects: list[Object]) -> Iterator[str]:
    """Labels of DNS, short enough for what Kubernetes appends, and each once."""
    for one in objects:
        if not DNS_LABEL.fullmatch(one["metadata"]["name"]) or len(one["metadata"]["name"]) > 56:
            yield f"{named(one)} is no name, or too long"
    for first, second in combinations(sorted(named(one) for one in objects), 2):
        if first == second:
            yield f"{first} twice"


RULES: tuple[Rule, ...] = (
    is_restricted,
    has_probes,
    has_sound_selectors,
    keeps_secrets,
    has_resources,
    has_sound_volumes,
    has_plain_environment,
    has_names_of_its_own,
)
