"""What everything inside the cluster stands on: its folder, its processes, its network."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.commands import ClusterFailed, output
from tests.cluster.pins import place

FIRST = "10.244.0.1"  # the first node: the API server and DNS listen here; its pods are 10.244.0.2 and up
SERVICES = "10.96.0.0/24"
API_ADDRESS = "10.96.0.1"
BRIDGE = "kbr0"
START_SECONDS = 120
FIRST_WORDS = ("nice", "-n", "-10")

# The kubelet sets these for the whole machine: it is given files to write to instead.
_OURS_ONLY = (
    *("vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops"),
    *("kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes"),
)

type Words = Sequence[str | Path]


@dataclass(frozen=True, slots=True)
class Ground:
    """The cluster's folder, which is the same inside and outside."""

    folder: Path

    def program(self, name: str) -> Path:
        return place() / "bin" / name

    def kubeconfig(self, who: str) -> Path:
        return self.folder / f"{who}.conf"

    def pid(self, name: str) -> int:
        """As it is inside."""
        return int((self.folder / f"{name}.pid").read_text())

    def spawn(self, name: str, command: Words, *, is_first: bool = True) -> None:
        """A process of the cluster; its log and its pid lie under its name.

        `is_first`: before others on a busy machine, where an API server that waits for a processor is one that is away.
        """
        with (self.folder / "log" / f"{name}.log").open("ab") as log:
            words = [*(FIRST_WORDS if is_first else ()), *(str(word) for word in command)]
            process = subprocess.Popen(words, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        (self.folder / f"{name}.pid").write_text(str(process.pid))
        process.returncode = 0  # process 1 reaps whatever ends; nobody waits for this one by itself

    def runs(self, name: str) -> bool:
        try:
            return Path(f"/proc/{self.pid(name)}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        except OSError:
            return False

    def kill(self, name: str) -> None:
        os.kill(self.pid(name), signal.SIGKILL)

    def tail(self, name: str) -> str:
        return (self.folder / "log" / f"{name}.log").read_text(errors="replace")[-2000:]


def until(fact: Callable[[], bool], what: str, seconds: float = START_SECONDS) -> None:
    """Errors: ClusterFailed."""
    end = time.monotonic() + seconds
    while not fact():
        if time.monotonic() > end:
            raise ClusterFailed(f"{what}: not after {seconds:.0f} s")
        time.sleep(0.1)


def succeeds(command: Words) -> bool:
    return subprocess.run([str(word) for word in command], capture_output=True, timeout=30).returncode == 0


def prepare(ground: Ground) -> None:
    """The first node's bridge, mounts that containers see, sysctls that stay ours."""
    for name in ("log", "pki", "sysctl"):
        (ground.folder / name).mkdir()
    make_bridge([], FIRST)
    succeeds(["ip", "route", "add", "default", "dev", BRIDGE])  # some programs refuse to start without one
    output(["mount", "--make-rshared", "/"])
    for name in _OURS_ONLY:
        copy = ground.folder / "sysctl" / name.replace("/", ".")
        copy.write_text((Path("/proc/sys") / name).read_text())
        output(["mount", "--bind", copy, Path("/proc/sys") / name])
    # Names of network namespaces go with the cluster.
    Path("/run/netns").mkdir(exist_ok=True)
    output(["mount", "-t", "tmpfs", "netns", "/run/netns"])


def make_bridge(enter: Words, address: str) -> None:
    """The bridge on which a node's pods are."""
    ip = [*enter, "ip"]
    output([*ip, "link", "set", "lo", "up"])
    output([*ip, "link", "add", BRIDGE, "type", "bridge"])
    output([*ip, "address", "add", f"{address}/24", "dev", BRIDGE])
    output([*ip, "link", "set", BRIDGE, "up"])
    output([*enter, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"])
