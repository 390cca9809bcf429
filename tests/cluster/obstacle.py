"""Why this machine can't run the cluster, in one sentence that names what is missing."""

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.cluster.pins import DEBIAN, GO, missing_programs, place

CGROUPS = Path("/sys/fs/cgroup")
HIERARCHIES = ("cpu", "cpuset", "memory", "devices", "freezer", "pids")
BUILD_GIB = 10.0  # 7 of Go's caches, 0.7 of programs; images
RUN_GIB = 4.0
MEMORY_GIB = 8.0  # programs 1, images and volumes of two nodes 3, pods
_GIB = 1 << 30

# The namespaces, a bridge and a cable: a container without rights, or a kernel without them, says no here.
_TRIAL = "ip link add trial type bridge && ip link add cable type veth peer name other && mount -t tmpfs trial /mnt"


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


def _namespaces() -> str:
    command = ["unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc", "sh", "-c", _TRIAL]
    if not shutil.which("unshare"):
        return "it needs unshare and nsenter (Debian: util-linux)"
    if not shutil.which("ip"):
        return ""  # comes with the packages
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    return f"it may make no namespaces, bridges or mounts here: {_last(done.stderr)}" if done.returncode else ""


def _go() -> str:
    if not missing_programs():
        return ""
    version = go_version()
    if version >= GO:
        return ""
    found = f"found {version[0]}.{version[1]}" if version > (0, 0) else "found none on PATH"
    return f"it needs Go >= {GO[0]}.{GO[1]} to build Kubernetes once, and {found}"


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


def _last(text: str) -> str:
    return (text.strip().splitlines() or ["unshare said nothing"])[-1]


_QUESTIONS: tuple[Callable[[], str], ...] = (_machine, _root, _cgroups, _packages, _namespaces, _go, _disk, _memory)
