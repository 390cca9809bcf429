"""Kubernetes, CoreDNS and LeaderWorkerSet's controller, built from their Go modules into the cache, once.

Invariants: a program appears under its name only when it is whole, and Go keeps what it compiled: a build that was
cut off goes on where it stopped. Two callers at once build once.
"""

import fcntl
import json
import os
import re
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from tests.cluster.commands import output, patiently, say
from tests.cluster.pins import (
    COREDNS,
    DNS,
    GO,
    KUBERNETES,
    LEADER_WORKER_SET,
    PROGRAMS,
    SETS,
    missing_programs,
    place,
)

SETS_MODULE = "sigs.k8s.io/lws"
BUILD_SECONDS = 5400
DOWNLOAD_SECONDS = 1800
MINOR, PATCH = KUBERNETES.split(".")[1:]

# The linker writes the version; without one, charts that ask for a least version refuse the cluster.
_VERSION = "k8s.io/component-base/version"
_FACTS = {"gitVersion": f"v{KUBERNETES}", "gitMajor": "1", "gitMinor": MINOR, "gitTreeState": "clean"}
KUBERNETES_FLAGS = " ".join(["-s -w", *(f"-X {_VERSION}.{name}={value}" for name, value in _FACTS.items())])


def build() -> None:
    """Makes what is missing. Errors: ClusterFailed."""
    (place() / "bin").mkdir(parents=True, exist_ok=True)
    with alone(place() / "build.lock"):
        missing = missing_programs()
        if not missing:
            return
        say(f"building {', '.join(missing)} into {place()} (about 12 minutes on two idle cores, once)")
        for number, name in enumerate(missing, 1):
            module, package = _source(name)
            _compile(f"{name} ({number} of {len(missing)})", module, name, package)


@contextmanager
def alone(lock: Path) -> Generator[None]:
    """Only one process at a time in the block."""
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def _source(name: str) -> tuple[Path, str]:
    """The module that a program is built in, and its package."""
    if name == DNS:
        return _dns_module(), "."
    if name == SETS:
        return sets_module(), f"{SETS_MODULE}/cmd"
    return _kubernetes_module(), f"k8s.io/kubernetes/cmd/{name}"


def _compile(what: str, module: Path, name: str, package: str) -> None:
    target = place() / "bin" / name
    flags = KUBERNETES_FLAGS if name in PROGRAMS else "-s -w"
    part = target.with_suffix(".part")
    command = ["go", "build", "-v", "-trimpath", "-pgo=off", "-ldflags", flags, "-o", part, package]
    patiently(what, command, seconds=BUILD_SECONDS, cwd=module, env=_environment(), lines="packages compiled")
    part.replace(target)


def _kubernetes_module() -> Path:
    module = place() / "kubernetes"
    commands = [f"k8s.io/kubernetes/cmd/{name}" for name in PROGRAMS]
    if not (module / "go.sum").exists():
        _write(module, [f"k8s.io/kubernetes v{KUBERNETES}"], replaced=_staged(), tools=commands)
        _tidy(module)
    return module


def _dns_module() -> Path:
    module = place() / f"coredns-{COREDNS}"
    if not (module / "go.sum").exists():
        _write(module, [f"github.com/coredns/coredns v{COREDNS}"])
        shutil.copyfile(Path(__file__).with_name("dns.go"), module / "main.go")
        _tidy(module)
    return module


def sets_module() -> Path:
    module = place() / SETS
    if not (module / "go.sum").exists():
        _write(module, [f"{SETS_MODULE} v{LEADER_WORKER_SET}"], tools=[f"{SETS_MODULE}/cmd"])
        _tidy(module)
    return module


def _write(
    module: Path, required: list[str], replaced: list[str] | None = None, tools: list[str] | None = None
) -> None:
    module.mkdir(parents=True, exist_ok=True)
    blocks = {"require": required, "replace": replaced or [], "tool": tools or []}
    text = ["module cluster", "go {}.{}".format(*GO)]
    text += ["\n".join([f"{name} (", *(f"\t{line}" for line in lines), ")"]) for name, lines in blocks.items() if lines]
    (module / "go.mod").write_text("\n\n".join(text) + "\n")


def _staged() -> list[str]:
    """Kubernetes asks for its own libraries at v0.0.0, which exists nowhere: each one is replaced by its release."""
    empty = place() / "look"
    _write(empty, [])
    said = output(
        ["go", "-C", empty, "mod", "download", "-json", f"k8s.io/kubernetes@v{KUBERNETES}"],
        seconds=DOWNLOAD_SECONDS,
        env=_environment(),
    )
    modules = unreleased(Path(json.loads(said)["GoMod"]).read_text())
    return [f"{name} => {name} v0.{MINOR}.{PATCH}" for name in modules]


def unreleased(gomod: str) -> list[str]:
    """The modules at v0.0.0 itself; v0.0.0-<time>-<commit> is a version like any other."""
    return sorted(set(re.findall(r"^\s+(k8s\.io/[a-z-]+) v0\.0\.0(?: //.*)?$", gomod, re.MULTILINE)))


def _tidy(module: Path) -> None:
    # go.sum is what says that this went to its end: go writes it last.
    command = ["go", "mod", "tidy"]
    patiently(
        f"downloading what {module.name} is built of", command, seconds=DOWNLOAD_SECONDS, cwd=module, env=_environment()
    )


def _environment() -> dict[str, str]:
    # Flags of the user's own could build something else, or look for a repository around the cache.
    return os.environ | {"CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false", "GOWORK": "off"}
