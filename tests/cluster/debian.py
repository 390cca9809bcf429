"""Debian's packages that the cluster runs on: installed where they are missing, without starting any service."""

import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.cluster.commands import ClusterFailed, output, say

POLICY = Path("/usr/sbin/policy-rc.d")  # asked by each package before it starts its service: 101 is no
APT_SECONDS = 900


def install(packages: Sequence[str]) -> None:
    """Errors: ClusterFailed."""
    if not packages:
        return
    say(f"installing {' '.join(packages)} with apt-get")
    quiet = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    with _no_services():
        output(["apt-get", "update", "-qq"], seconds=APT_SECONDS, env=quiet)
        output(
            ["apt-get", "install", "-qq", "-y", "--no-install-recommends", *packages], seconds=APT_SECONDS, env=quiet
        )


def mirror() -> str:
    """Where this machine has its packages from. Errors: ClusterFailed."""
    for source in sorted(Path("/etc/apt/sources.list.d").glob("*.sources")):
        for line in source.read_text().splitlines():
            if line.startswith("URIs:"):
                return line.split()[1]
    for line in Path("/etc/apt/sources.list").read_text().splitlines():
        words = [word for word in line.split() if not word.startswith("[") and not word.endswith("]")]
        if words[:1] == ["deb"]:
            return words[1]
    raise ClusterFailed("no package source is known: name one in /etc/apt/sources.list")


@contextmanager
def _no_services() -> Generator[None]:
    ours = not POLICY.exists()
    if ours:
        POLICY.write_text("#!/bin/sh\nexit 101\n")
        POLICY.chmod(0o755)
    try:
        yield
    finally:
        if ours:
            POLICY.unlink(missing_ok=True)
