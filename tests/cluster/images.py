"""Images without a registry: base images of Debian's packages, buildah on them, an archive for the nodes.

Invariant: each archive in the cache is named after what it is made of, and appears when it is whole.
"""

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.cluster.commands import output, patiently
from tests.cluster.debian import mirror
from tests.cluster.pins import SUITE, images_place, place
from tests.cluster.programs import alone

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent

PAUSE = "localhost/pause:1"
BASE = "localhost/python:debian"
VALKEY = "localhost/valkey:debian"
FLEET = "localhost/rolloutfleet:dev"

PYTHON_PACKAGES = ("python3", "python3-venv", "ca-certificates", "netbase", "tzdata")
VALKEY_PACKAGES = ("valkey-server", "valkey-tools")
SECONDS = 1800
CONTENT = ("Dockerfile", ".dockerignore", "requirements.image.lock", "rolloutfleet", "worker", "api", "deploy")
KEPT = 3  # archives of the fleet's image: one each for the last states of the tree

# What pip in a build needs where packages come through a proxy of the machine's own.
CERTIFICATES = ("/etc/ssl/certs", "/usr/share/ca-certificates", "/usr/local/share/ca-certificates")


def pause_archive() -> Path:
    """The pods' process 1, compiled here."""
    archive = place() / "pause.tar"
    with alone(images_lock()):
        if not archive.exists():
            with tempfile.TemporaryDirectory() as folder:
                program = Path(folder) / "pause"
                output(["gcc", "-static", "-Os", "-o", program, HERE / "pause.c"])
                container = _buildah("from", "scratch")
                _buildah("copy", "--quiet", container, program, "/pause")
                _buildah("config", "--user", "65535:65535", "--entrypoint", '["/pause"]', container)
                _commit(container, PAUSE)
            _archive(PAUSE, archive)
    return archive


def base_image() -> str:
    """The name of an image with Debian and Python, for `--build-arg BASE_IMAGE=`. Errors: ClusterFailed."""
    with alone(images_lock()):
        _import(BASE, PYTHON_PACKAGES, place() / "base.tar")
    return BASE


def valkey_archive() -> Path:
    """The chart's Redis. Errors: ClusterFailed."""
    archive = images_place() / "valkey.tar"
    with alone(images_lock()):
        if not archive.exists():
            _import(VALKEY, VALKEY_PACKAGES, images_place() / "valkey-root.tar")
            _archive(VALKEY, archive)
    return archive


def fleet_archive() -> Path:
    """The image of this tree, by its own Dockerfile. Errors: ClusterFailed."""
    base_image()
    archive = images_place() / f"fleet-{state_of(_files())}.tar"
    with alone(images_lock()):
        if archive.exists():
            os.utime(archive)
            return archive
        volumes = [word for path in CERTIFICATES if Path(path).exists() for word in ("-v", f"{path}:{path}:ro")]
        options = ["--layers", "--network", "host", "--build-arg", f"BASE_IMAGE={BASE}"]
        trust = ["--env", "PIP_CERT=/etc/ssl/certs/ca-certificates.crt"]
        command = [*_tool(), "bud", *options, *trust, *volumes, "--tag", FLEET, "."]
        patiently("building the fleet's image", command, seconds=SECONDS, cwd=ROOT, env=_environment(), lines="lines")
        _archive(FLEET, archive)
        _forget_old()
    return archive


def images_lock() -> Path:
    images_place().mkdir(parents=True, exist_ok=True)
    return images_place() / "build.lock"


def _import(name: str, packages: Sequence[str], root: Path) -> None:
    if not root.exists():
        part = root.with_suffix(".part.tar")  # mmdebstrap knows by the suffix what to write
        included = ",".join(packages)
        command = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={included}", SUITE, part, mirror()]
        patiently(f"making {name} of {included}", command, seconds=SECONDS, cwd=images_place())
        part.replace(root)
    if subprocess.run([*_tool(), "inspect", "--type", "image", name], capture_output=True, timeout=60).returncode:
        container = _buildah("from", "scratch")
        _buildah("add", "--quiet", container, root, "/")
        _buildah("config", "--env", "LANG=C.UTF-8", container)
        _commit(container, name)


def _commit(container: str, name: str) -> None:
    _buildah("commit", "--quiet", "--rm", container, name)


def _archive(name: str, archive: Path) -> None:
    part = archive.with_suffix(".part")
    part.unlink(missing_ok=True)  # buildah adds to an archive that is there
    _buildah("push", "--quiet", name, f"docker-archive:{part}:{name}")
    part.replace(archive)


def state_of(files: Iterable[Path]) -> str:
    """Another one as soon as a file's name, content or right to be executed changes."""
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(f"{path}\0{path.stat().st_mode & 0o111}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def _files() -> list[Path]:
    listed = output(["git", "-C", ROOT, "ls-files", "--cached", "--others", "--exclude-standard", *CONTENT])
    return [ROOT / name for name in listed.splitlines() if (ROOT / name).is_file()]


def _forget_old() -> None:
    archives = sorted(images_place().glob("fleet-*.tar"), key=lambda path: path.stat().st_mtime, reverse=True)
    for archive in archives[KEPT:]:
        archive.unlink()


def _buildah(*words: str | Path) -> str:
    return output([*_tool(), *words], seconds=SECONDS, env=_environment()).strip()


def _tool() -> list[str]:
    # A store of our own: images of the user's are neither seen nor touched.
    return ["buildah", "--root", str(images_place() / "store"), "--runroot", "/run/rolloutfleet-buildah"]


def _environment() -> dict[str, str]:
    return os.environ | {
        "CONTAINERS_CONF": str(HERE / "containers.conf"),
        "BUILDAH_RUNTIME": shutil.which("runc") or "",
    }
