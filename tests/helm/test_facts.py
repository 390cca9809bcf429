"""What the chart must get right, a fact each: numbers that depend on each other, and what must never be rendered."""

import math
from copy import deepcopy
from typing import Any

import pytest
import yaml

from tests.helm.pods import containers_of, pods_of, quantity
from tests.helm.render import Object, changed, ci_modes, ci_values, named, of_kind, render, render_mode
from tests.helm.values import CHART

GIVE_BACK, ENGINE_END, SPARE = 15, 60, 900


def worker(objects: list[Object]) -> Object:
    return next(one for one in of_kind(objects, "Deployment") if "worker" in one["metadata"]["name"])


def probe(objects: list[Object], container: str, name: str) -> dict[str, Any]:
    return next(one for one in containers_of(objects) if one.name == container).spec[name]


def seconds(one: dict[str, Any]) -> int:
    return one["periodSeconds"] * one["failureThreshold"]


@pytest.mark.parametrize("mode", [mode for mode in ci_modes() if mode != "alone"])
def test_the_number_of_workers_is_in_no_revision_while_there_is_an_operator(mode: str):
    found = of_kind(render_mode(mode), "Deployment", "LeaderWorkerSet")
    workers = [one for one in found if "-worker" in one["metadata"]["name"]]
    assert [named(one) for one in workers if "replicas" in one["spec"]] == []


def test_without_an_operator_the_chart_sets_the_number_and_leaves_a_mark():
    one = worker(render_mode("alone"))
    assert (one["spec"]["replicas"], one["metadata"]["annotations"]) == (
        0,
        {"rolloutfleet/replicas-are-rendered": "true"},
    )


def test_a_set_of_engines_over_several_pods_is_the_operators_to_scale():
    objects = render_mode("leaderworkerset")
    (one,) = of_kind(objects, "LeaderWorkerSet")
    (operator,) = [found for found in containers_of(objects) if found.name == "operator/operator"]
    assert one["spec"]["leaderWorkerTemplate"]["size"] == 2
    assert operator.env["ROLLOUTFLEET_LEADER_WORKER_SETS"]["value"] == one["metadata"]["name"]
    assert operator.env["ROLLOUTFLEET_WORKER_REPLICAS"]["value"] == "3"


def test_without_an_operator_a_set_has_the_number_of_its_values():
    values = changed("leaderworkerset", operator__enabled=False)
    (one,) = of_kind(render(values), "LeaderWorkerSet")
    assert one["spec"]["replicas"] == 3


