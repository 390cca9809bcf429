"""Starting, entering and stopping a cluster: in a network, a mount and a process namespace of its own.

Invariants: no packet leaves it; when its process 1 ends, every process, mount and interface of it is gone; `stop` takes
away what the kernel keeps (cgroups, the folder), also of a cluster that was killed.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.commands import ClusterFailed, say
from tests.cluster.ground import until
from tests.cluster.node import CGROUPS

ROOT = Path(__file__).parents[2]
START_SECONDS = 240
STOP_SECONDS = 20
TIDY_SECONDS = 120


def usual_folder() -> Path:
    return Path(os.environ.get("ROLLOUTFLEET_CLUSTER_DIR") or "/var/tmp/rolloutfleet-cluster")


@dataclass(frozen=True, slots=True)
class Cluster:
    folder: Path

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "admin.conf"

    def init_pid(self) -> int | None:
        """Process 1 of the cluster as it is outside; None where it doesn't run."""
        try:
            pid = int((self.folder / "init.pid").read_text())
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except (OSError, ValueError):
            return None
        return pid if str(self.folder).encode() in words else None

    def enter(self) -> list[str]:
        """The words before a command that is to run inside. Errors: ClusterFailed."""
        pid = self.init_pid()
        if pid is None:
            raise ClusterFailed(f"no cluster runs in {self.folder}: make cluster starts one")
        return ["nsenter", "--target", str(pid), "--net", "--mount", "--pid", "env", f"--chdir={Path.cwd()}"]

    def run(self, command: Sequence[str], **variables: str) -> int:
        """The exit code of a command that runs inside."""
        environment = os.environ | {"KUBECONFIG": str(self.kubeconfig)} | variables
        # When we are interrupted, the command is told so, and may take away what it made.
        told = ["setpriv", "--pdeathsig", "TERM"]
        with subprocess.Popen([*self.enter(), *told, *command], env=environment) as process:
            try:
                return process.wait()
            except BaseException:
                left = children(process.pid)
                process.kill()
                for pid in left:
                    until_gone(pid, TIDY_SECONDS)
                raise

    def start(self, nodes: int, *, dies_with_us: bool = False) -> None:
        """Returns when all nodes are ready. `dies_with_us`: it ends with this process, however that ends."""
        self.stop()
        self.folder.mkdir(parents=True)
        began = time.monotonic()
        say(f"starting {nodes} nodes in {self.folder}")
        outer = self._spawn(nodes, dies_with_us)
        try:
            until(lambda: self._is_ready(outer), "the cluster is ready", START_SECONDS)
        except BaseException as error:
            log = (self.folder / "init.log").read_text(errors="replace")[-3000:]
            self.stop()
            if isinstance(error, ClusterFailed):
                raise ClusterFailed(f"{error}\n{log}") from None
            raise
        say(f"{nodes} nodes are ready after {time.monotonic() - began:.0f} s")

    def stop(self) -> None:
        """Nothing is left of it, whether it runs, has ended, or never was."""
        pid = self.init_pid()
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
            until_gone(pid)
        self._remove_cgroups()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _spawn(self, nodes: int, dies_with_us: bool) -> subprocess.Popen[bytes]:
        spaces = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        inside = [sys.executable, "-m", "tests.cluster.inside", str(self.folder), str(nodes)]
        bound = ["setpriv", "--pdeathsig", "KILL"] if dies_with_us else []
        with (self.folder / "init.log").open("w") as log:
            return subprocess.Popen(
                [*bound, *spaces, "--propagation", "private", *inside],
                cwd=ROOT,
                env=os.environ | {"PYTHONPATH": str(ROOT)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _is_ready(self, outer: subprocess.Popen[bytes]) -> bool:
        if outer.poll() is not None:
            raise ClusterFailed("the cluster's process 1 ended while it started")
        if not (self.folder / "init.pid").exists():
            for pid in children(outer.pid):
                (self.folder / "init.pid").write_text(str(pid))
        return (self.folder / "ready").exists()

    def _remove_cgroups(self) -> None:
        """The kubelets' groups outlive them: the innermost first, and again while the kernel still clears away."""
        end = time.monotonic() + STOP_SECONDS
        while left := [path for path in CGROUPS.glob(f"*/{self.folder.name}-node*") if path.is_dir()]:
            for top in left:
                for folder, _, _ in os.walk(top, topdown=False):
                    _rmdir(folder)
            if time.monotonic() > end:
                raise ClusterFailed(f"cgroups are left: {' '.join(map(str, left))}")
            time.sleep(0.05)


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def until_gone(pid: int, seconds: float = STOP_SECONDS) -> None:
    """Ends it by force where it doesn't end by itself."""
    end = time.monotonic() + seconds
    while Path(f"/proc/{pid}").exists() and _state(pid) != "Z":
        if time.monotonic() > end:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


def _rmdir(folder: str) -> None:
    with contextlib.suppress(OSError):  # busy for a moment: the caller looks again
        os.rmdir(folder)
