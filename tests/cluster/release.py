"""One installation of the chart: what a test does to it by helm, and what it sees of it."""

import asyncio
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from deploy.operator.objects import DRAIN, REPLICAS
from rolloutfleet.pods import FleetReport, read_reports
from tests.cluster.jobs import Job
from tests.cluster.kube import (
    CommandFailed,
    Json,
    apply,
    command,
    get,
    image,
    is_going,
    is_ready,
    kubectl,
    name_of,
    until,
)
from tests.helm_tools import Generation, helm

CHART = Path(__file__).parents[2] / "helm"
READY_SECONDS = 480  # on a machine that many share
SECRET = "broker"
LABEL = "app.kubernetes.io"
SLOTS = 8  # two groups of four at a time


def values_of(run: str) -> Json:
    """Small pods with simulated engines, on a broker of the tests', without what a test doesn't ask for."""
    repository, _, tag = image().rpartition(":")
    small = {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": "1Gi"}}
    return {
        "image": {"repository": repository, "tag": tag},
        "redis": {"mode": "external", "external": {"existingSecret": SECRET}},
        "run": {"name": run, "configure": "never"},
        "worker": {"replicas": 2, "resources": small},
        "engine": {"mode": "simulated", "args": [f"--slots={SLOTS}", "--speed=20", "--half=0"]},
        "drain": {"seconds": 20},
        "operator": {"replicas": 1, "resources": small},
        "api": {"enabled": False, "resources": small},
        "scaling": {"cooldownSeconds": 5},
    }


def merged(base: Json, over: Json) -> Json:
    """`over` on top of `base`, map by map."""
    both = dict(base)
    for name, value in over.items():
        old = both.get(name)
        both[name] = (
            merged(cast(Json, old), cast(Json, value)) if isinstance(old, dict) and isinstance(value, dict) else value
        )
    return both


@dataclass(slots=True)
class Release:
    namespace: str
    run: str
    name: str = "fleet"
    values: Json = field(default_factory=dict[str, Any])

    @property
    def base(self) -> str:
        """First part of the names of its objects."""
        return f"{self.name}-rolloutfleet"

    @property
    def deployment(self) -> str:
        return f"{self.base}-worker"

    # helm

    async def install(self, over: Json | None = None, *, wait: bool = True, generation: Generation = 4) -> None:
        self.values = merged(values_of(self.run), over or {})
        await self._helm("install", wait, generation)
        if wait:
            await self.workers_ready()

    async def upgrade(self, over: Json, *options: str, wait: bool = True, generation: Generation = 4) -> None:
        self.values = merged(self.values, over)
        await self._helm("upgrade", wait, generation, *options)

    async def rollback(self, revision: int, *options: str, generation: Generation = 4) -> None:
        await self.helm("rollback", self.name, str(revision), "--wait", "--timeout=8m", *options, generation=generation)

    async def uninstall(self) -> None:
        await self.helm("uninstall", self.name, "--wait", "--timeout=6m")

    async def helm(self, *words: str, stdin: str = "", generation: Generation = 4) -> str:
        program = await asyncio.to_thread(helm, generation)
        return await command(str(program), "--namespace", self.namespace, *words, stdin=stdin, seconds=600)

    async def _helm(self, verb: str, wait: bool, generation: Generation, *options: str) -> None:
        waits = ["--wait", "--timeout=8m"] if wait else []
        given = json.dumps(self.values)
        await self.helm(
            verb, self.name, str(CHART), "--values", "-", *waits, *options, stdin=given, generation=generation
        )

    # What there is

    async def pods(self, component: str = "worker") -> list[Json]:
        selector = f"{LABEL}/instance={self.name},{LABEL}/component={component}"
        return await get("pods", "-n", self.namespace, "-l", selector)

    async def live(self, component: str = "worker") -> list[Json]:
        """Pods that nobody has deleted, and that have not ended."""
        return [pod for pod in await self.pods(component) if not is_going(pod)]

    async def workers_ready(self, count: int | None = None, seconds: float = READY_SECONDS) -> list[Json]:
        """The workers, once so many and no others are there and ready."""
        wanted = self.values["worker"]["replicas"] if count is None else count

        async def all_ready() -> list[Json]:
            found = await self.pods()
            good = [pod for pod in found if is_ready(pod) and not is_going(pod)]
            return good if len(good) == len(found) == wanted else []

        if wanted == 0:
            await until(lambda: self._has_no_workers(), "no worker is left", seconds)
            return []
        return await until(all_ready, f"{wanted} workers of {self.namespace}/{self.name} are ready", seconds)

    async def _has_no_workers(self) -> bool:
        return not await self.pods()

    async def reports(self, job: Job) -> list[FleetReport]:
        """What its operator says of its pods, as it lies in Redis."""
        _, found = await read_reports(job.broker.calls)
        return [report for report in found if report.fleet == f"{self.namespace}/{self.name}"]

    async def replicas(self) -> int:
        (deployment,) = await get("deployment", "-n", self.namespace, self.deployment)
        return deployment["spec"]["replicas"]

    # What a test does to it

    async def kill(self, pod: Json) -> None:
        """At once and without asking the kubelet, as after the loss of a node."""
        force = ("--grace-period=0", "--force", "--wait=false")
        await kubectl("delete", "pod", name_of(pod), "-n", self.namespace, *force)

    async def drain(self, pod: Json) -> None:
        """A person asks the operator to drain this worker."""
        await kubectl("annotate", "pod", name_of(pod), "-n", self.namespace, f"{DRAIN}=by a test")

    async def scale(self, count: int) -> None:
        """A person asks the operator for another number than `worker.replicas`."""
        wish = f"{REPLICAS}={count} instead of {self.values['worker']['replicas']}"
        await kubectl("annotate", "deployment", self.deployment, "-n", self.namespace, wish, "--overwrite")


async def make_namespace(name: str, label: str, broker_url: str = "", **labels: str) -> None:
    """With the secret that says where the tests' broker is, if there is one yet."""
    metadata: Json = {"name": name, "labels": {"rolloutfleet-tests": label} | labels}
    await apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    if broker_url:
        await make_secret(name, SECRET, url=broker_url)
    await until(lambda: get("serviceaccount", "default", "-n", name), f"pods can be made in {name}")


async def make_secret(namespace: str, name: str, **content: str) -> None:
    metadata = {"name": name, "namespace": namespace}
    await apply({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": content})


async def describe(namespace: str) -> str:
    """What one wants to know when a test has failed."""
    looks = [
        ("get", "pods,deployments", "-o", "wide"),
        ("get", "events", "--sort-by=.lastTimestamp"),
        ("logs", "-l", f"{LABEL}/component=operator", "--tail=80", "--prefix"),
        ("logs", "-l", f"{LABEL}/component=worker", "-c", "worker", "--tail=25", "--prefix"),
    ]
    return "\n".join([await _said("-n", namespace, *words) for words in looks])


async def _said(*words: str) -> str:
    try:
        return f"--- kubectl {' '.join(words)}\n{await kubectl(*words)}"
    except CommandFailed as error:
        return str(error)
