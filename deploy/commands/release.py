"""One release of the chart, as a person's kubeconfig shows it: its operator's settings, its pools and its pods.

Invariant: nothing is guessed: what the operator is told stands in its Deployment, who leads in its Lease, and what
workers hold in Redis; where one of these can't be read, the answer says so.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from deploy.operator.broker_view import BrokerView, read_view
from deploy.operator.cluster import Cluster
from deploy.operator.fleet import Fleet
from deploy.operator.objects import Deployment, Json, Kind, Lease, Pod, deployment_of
from deploy.operator.settings import COMPONENT, PREFIX, Owner
from deploy.operator.wanted import asked_for
from rolloutfleet.broker import Broker
from rolloutfleet.pods import FleetKeys
from rolloutfleet.redis import connect

NAME = "app.kubernetes.io/name=rolloutfleet"
_INSTANCE = "app.kubernetes.io/instance"


class NoSuchRelease(Exception):
    """The message says which there are, and the mend."""


class PeoplesCluster(Cluster, Protocol):
    """What a person may do besides."""

    async def annotate_pod(self, name: str, annotations: Json) -> Pod: ...

    async def annotate_deployment(self, name: str, annotations: Json, kind: Kind = ...) -> Deployment: ...

    async def list_deployments(self, selector: str) -> list[Json]: ...

    async def pod_logs(self, name: str, container: str, lines: int, previous: bool) -> str: ...


@dataclass(frozen=True, slots=True)
class Release:
    """What was found. `view`: None where no Redis was given. `lease`: None where there is no operator."""

    name: str
    namespace: str
    settings: Mapping[str, str]  # of the operator, without the prefix; empty: there is no operator
    deployments: Mapping[str, Deployment]
    pods: Mapping[str, Pod]
    lease: Lease | None
    view: BrokerView | None

    @property
    def fleet(self) -> Fleet:
        return Fleet(self.pods, self.deployments, self.view)

    @property
    def has_operator(self) -> bool:
        return bool(self.settings) and self.lease is not None and bool(self.lease.holder)

    @property
    def owner(self) -> Owner | None:
        word = self.settings.get("SCALING_OWNER", "")
        return Owner(word) if word in set(Owner) else None

    def configured(self, pool: str) -> int | None:
        """worker.replicas of a pool; None: the operator doesn't say."""
        pools = self.settings.get("DEPLOYMENTS", "").split(",")
        numbers = self.settings.get("WORKER_REPLICAS", "").split(",")
        if pool not in pools:
            return None
        text = numbers[0] if len(numbers) == 1 else numbers[pools.index(pool)]
        return int(text) if text.isdecimal() else None

    def wanted(self, pool: Deployment) -> int | None:
        """Replicas that the operator works towards; None: it doesn't say, or not here."""
        configured = self.configured(pool.name) if self.owner is Owner.FIXED else None
        asked = None if configured is None else asked_for(pool, configured)
        return configured if asked is None else asked

    def pod(self, name: str) -> Pod:
        """Errors: NoSuchRelease, naming those that are there."""
        for pod in self.pods.values():
            if pod.name == name:
                return pod
        known = ", ".join(sorted(pod.name for pod in self.pods.values())) or "none"
        raise NoSuchRelease(f"release {self.name} has no worker pod {name!r}; there are: {known}")


async def find_name(cluster: PeoplesCluster, namespace: str, given: str | None) -> str:
    """The release, if it is given or the only one. Errors: NoSuchRelease, ClusterError."""
    found = await cluster.list_deployments(NAME)
    names = sorted({str(one["metadata"].get("labels", {}).get(_INSTANCE, "")) for one in found} - {""})
    if given in names or (given is None and len(names) == 1):
        return given or names[0]
    there = ", ".join(names) or "none"
    if given is None and names:
        raise NoSuchRelease(f"namespace {namespace} has several releases ({there}): name one with --release")
    what = f"no release {given!r}" if given else "no release of rolloutfleet"
    raise NoSuchRelease(f"there is {what} in namespace {namespace} (releases there: {there}); is it another namespace?")


async def read_release(cluster: PeoplesCluster, namespace: str, name: str, redis_url: str | None) -> Release:
    """Errors: ClusterError, BrokerUnavailable."""
    found = await cluster.list_deployments(f"{NAME},{_INSTANCE}={name}")
    of = {component: [one for one in found if _component(one) == component] for component in ("operator", "worker")}
    settings = _settings(of["operator"])
    deployments = {one.name: one for one in map(deployment_of, of["worker"])}
    if settings.get("LEADER_WORKER_SETS"):
        _, sets = await cluster.list_pools(Kind.SET)
        deployments |= {one.name: one for one in sets}
    _, pods = await cluster.list_pods()
    lease = await cluster.get_lease(settings["LEASE_NAME"]) if "LEASE_NAME" in settings else None
    view = await _view(redis_url, settings.get("RUN", ""), f"{namespace}/{name}")
    return Release(name, namespace, settings, deployments, {pod.uid: pod for pod in pods}, lease, view)


def selector_of(name: str) -> str:
    return f"{NAME},{_INSTANCE}={name},{COMPONENT}=worker"


async def _view(redis_url: str | None, run: str, fleet: str) -> BrokerView | None:
    if not redis_url or not run:
        return None
    async with connect(redis_url, connections=4) as client:
        return await read_view(Broker(client, run, retry_seconds=5), FleetKeys(fleet))


def _component(deployment: Json) -> str:
    return str(deployment["metadata"].get("labels", {}).get(COMPONENT, ""))


def _settings(operators: Sequence[Json]) -> dict[str, str]:
    """The plain values in the operator's environment."""
    found: dict[str, str] = {}
    for one in operators:
        containers: list[dict[str, Any]] = one["spec"]["template"]["spec"]["containers"]
        for setting in containers[0].get("env", []):
            if setting["name"].startswith(PREFIX) and "value" in setting:
                found[setting["name"].removeprefix(PREFIX)] = setting["value"]
    return found
