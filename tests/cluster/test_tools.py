"""What the cluster's own tools promise without a cluster."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster import commands, images, programs
from tests.cluster.audit import Call, late_writes
from tests.cluster.commands import ClusterFailed, output
from tests.cluster.kube import Json
from tests.cluster.lifecycle import Cluster, until_gone
from tests.cluster.release import merged

pytestmark = pytest.mark.no_cluster
ROOT = Path(__file__).parents[2]


def test_whether_it_can_run_here_is_one_sentence_or_nothing() -> None:
    command = [sys.executable, "-m", "tests.cluster", "--can-run"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (len(done.stdout.splitlines()), done.returncode) in {(0, 0), (1, 1)}


def test_a_command_that_is_not_there_is_answered_by_what_there_is() -> None:
    done = subprocess.run([sys.executable, "-m", "tests.cluster", "begin"], cwd=ROOT, capture_output=True, timeout=60)
    assert (b"start [NODES]" in done.stderr, done.returncode) == (True, 2)


def test_whoever_enters_a_cluster_that_does_not_run_is_told_how_to_start_one(tmp_path: Path) -> None:
    with pytest.raises(ClusterFailed, match="make cluster starts one"):
        Cluster(tmp_path / "none").enter()


def test_a_process_of_the_same_number_is_not_taken_for_the_cluster(tmp_path: Path) -> None:
    (tmp_path / "init.pid").write_text("1")
    assert Cluster(tmp_path).init_pid() is None


def test_a_failed_command_ends_with_what_it_said() -> None:
    with pytest.raises(ClusterFailed, match="no such thing"):
        output(["sh", "-c", "echo no such thing >&2; exit 3"])


def test_an_image_is_made_anew_when_a_file_that_goes_into_it_changes(tmp_path: Path) -> None:
    file = tmp_path / "worker.py"
    file.write_text("one")
    before = images.state_of([file])
    assert images.state_of([file]) == before
    file.write_text("two")
    assert images.state_of([file]) != before


def test_values_of_a_test_are_laid_over_the_usual_ones_map_by_map() -> None:
    usual: Json = {"worker": {"replicas": 2, "settings": {}}, "drain": {"seconds": 20}}
    wanted: Json = {"worker": {"replicas": 0, "settings": {}}, "drain": {"seconds": 20}}
    assert merged(usual, {"worker": {"replicas": 0}}) == wanted


def test_a_write_by_who_no_longer_holds_the_lease_is_late() -> None:
    def call(address: str, verb: str, resource: str, code: int = 200) -> Call:
        return Call(0.0, "operator", address, verb, resource, code)

    orderly = [call("a", "create", "leases", 201), call("a", "delete", "pods"), call("b", "patch", "leases")]
    orderly += [call("b", "patch", "deployments/scale"), call("a", "patch", "leases", 409), call("a", "get", "pods")]
    late = call("a", "delete", "pods")
    assert late_writes([*orderly, call("a", "create", "events", 201)], "operator") == []
    assert late_writes([*orderly, late], "operator") == [late]
    assert late_writes([late, *orderly], "another") == []


def test_only_kubernetes_own_libraries_are_replaced_by_their_release() -> None:
    gomod = "require (\n\tk8s.io/api v0.0.0\n\tk8s.io/cri-api v0.0.0 // indirect\n\tk8s.io/utils v0.0.0-2026-1a2b\n)\n"
    assert programs.unreleased(gomod) == ["k8s.io/api", "k8s.io/cri-api"]


def test_a_long_command_that_takes_too_long_ends_with_what_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "SAY_EVERY_SECONDS", 0.05)
    started = tmp_path / "started"
    script = f"sleep 600 & echo $! >{started}; wait"
    with pytest.raises(ClusterFailed, match="not done after"):
        commands.patiently("a long one", ["sh", "-c", script], seconds=1, cwd=tmp_path)
    until_gone(int(started.read_text()), 600)
