"""The chart, rendered by a real helm. What was rendered once under the same arguments is not rendered again."""

import functools
import json
import os
import subprocess
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, cast

import yaml

from tests.helm.values import CHART
from tests.helm_tools import Generation, helm

type Object = dict[str, Any]

KUBERNETES = ("1.29.0", "1.33.0", "1.37.0")  # the oldest that the chart takes, one between, the newest
# Modes that no older Kubernetes can have.
NEEDS = {"devices": "1.34.0"}
RELEASE, NAMESPACE = "fleet", "rollouts"
# Kinds of others that the chart can render: the cluster is said to have them.
EXTRA_APIS = ("leaderworkerset.x-k8s.io/v1", "keda.sh/v1alpha1", "monitoring.coreos.com/v1")
_SECONDS = 60


class RenderError(Exception):
    """helm refused; the message is what it said."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """What helm is told of the cluster, and which helm."""

    kubernetes: str = KUBERNETES[-1]
    apis: tuple[str, ...] = EXTRA_APIS
    generation: Generation = 4


NEWEST = Cluster()


def ci_modes() -> list[str]:
    """Names of the modes that ci/ has values for."""
    return sorted(path.name.removesuffix("-values.yaml") for path in (CHART / "ci").glob("*-values.yaml"))


def combinations() -> list[tuple[str, str]]:
    """Every mode with every Kubernetes that can have it."""
    return [(mode, version) for mode in ci_modes() for version in KUBERNETES if version >= NEEDS.get(mode, "")]


def ci_values(mode: str) -> dict[str, Any]:
    return cast("dict[str, Any]", yaml.safe_load((CHART / "ci" / f"{mode}-values.yaml").read_text()))


def render(values: dict[str, Any], cluster: Cluster = NEWEST) -> list[Object]:
    """The objects, which nobody changes: others are given the same. Errors: RenderError."""
    return _parsed(render_text(values, cluster))


@functools.cache
def _parsed(text: str) -> list[Object]:
    return [one for one in yaml.load_all(text, yaml.CSafeLoader) if one]


def render_mode(mode: str, cluster: Cluster = NEWEST) -> list[Object]:
    return render(ci_values(mode), cluster)


def render_text(values: dict[str, Any], cluster: Cluster = NEWEST) -> str:
    """What `helm template` prints. Errors: RenderError."""
    answer = _rendered(json.dumps(values, ensure_ascii=False), cluster)
    if isinstance(answer, RenderError):
        raise answer
    return answer


@functools.cache
def _rendered(values: str, cluster: Cluster) -> str | RenderError:
    command = [str(helm(cluster.generation)), "template", RELEASE, str(CHART), "--namespace", NAMESPACE]
    command += ["--kube-version", cluster.kubernetes, "--values", "-"]
    command += [option for api in cluster.apis for option in ("--api-versions", api)]
    # No cluster, no plugins, no repositories of whoever runs this.
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "KUBECONFIG": "/nonexistent"}
    done = subprocess.run(command, input=values, capture_output=True, text=True, timeout=_SECONDS, env=environment)
    return done.stdout if done.returncode == 0 else RenderError(done.stderr.strip())


def changed(mode: str, **dotted: Any) -> dict[str, Any]:
    """Values of a mode with some replaced; `a__b` is a.b."""
    values = deepcopy(ci_values(mode))
    for path, value in dotted.items():
        *above, last = path.split("__")
        place: dict[str, Any] = values
        for name in above:
            place = place.setdefault(name, {})
        place[last] = value
    return values


def of_kind(objects: list[Object], *kinds: str) -> list[Object]:
    return [one for one in objects if one["kind"] in kinds]


def named(one: Object) -> str:
    return f"{one['kind']}/{one['metadata']['name']}"
