"""The commands for people: what they say, what they ask the operator for, and how they fail."""

import argparse
import json
from collections.abc import Sequence

import pytest

from deploy.commands.cli import main
from deploy.commands.release import PeoplesCluster
from deploy.operator.cluster import ClusterUnavailable
from deploy.operator.objects import DRAIN, REPLICAS, RESTART, Kind
from tests.fakes.cluster import FakeCluster

POOL = "rollouts-worker"
LABELS = {"app.kubernetes.io/name": "rolloutfleet", "app.kubernetes.io/instance": "rollouts"}
SETTINGS = {
    "ROLLOUTFLEET_LEASE_NAME": "lease",
    "ROLLOUTFLEET_RUN": "math",
    "ROLLOUTFLEET_SCALING_OWNER": "fixed",
    "ROLLOUTFLEET_DEPLOYMENTS": POOL,
    "ROLLOUTFLEET_WORKER_REPLICAS": "4",
}


@pytest.fixture(autouse=True)
def no_redis(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REDIS_URL", raising=False)


@pytest.fixture
def cluster() -> FakeCluster:
    """A release of four workers, whose operator leads."""
    made = FakeCluster()
    made.deployment(POOL, 4)
    made.deployments[POOL]["metadata"]["labels"] = LABELS | {"app.kubernetes.io/component": "worker"}
    made.leases["lease"] = {"metadata": {"resourceVersion": "1"}, "spec": {"holderIdentity": "operator-0"}}
    operator(made)
    return made


def operator(cluster: FakeCluster, **more: str) -> None:
    settings = SETTINGS | {f"ROLLOUTFLEET_{name}": value for name, value in more.items()}
    environment = [{"name": name, "value": value} for name, value in settings.items()]
    labels = LABELS | {"app.kubernetes.io/component": "operator"}
    spec = {"template": {"spec": {"containers": [{"env": environment}]}}}
    cluster.others[:] = [{"metadata": {"name": "rollouts-operator", "labels": labels}, "spec": spec}]


def run(cluster: FakeCluster, *argv: str) -> int:
    def connect(options: argparse.Namespace, selector: str) -> tuple[PeoplesCluster, str]:
        return cluster, "ml"

    return main(argv, connect)


def annotations(cluster: FakeCluster, name: str) -> dict[str, str]:
    of = cluster.pods.get(name) or cluster.deployments[name]
    return of["metadata"].get("annotations", {})


def test_status_names_each_pod_with_its_reason(cluster: FakeCluster, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.gpus = 3
    cluster.set_replicas(POOL, 5)
    cluster.settle()
    assert run(cluster, "status", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["operator"], [pod["reason"] for pod in told["pods"]].count("needs_gpu")) == ("operator-0", 1)


def test_status_and_doctor_say_what_a_lower_number_waits_for(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.gpus = 4
    cluster.set_replicas(POOL, 5)
    cluster.settle()
    cluster.roll(POOL)
    assert (run(cluster, "status"), run(cluster, "doctor")) == (0, 1)
    said = capsys.readouterr().out
    assert said.count("so fewer workers wait, too") == said.count("`kubectl scale`") == 2


def test_what_workers_hold_is_null_where_redis_was_not_asked(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    run(cluster, "status", "--json")
    assert {pod["held"] for pod in json.loads(capsys.readouterr().out)["pods"]} == {None}


def test_scale_leaves_an_order_for_the_operator(cluster: FakeCluster) -> None:
    assert run(cluster, "scale", "2") == 0
    assert annotations(cluster, POOL)[REPLICAS] == "2 instead of 4"
    assert cluster.replicas(POOL) == 4


def test_scale_to_the_configured_number_takes_the_order_back(cluster: FakeCluster) -> None:
    run(cluster, "scale", "2")
    run(cluster, "scale", "4")
    assert REPLICAS not in annotations(cluster, POOL)


def test_a_dry_run_says_which_pods_would_go_and_changes_nothing(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    unready = cluster.names()[1]
    cluster.not_ready(unready)
    assert run(cluster, "scale", "3", "--dry-run", "--json") == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["would_go"] == [unready]
    assert "not known" in said.err
    assert REPLICAS not in annotations(cluster, POOL)


def test_the_same_commands_are_for_engines_over_several_pods(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who would go is told by the index."""
    operator(cluster, DEPLOYMENTS="sets", LEADER_WORKER_SETS="sets")
    del cluster.deployments[POOL]
    cluster.pods.clear()
    cluster.deployment("sets", 4, Kind.SET)
    assert run(cluster, "scale", "2", "--dry-run", "--json") == 0
    assert json.loads(capsys.readouterr().out)["would_go"] == ["sets-3", "sets-2"]
    assert run(cluster, "scale", "2") == run(cluster, "restart") == run(cluster, "drain", "sets-1") == 0
    assert annotations(cluster, "sets")[REPLICAS] == "2 instead of 4"
    assert RESTART in annotations(cluster, "sets")


@pytest.mark.parametrize(("owner", "says"), [("operator", "scaling.minWorkers"), ("keda", "ScaledObject")])
def test_scale_is_refused_where_another_decides(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str], owner: str, says: str
) -> None:
    operator(cluster, SCALING_OWNER=owner)
    assert run(cluster, "scale", "2") == 1
    assert says in capsys.readouterr().err


def test_drain_and_undrain_mark_the_pod(cluster: FakeCluster) -> None:
    pod = cluster.names()[0]
    assert run(cluster, "drain", pod) == 0
    assert DRAIN in annotations(cluster, pod)
    assert run(cluster, "undrain", pod) == 0
    assert DRAIN not in annotations(cluster, pod)


def test_restart_means_the_pods_that_are_there(cluster: FakeCluster) -> None:
    newest = max(pod["metadata"]["creationTimestamp"] for pod in cluster.pods.values())
    assert run(cluster, "restart") == 0
    assert annotations(cluster, POOL)[RESTART].startswith(newest.removesuffix("Z"))


def test_logs_prints_the_container_that_was_asked_for(cluster: FakeCluster, capsys: pytest.CaptureFixture[str]) -> None:
    pod = cluster.names()[0]
    assert run(cluster, "logs", pod, "--engine", "--previous", "--lines", "7") == 0
    assert capsys.readouterr().out.splitlines()[0] == f"{pod} engine 7 True"


def test_doctor_says_what_is_wrong(cluster: FakeCluster, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.leases["lease"]["spec"]["holderIdentity"] = ""
    assert run(cluster, "doctor") == 1
    assert "no operator leads here" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["status", "--release", "other"], "there is no release 'other' in namespace ml (releases there: rollouts)"),
        (["drain", "nobody"], "has no worker pod 'nobody'; there are: rollouts-worker-1-1"),
        (["scale", "2", "--pool", "nothing"], "has these pools: rollouts-worker"),
    ],
)
def test_what_is_not_there_is_said_with_what_is(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str], argv: Sequence[str], says: str
) -> None:
    assert run(cluster, *argv) == 1
    assert says in capsys.readouterr().err


def test_a_missing_right_is_named(cluster: FakeCluster, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.forbidden.add(("patch", "pods"))
    assert run(cluster, "drain", cluster.names()[0]) == 1
    assert "not permitted: patch pods" in capsys.readouterr().err


def test_no_cluster_is_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    def connect(options: argparse.Namespace, selector: str) -> tuple[PeoplesCluster, str]:
        raise ClusterUnavailable("the kubeconfig names no cluster: set KUBECONFIG")

    assert main(["status"], connect) == 1
    assert "set KUBECONFIG" in capsys.readouterr().err


def test_orders_without_an_operator_are_refused(cluster: FakeCluster, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.others.clear()
    assert run(cluster, "drain", cluster.names()[0]) == 1
    assert "operator.enabled" in capsys.readouterr().err
