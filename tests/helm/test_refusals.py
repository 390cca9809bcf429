"""Values that can't work fail when they are rendered, with a sentence that names the value and the mend."""

from typing import Any

import pytest

from tests.helm.render import NEWEST, Cluster, RenderError, changed, ci_values, render
from tests.helm_tools import Generation

type Map = dict[str, Any]


def refusal(values: Map, cluster: Cluster = NEWEST) -> str:
    with pytest.raises(RenderError) as caught:
        render(values, cluster)
    return str(caught.value)


# What is wrong -> the value that is named, and a piece of the mend.
SENTENCES: dict[str, tuple[Map, str, str]] = {
    "a scaler beside the owner": (
        changed(
            "simulated",
            extraObjects=[
                {
                    "apiVersion": "autoscaling/v2",
                    "kind": "HorizontalPodAutoscaler",
                    "spec": {"scaleTargetRef": {"name": "fleet-rolloutfleet-worker"}},
                }
            ],
        ),
        "two owners",
        "set scaling.owner to keda and leave the object out",
    ),
    "keda without an operator": (
        changed("keda", operator__enabled=False),
        "scaling.owner is keda and operator.enabled is false",
        "enable the operator",
    ),
    "owner operator without an operator": (
        changed("operator", operator__enabled=False),
        "scaling.owner is operator and operator.enabled is false",
        "set scaling.owner to fixed",
    ),
    "keda without an API": (changed("keda", api__enabled=False), "api.enabled is false", "so enable it"),
    "keda for two pools": (
        changed("pools", scaling__owner="keda"),
        "there are 2 pools",
        "set scaling.owner to operator or fixed",
    ),
    "fewest above most": (
        changed("operator", scaling__minWorkers=9, scaling__maxWorkers=8),
        "scaling.minWorkers (9) is more than scaling.maxWorkers (8)",
        "lower it",
    ),
    "grace shorter than drain": (
        changed("simulated", drain={"seconds": 600, "graceSeconds": 600}),
        "drain.graceSeconds (600) is shorter than drain.seconds + 75 (675)",
        "leave it at 0, or raise it",
    ),
    "a claim without a storage class": (
        changed("simulated", redis__persistence={"type": "pvc"}),
        "storageClass is empty",
        "name a class (kubectl get storageclass)",
    ),
    "an existing claim without a name": (
        changed("simulated", redis__persistence={"type": "existingClaim"}),
        "existingClaim is empty",
        "name the claim",
    ),
    "a volume smaller than memory": (
        changed("sidecar", redis__persistence__size="1Gi"),
        "redis.persistence.size (1Gi) is less than redis.memory (4Gi)",
        "at least three times the memory",
    ),
    "no password": (
        changed("simulated", redis__existingSecret=""),
        "redis.existingSecret is empty",
        "kubectl create secret generic",
    ),
    "no URL": (
        changed("keda", redis__external__existingSecret=""),
        "redis.external.existingSecret is empty",
        "--from-literal=url=",
    ),
    "shared memory above the limit": (
        changed("sidecar", engine__shmSize="128Gi"),
        "engine.shmSize (128Gi) is not below engine.resources.limits.memory (128Gi)",
        "lower shmSize or raise the limit",
    ),
    "shared memory of a pool above its limit": (
        changed("pools", pools__small__engine__shmSize="1Ti"),
        "pools.small: engine.shmSize (1Ti)",
        "lower shmSize",
    ),
    "more memory asked than allowed": (
        changed("sidecar", worker__resources={"requests": {"memory": "9Gi"}}),
        "worker.resources asks for 9Gi of memory, more than its limit of 8Gi",
        "lower requests.memory",
    ),
    "no model": (changed("operator", engine__model=""), "engine.model is empty", "engine.mode to simulated"),
    "external without a URL": (
        changed("simulated", engine__mode="external"),
        "engine.external.url is empty",
        "name the server's URL",
    ),
    "two workers for one external server": (
        changed("external", worker={"replicas": 2}),
        "worker.replicas is 2: one server has one worker",
        "make a pool for each server",
    ),
    "simulated engines of several pods": (
        changed("simulated", engine__nodes=2),
        "engine.nodes is 2 and engine.mode is simulated",
        "set nodes to 1",
    ),
    "a cache without a claim": (
        changed("operator", modelCache={"type": "pvc"}),
        "modelCache.type is pvc and existingClaim is empty",
        "name a claim",
    ),
    "a cache without a folder": (
        changed("operator", modelCache={"type": "hostPath"}),
        "hostPath is empty",
        "name the folder",
    ),
    "a download to nowhere": (
        changed("operator", modelCache={"preload": {"enabled": True, "source": "Qwen/Qwen3-1.7B"}}),
        "modelCache.preload is enabled and modelCache.type is emptyDir",
        "set type to pvc",
    ),
    "a download beside the cache": (
        changed("sidecar", engine__model="Qwen/Qwen3-8B"),
        "is not below modelCache.mountPath",
        "set it to /models/NAME",
    ),
    "a download of nothing": (
        changed("sidecar", modelCache__preload__source=""),
        "its source is empty",
        "name the model",
    ),
}


@pytest.mark.parametrize("wrong", SENTENCES)
def test_values_that_cannot_work_together_are_refused_with_the_mend(wrong: str):
    values, fact, mend = SENTENCES[wrong]
    said = refusal(values)
    assert fact in said
    assert mend in said


@pytest.mark.parametrize(
    ("mode", "api"),
    [
        ("leaderworkerset", "leaderworkerset.x-k8s.io/v1"),
        ("keda", "keda.sh/v1alpha1"),
        ("operator", "monitoring.coreos.com/v1"),
    ],
)
def test_what_the_cluster_does_not_have_is_refused_with_the_mend(mode: str, api: str):
    said = refusal(ci_values(mode), Cluster(apis=()))
    assert f"this cluster has no {api}" in said
    assert f"--api-versions {api}" in said


def test_devices_by_claim_need_a_kubernetes_that_has_them():
    assert "needs Kubernetes 1.34" in refusal(ci_values("devices"), Cluster("1.33.0"))


def test_all_that_is_wrong_is_said_at_once():
    said = refusal({})
    assert said.count("\n- ") == 3


@pytest.mark.parametrize("generation", [3, 4])
@pytest.mark.parametrize(
    ("values", "named"),
    [
        (changed("simulated", worker__replica=3), "replica"),
        (changed("simulated", worker__settings={"max_tokens": 100}), "max_tokens"),
        (changed("simulated", run__config={"sample_concurency": 512}), "sample_concurency"),
        (changed("simulated", api__token={"value": "secret"}), "value"),
        (changed("simulated", worker__settings={"temperature": -1}), "temperature"),
        (changed("simulated", redis__password="secret"), "password"),
        (changed("simulated", scaling__owner="hpa"), "owner"),
        (changed("simulated", pools={"a": {"worker": {"replica": 1}}}), "replica"),
        (changed("simulated", image__digest="latest"), "digest"),
    ],
)
def test_a_misspelt_or_impossible_value_is_an_error_that_names_it(values: Map, named: str, generation: Generation):
    said = refusal(values, Cluster(generation=generation))
    assert "schema" in said
    assert named in said