@pytest.mark.parametrize("drain", [0, 30, 600])
def test_grace_covers_the_drain_the_giving_back_and_the_end_of_the_engine(drain: int):
    one = worker(render(changed("simulated", drain__seconds=drain)))
    grace = one["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert grace == drain + GIVE_BACK + ENGINE_END


def test_a_rollout_has_time_for_grace_and_start():
    one = worker(render(changed("sidecar", drain={"seconds": 100}, engine__startupSeconds=1000)))
    assert one["spec"]["progressDeadlineSeconds"] == 100 + GIVE_BACK + ENGINE_END + 1000 + SPARE


def test_a_rollout_never_waits_for_a_gpu_that_it_holds_itself():
    one = worker(render(changed("sidecar", worker__maxUnavailable=3)))
    assert one["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 3}


@pytest.mark.parametrize("startup", [1, 605, 3600])
def test_the_start_has_the_seconds_of_its_value(startup: int):
    found = probe(render(changed("sidecar", engine__startupSeconds=startup)), "worker/engine", "startupProbe")
    assert found["failureThreshold"] == max(1, math.ceil(startup / 10))


def test_an_engine_is_not_killed_before_its_own_watchdog():
    assert seconds(probe(render_mode("sidecar"), "worker/engine", "livenessProbe")) >= 300


def test_the_engine_is_a_native_sidecar_without_a_hook_that_would_run_before_the_drain():
    (engine,) = [one for one in containers_of(render_mode("sidecar")) if one.name == "worker/engine"]
    assert (engine.kind, "lifecycle" in engine.spec) == ("sidecar", False)


def test_a_health_check_of_the_engine_is_no_generation():
    (engine,) = [one for one in containers_of(render_mode("sidecar")) if one.name == "worker/engine"]
    assert engine.env["SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION"]["value"] == "false"


def test_a_budget_of_zero_stays_zero():
    budget = next(one for one in of_kind(render_mode("operator"), "PodDisruptionBudget") if "worker" in named(one))
    assert budget["spec"]["maxUnavailable"] == 0


def test_a_false_of_a_pool_replaces_a_true():
    values = changed("pools", worker__pod__hostNetwork=True, pools__h200__worker__pod__hostNetwork=False)
    networks = {one.name: one.spec["hostNetwork"] for one in pods_of(render(values)) if one.component == "worker"}
    assert networks == {
        "Deployment/fleet-rolloutfleet-worker-h200": False,
        "Deployment/fleet-rolloutfleet-worker-small": True,
    }


def test_redis_keeps_a_part_of_its_memory_for_buffers_and_rewrites():
    objects = render(changed("simulated", redis__memory="1Gi"))
    (config,) = [one for one in of_kind(objects, "ConfigMap") if named(one).endswith("redis")]
    lines = dict(line.split(" ", 1) for line in config["data"]["redis.conf"].splitlines() if not line.startswith("#"))
    limit = next(one for one in containers_of(objects) if one.name == "redis/redis").spec["resources"]["limits"][
        "memory"
    ]
    assert int(lines["maxmemory"]) == int(0.7 * quantity(limit))
    assert (lines["maxmemory-policy"], lines["appendonly"], lines["appendfsync"]) == ("noeviction", "yes", "everysec")


def test_the_password_is_in_no_argument_and_behind_no_pipe():
    (one,) = [one for one in containers_of(render_mode("simulated")) if one.name == "redis/redis"]
    script = one.arguments[-1]
    assert script.strip().splitlines()[-1].startswith("exec valkey-server ")
    assert "$REDISCLI_AUTH" not in script.strip().splitlines()[-1]
    assert "umask 077" in script


def test_a_refused_password_fails_the_probe():
    assert probe(render_mode("simulated"), "redis/redis", "readinessProbe")["exec"]["command"] == [
        *("valkey-cli", "-e", "ping")
    ]


def test_only_redis_restarts_for_its_config_and_no_version_of_the_chart_reloads_a_model():
    annotations = {one.component: one.metadata.get("annotations", {}) for one in pods_of(render_mode("simulated"))}
    assert "checksum/config" in annotations["redis"]
    versioned = [one.name for one in pods_of(render_mode("simulated")) if one.runs_on and "helm.sh/chart" in one.labels]
    assert versioned == []
    assert "checksum/config" not in annotations["worker"]


def test_the_operator_may_only_what_it_needs():
    (role,) = of_kind(render_mode("simulated"), "Role")
    lease = ["fleet-rolloutfleet-operator"]
    rights = {
        (group, resource, verb, *rule.get("resourceNames", []))
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert rights == {
        *(("", "pods", verb) for verb in ("get", "list", "watch", "delete")),
        *(("apps", "deployments", verb) for verb in ("get", "list", "watch")),
        *(("apps", "deployments/scale", verb) for verb in ("get", "patch")),
        *(("", "events", verb) for verb in ("create", "patch")),
        ("coordination.k8s.io", "leases", "create"),
        *(("coordination.k8s.io", "leases", verb, *lease) for verb in ("get", "patch")),
    }


@pytest.mark.parametrize("mode", ci_modes())
def test_nothing_is_cluster_wide_and_nobody_else_has_a_role(mode: str):
    objects = render_mode(mode)
    assert of_kind(objects, "ClusterRole", "ClusterRoleBinding") == []
    assert {one["metadata"]["name"] for one in of_kind(objects, "Role")} <= {"fleet-rolloutfleet-operator"}


def test_keda_asks_one_number_of_the_api_and_swallows_nothing():
    (one,) = of_kind(render_mode("keda"), "ScaledObject")
    (trigger,) = one["spec"]["triggers"]
    assert (trigger["metricType"], trigger["metadata"]["targetValue"]) == ("AverageValue", "1")
    assert trigger["metadata"]["url"].endswith("/desired_workers?run=fleet")
    assert one["spec"]["fallback"]["behavior"] == "currentReplicas"
    behavior = one["spec"]["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    assert {way: behavior[way]["tolerance"] for way in behavior} == {"scaleUp": "0", "scaleDown": "0"}


def test_engines_are_reached_from_nowhere():
    policy = next(one for one in of_kind(render_mode("simulated"), "NetworkPolicy") if named(one).endswith("worker"))
    assert policy["spec"]["ingress"] == [{"ports": [{"port": 8081}]}]


def test_what_a_job_does_is_in_its_name():
    first, second = (named(of_kind(render(changed("simulated", run__config={"n": n})), "Job")[0]) for n in (4, 8))
    assert first != second


def test_an_upgrade_leaves_what_a_trainer_has_set_unless_asked():
    asks = {word: changed("simulated", run__configure=word) for word in ("missing", "always")}
    found = {
        word: "--only-missing" in one.arguments
        for word, values in asks.items()
        for one in containers_of(render(values))
        if one.name == "configure/configure"
    }
    assert found == {"missing": True, "always": False}


def test_alerts_are_those_of_the_file():
    (rule,) = of_kind(render_mode("operator"), "PrometheusRule")
    assert rule["spec"] == yaml.safe_load((CHART / "files" / "alerts.yaml").read_text())


def test_dashboards_carry_the_label_by_which_they_are_found():
    boards = [one for one in of_kind(render_mode("operator"), "ConfigMap") if "dashboard" in named(one)]
    assert [one["metadata"]["labels"]["grafana_dashboard"] for one in boards] == ["1", "1"]


def test_an_extra_object_is_left_as_it_is():
    (one,) = [one for one in render_mode("alone") if named(one) == "ConfigMap/rewards"]
    assert one == ci_values("alone")["extraObjects"][0]


def test_labels_that_find_a_pod_cannot_be_replaced():
    labels = {"app.kubernetes.io/component": "mine", "team": "post-training"}
    values = deepcopy(ci_values("simulated"))
    values["worker"]["pod"] = {"labels": labels}
    found = worker(render(values))["spec"]["template"]["metadata"]["labels"]
    assert (found["app.kubernetes.io/component"], found["team"]) == ("worker", "post-training")
