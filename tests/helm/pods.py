"""What the rendered objects say of pods, for the rules: where there are any, and what is in them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from tests.helm.render import Object, named

type Map = dict[str, Any]

COMPONENT = "app.kubernetes.io/component"


def listed(spec: Map, name: str) -> list[Map]:
    """A list of objects, also where it is not there or null."""
    return cast("list[Map]", spec.get(name) or [])


@dataclass(frozen=True, slots=True)
class Container:
    """One container of a pod. `kind` is "main", "sidecar" (starts before, ends after) or "init"."""

    pod: "PodOf"
    spec: Map
    kind: str

    @property
    def name(self) -> str:
        return f"{self.pod.component}/{self.spec['name']}"

    @property
    def env(self) -> dict[str, Map]:
        return {one["name"]: one for one in listed(self.spec, "env")}

    @property
    def arguments(self) -> list[str]:
        return [*(self.spec.get("command") or []), *(self.spec.get("args") or [])]


@dataclass(frozen=True, slots=True)
class PodOf:
    """The pod that an object makes, or is."""

    owner: Object
    metadata: Map
    spec: Map

    @property
    def labels(self) -> dict[str, str]:
        return self.metadata.get("labels", {})

    @property
    def component(self) -> str:
        return self.labels[COMPONENT]

    @property
    def name(self) -> str:
        return named(self.owner)

    @property
    def runs_on(self) -> bool:
        """It is there for good: no Job, no test."""
        return self.owner["kind"] in ("Deployment", "StatefulSet", "LeaderWorkerSet")

    def containers(self) -> Iterator[Container]:
        for spec in listed(self.spec, "initContainers"):
            yield Container(self, spec, "sidecar" if spec.get("restartPolicy") == "Always" else "init")
        for spec in listed(self.spec, "containers"):
            yield Container(self, spec, "main")


def pods_of(objects: list[Object]) -> list[PodOf]:
    return [PodOf(one, template["metadata"], template["spec"]) for one in objects for template in _templates(one)]


def containers_of(objects: list[Object]) -> list[Container]:
    return [container for pod in pods_of(objects) for container in pod.containers()]


def _templates(one: Object) -> list[Map]:
    match one["kind"]:
        case "Pod":
            return [one]
        case "Deployment" | "StatefulSet" | "Job":
            return [one["spec"]["template"]]
        case "LeaderWorkerSet":
            parts = one["spec"]["leaderWorkerTemplate"]
            return [parts["leaderTemplate"], parts["workerTemplate"]]
        case _:
            return []


def selects(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Does a label selector match? An empty one matches all."""
    wanted = cast("dict[str, str]", selector.get("matchLabels") or {})
    terms = cast("list[Map]", selector.get("matchExpressions") or [])
    return wanted.items() <= labels.items() and all(
        term["operator"] == "In" and labels.get(term["key"]) in term["values"] for term in terms
    )


def quantity(text: object) -> float:
    """Bytes, cores or pieces."""
    suffixes = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
    for suffix, factor in suffixes.items():
        if str(text).endswith(suffix):
            return float(str(text).removesuffix(suffix)) * factor
    return float(str(text))
