"""The Python environment of the real engine: made once, kept outside of the tree, and named after what is in it.

Invariants: a stamp is written last, and an installation that was cut off is taken up where it ended; a download that
breaks is tried again; the making has an end; two callers at once make it once.
"""

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

REQUIREMENTS = Path(__file__).with_name("requirements.txt")
NEEDED_GIB = 8.0  # 5.2 of them in the environment; while it is made, wheels are unpacked beside it
PYTHON = (3, 12)  # whose wheels the versions were tried with
INSTALL_SECONDS = 1500  # for all tries together
TRIES = 5
PAUSE_SECONDS = 10
_GIB = 1 << 30


class EnvironmentFailed(RuntimeError):
    """The environment can't be made here; the message says why, and ends with what the installer said."""


def place() -> Path:
    """The folder of the environment. Another one as soon as a version changes."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "rolloutfleet" / f"engine-{hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()[:12]}"


def is_made(folder: Path) -> bool:
    return _stamp(folder).exists()


def obstacle() -> str:
    """Why the real engine can't run or be installed on this machine; empty: it can, as far as one sees."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return f"it needs Linux on x86_64, this is {sys.platform} on {platform.machine()}"
    if is_made(place()):
        return ""
    if not any(_pythons()):
        return "it needs Python 3.12, and none was found on PATH, in pyenv or in uv's folder"
    free = shutil.disk_usage(_existing(place())).free / _GIB
    if free < NEEDED_GIB:
        return f"it needs {NEEDED_GIB:.0f} GiB of disk at {_existing(place())}, and {free:.1f} are free"
    return "" if _has_index() else "pip reaches no package index"


def _has_index() -> bool:
    # pip knows where packages come from here: from a mirror, through a proxy.
    ask = [sys.executable, "-m", "pip", "index", "versions", "uv", "--retries", "1", "--timeout", "15"]
    try:
        return subprocess.run(ask, capture_output=True, timeout=90).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def prepare() -> Path:
    """The interpreter of the environment, which is made if it isn't there. Errors: EnvironmentFailed."""
    folder = place()
    with _alone(folder):
        if not is_made(folder):
            why = obstacle()
            if why:
                raise EnvironmentFailed(f"the real engine can't be installed: {why}")
            _make(folder, next(_pythons()))
    return _python(folder)


def _make(folder: Path, python: str) -> None:
    began = time.monotonic()
    end = began + INSTALL_SECONDS
    print(f"installing the real engine into {folder} (5 GB, some minutes, once)", file=sys.stderr, flush=True)
    inside = _python(folder)
    if not _can_make_environments(str(inside)):
        shutil.rmtree(folder, ignore_errors=True)
        _run([python, "-m", "venv", str(folder)], end)
    # pip brings uv in the version of the list, and uv the rest: in seconds where pip takes minutes. Both pass over what
    # is installed, and uv keeps each wheel as soon as it has come.
    pip, uv = [str(inside), "-m", "pip"], [str(folder / "bin" / "uv"), "pip"]
    _try([*pip, "install", "--quiet", "--no-deps", "--constraint", str(REQUIREMENTS), "uv"], end)
    _try([*uv, "install", "--quiet", "--python", str(inside), "--no-deps", "-r", str(REQUIREMENTS)], end)
    _stamp(folder).touch()
    print(f"installed it in {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)


def _try(command: Sequence[str], end: float) -> None:
    """Runs it until it succeeds, TRIES times at most. Errors: EnvironmentFailed, the last one's."""
    for tries in range(1, TRIES + 1):
        try:
            return _run(command, end)
        except EnvironmentFailed as error:
            if tries == TRIES or time.monotonic() + PAUSE_SECONDS > end:
                raise
            print(f"{error}\ntrying again", file=sys.stderr, flush=True)
            time.sleep(PAUSE_SECONDS)


def _run(command: Sequence[str], end: float) -> None:
    # Settings of the user's pip would send packages elsewhere than into the environment.
    elsewhere = ("PIP_TARGET", "PIP_PREFIX", "PIP_REQUIRE_HASHES", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    environment = {name: value for name, value in os.environ.items() if name not in elsewhere} | {
        "PIP_USER": "0",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_RETRIES": "10",
        "UV_HTTP_TIMEOUT": "120",  # of silence; wheels have up to 800 MB
    }
    if "PIP_INDEX_URL" in environment:
        environment.setdefault("UV_DEFAULT_INDEX", environment["PIP_INDEX_URL"])
    words = " ".join(command)
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=max(1.0, end - time.monotonic())
        )
    except subprocess.TimeoutExpired as error:
        raise EnvironmentFailed(f"{words} took longer than was left of {INSTALL_SECONDS} s") from error
    if done.returncode:
        raise EnvironmentFailed(f"{words} failed:\n{(done.stderr or done.stdout)[-2000:]}")


def _pythons() -> Iterator[str]:
    name = f"python{PYTHON[0]}.{PYTHON[1]}"
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    data = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    uv = Path(os.environ.get("UV_PYTHON_INSTALL_DIR") or data / "uv" / "python")
    # Ours may itself be in a virtual environment, and one made from it would need ours for ever.
    base = [getattr(sys, "_base_executable", "")] if sys.version_info[:2] == PYTHON else []
    found = [shutil.which(name), *base, *(str(path) for at in (pyenv, uv) for path in sorted(at.glob(f"*/bin/{name}")))]
    return (path for path in found if path and _can_make_environments(path))


def _can_make_environments(python: str) -> bool:
    check = f"import sys, venv, ensurepip; sys.exit(sys.version_info[:2] != {PYTHON})"
    try:
        return subprocess.run([python, "-c", check], capture_output=True, timeout=30).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


@contextmanager
def _alone(folder: Path) -> Generator[None]:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _python(folder: Path) -> Path:
    return folder / "bin" / "python"


def _stamp(folder: Path) -> Path:
    return folder / ".installed"


def _existing(path: Path) -> Path:
    return next(parent for parent in (path, *path.parents) if parent.exists())
