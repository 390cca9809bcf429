"""The tests' way to a cluster: the one that runs, one of their own that ends with them, or KUBECONFIG's."""

import os
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.cluster import images
from tests.cluster.commands import ClusterFailed
from tests.cluster.lifecycle import ROOT, Cluster, usual_folder
from tests.helm_tools import helm

# Where tests run against somebody's cluster: the image that its nodes can pull.
IMAGE = "ROLLOUTFLEET_CLUSTER_IMAGE"
# Where they run inside of a cluster of ours: its folder.
OURS = "ROLLOUTFLEET_CLUSTER_DIR"
TESTED = "ROLLOUTFLEET_CLUSTER_TESTS"


def against_any(arguments: Sequence[str]) -> int:
    """pytest's exit code. Errors: ClusterFailed."""
    if IMAGE not in os.environ:
        raise ClusterFailed(f"KUBECONFIG names a cluster: set {IMAGE} to the fleet's image, which its nodes can pull")
    return subprocess.run(_pytest(arguments), cwd=ROOT, env=os.environ | _variables()).returncode


def against_our_own(arguments: Sequence[str], nodes: int) -> int:
    """pytest's exit code. Errors: ClusterFailed."""
    archives = [images.fleet_archive(), images.valkey_archive()]
    with _cluster(nodes) as cluster:
        for archive in archives:
            load(cluster, archive)
        return cluster.run(_pytest(arguments), **_variables(), **{IMAGE: images.FLEET, OURS: str(cluster.folder)})


def load(cluster: Cluster, archive: Path) -> None:
    """Errors: ClusterFailed."""
    # containerd unpacks where it runs: its client must see the same mounts.
    command = [sys.executable, "-m", "tests.cluster.loading", str(cluster.folder), str(archive)]
    if cluster.run(command, PYTHONPATH=str(ROOT)):
        raise ClusterFailed(f"{archive} can't be loaded into {cluster.folder}")


def path() -> str:
    """PATH with helm and kubectl."""
    return os.pathsep.join([str(helm().parent), os.environ["PATH"]])


@contextmanager
def _cluster(nodes: int) -> Generator[Cluster]:
    running = Cluster(usual_folder())
    if running.init_pid() is not None:
        yield running
        return
    own = Cluster(Path(f"/var/tmp/rolloutfleet-test-{os.getpid()}"))
    try:
        own.start(nodes, dies_with_us=True)
        yield own
    finally:
        own.stop()


def _pytest(arguments: Sequence[str]) -> list[str]:
    chosen = any(argument.startswith("tests/") for argument in arguments)
    return [sys.executable, "-m", "pytest", *([] if chosen else ["tests/cluster"]), *arguments]


def _variables() -> dict[str, str]:
    return {TESTED: "1", "PATH": path(), "PYTHONPATH": str(ROOT)}
