"""Why this machine can't run the cluster, in one sentence that names what is missing."""

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.cluster.pins import DEBIAN, GO, KUBERNETES, missing_programs, place

CGROUPS = Path("/sys/fs/cgroup")
HIERARCHIES = ("cpu", "cpuset", "memory", "devices", "freezer", "pids")
BUILD_GIB = 10.0  # 7 of Go's caches, 0.7 of programs; images
RUN_GIB = 4.0
ASK_SECONDS = 60
MEMORY_GIB = 8.0  # programs 1, images and volumes of two nodes 3, pods
_GIB = 1 << 30
_LAYERS = "lowerdir=/mnt/lower,upperdir=/mnt/upper,workdir=/mnt/work"

# What starting a cluster does first, tried in namespaces of its own: a container without rights, a kernel without
# modules, says no here. (what it is, command)
_TRIALS = (
    ("share mounts", "mount --make-rshared /"),
    ("mount a tmpfs", "mount -t tmpfs trial /mnt"),
    ("make folders", "mkdir /mnt/lower /mnt/upper /mnt/work /mnt/merged"),
    ("mount an overlay", f"mount -t overlay -o {_LAYERS} trial /mnt/merged"),
    ("hide a sysctl", "cp /proc/sys/kernel/panic /mnt/panic && mount --bind /mnt/panic /proc/sys/kernel/panic"),
    ("forward packets", "echo 1 > /proc/sys/net/ipv4/ip_forward"),
    ("make a bridge", "ip link add trial type bridge && ip address add 10.244.0.1/24 dev trial"),
    ("name a network", "mkdir -p /run/netns && mount -t tmpfs netns /run/netns && ip netns add trial"),
    ("lay a cable", "ip link add cable type veth peer name other netns trial && ip link set cable up"),
    ("enter a network", "nsenter --net=/run/netns/trial true"),
    ("filter packets", "nft add table inet trial && nft delete table inet trial"),
    ("translate addresses", "iptables -w -t nat -N TRIAL && iptables -w -t nat -X TRIAL"),
)


def obstacle() -> str:
    """Empty: it can run here, as far as one sees before anything is installed."""
    return next((why for why in (question() for question in _QUESTIONS) if why), "")


def needed() -> list[str]:
    """The Debian packages that are not there yet."""
    return sorted({package for wanted, package in DEBIAN.items() if not _is_there(wanted)})


def _is_there(wanted: str) -> bool:
    return Path(wanted).exists() if wanted.startswith("/") else shutil.which(wanted) is not None


def _machine() -> str:
    if sys.platform == "linux" and platform.machine() == "x86_64":
        return ""
    return f"it needs Linux on x86_64, this is {sys.platform} on {platform.machine()}"


def _root() -> str:
    return "" if os.geteuid() == 0 else "it needs root: namespaces, mounts and cgroups are made"


def _cgroups() -> str:
    absent = [name for name in HIERARCHIES if not (CGROUPS / name / "tasks").exists()]
    if not absent:
        return ""
    return f"it needs cgroup v1 (or hybrid) under {CGROUPS}, and there is no hierarchy {', '.join(absent)}"


def _packages() -> str:
    packages = needed()
    if not packages or (shutil.which("apt-get") and Path("/etc/debian_version").exists()):
        return ""
    return f"it needs {', '.join(packages)} (Debian's packages), and there is no apt-get to install them"


def _hierarchies() -> str:
    for name in HIERARCHIES:
        trial = CGROUPS / name / f"rolloutfleet-trial-{os.getpid()}"
        try:
            trial.mkdir()
            trial.rmdir()
        except OSError as error:
            return f"it may make no cgroup in {CGROUPS / name}: {error.strerror}"
    return ""


def _kernel_log() -> str:
    try:
        os.close(os.open("/dev/kmsg", os.O_RDONLY))
    except OSError as error:
        return f"a kubelet needs /dev/kmsg: {error.strerror}"
    return ""


def _namespaces() -> str:
    if not (shutil.which("unshare") and shutil.which("nsenter")):
        return "it needs unshare and nsenter (Debian: util-linux)"
    trials = [
        (what, command) for what, command in _TRIALS if shutil.which(_program(command))
    ]  # others: installed later
    script = "\n".join(f"{{ {command}; }} || {{ echo may not {what} >&2; exit 1; }}" for what, command in trials)
    command = ["unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc", "--propagation", "private"]
    done = subprocess.run([*command, "sh", "-c", script], capture_output=True, text=True, timeout=30)
    return f"a cluster can't be started here: {'; '.join(_lines(done.stderr))}" if done.returncode else ""


def _program(command: str) -> str:
    return command.split()[0]


def _go() -> str:
    if not missing_programs():
        return ""
    version = go_version()
    if version >= GO:
        return ""
    found = f"found {version[0]}.{version[1]}" if version > (0, 0) else "found none on PATH"
    return f"it needs Go >= {GO[0]}.{GO[1]} to build Kubernetes once, and {found}"


def _modules() -> str:
    """Whether what is to be built can be had."""
    if not missing_programs():
        return ""
    command = ["go", "list", "-m", f"k8s.io/kubernetes@v{KUBERNETES}"]
    try:
        done = subprocess.run(command, cwd="/", capture_output=True, text=True, timeout=ASK_SECONDS)
    except subprocess.TimeoutExpired:
        return f"the Go modules of Kubernetes {KUBERNETES} can't be had: no answer after {ASK_SECONDS} s"
    return f"the Go modules of Kubernetes can't be had: {_lines(done.stderr)[-1]}" if done.returncode else ""


def go_version() -> tuple[int, int]:
    """(0, 0) where there is none."""
    go = shutil.which("go")
    if go is None:
        return 0, 0
    said = subprocess.run([go, "env", "GOVERSION"], capture_output=True, text=True, timeout=30).stdout
    found = re.match(r"go(\d+)\.(\d+)", said)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _disk() -> str:
    there = next(parent for parent in (place(), *place().parents) if parent.exists())
    free = shutil.disk_usage(there).free / _GIB
    wanted = BUILD_GIB if missing_programs() else RUN_GIB
    return "" if free >= wanted else f"it needs {wanted:.0f} GiB of disk at {there}, and {free:.1f} are free"


def _memory() -> str:
    found = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text())
    free = int(found[1]) * 1024 / _GIB if found else MEMORY_GIB
    return "" if free >= MEMORY_GIB else f"it needs {MEMORY_GIB:.0f} GiB of memory, and {free:.1f} are available"


def _lines(text: str) -> list[str]:
    return text.strip().splitlines()[-2:] or ["unshare said nothing"]


_QUESTIONS: tuple[Callable[[], str], ...] = (
    *(_machine, _root, _cgroups, _hierarchies, _kernel_log, _packages, _namespaces),
    *(_go, _modules, _disk, _memory),
)
