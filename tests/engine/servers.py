"""Real SGLang servers on this machine's CPU, for tests.

    with Servers(python, model, logs) as servers:
        server = servers.start("--max-queued-requests", "0")
        servers.wait(server)

Invariants: leaving the block leaves no process behind, also when this process is killed; every wait has an end, and
what fails shows the tail of the server's log.
"""

import json
import os
import select
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from deploy.embedded import HOST, free_port

LAUNCHER = Path(__file__).with_name("launcher.py")
IMPORT_SECONDS = 900  # of SGLang, once; 15 s on two idle cores, minutes where many others want them
START_SECONDS = 600
END_SECONDS = 10
HEALTH_SECONDS = 5  # after which /health gives up; 20 by default
_TAIL_LINES = 40
_LOOK_SECONDS = 0.1

ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",  # threads that spin for work slow all servers down twentyfold
    "SGLANG_USE_CPU_ENGINE": "1",
    "HF_HUB_OFFLINE": "1",
    "TORCHDYNAMO_DISABLE": "1",
    "CUDA_VISIBLE_DEVICES": "",
    "SGLANG_HEALTH_CHECK_TIMEOUT": str(HEALTH_SECONDS),
}
ARGUMENTS = (
    *("--device", "cpu", "--attention-backend", "torch_native", "--dtype", "float32", "--host", HOST),
    *("--max-total-tokens", "32768", "--max-running-requests", "64", "--weight-version", "0"),
    "--sleep-on-idle",  # otherwise each idle server keeps a core busy
    "--skip-server-warmup",
    *("--log-level-http", "warning"),
)


class ServersFailed(RuntimeError):
    """A server did not start, or the launcher died; the message ends with the tail of its log."""


@dataclass(frozen=True, slots=True)
class Server:
    """One server, the leader of its process group."""

    pid: int
    port: int
    log: Path

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    @property
    def is_alive(self) -> bool:
        return _state(self.pid) not in ("", "Z")

    def signal(self, which: signal.Signals) -> None:
        """To the server alone, not to its scheduler."""
        os.kill(self.pid, which)

    def kill(self) -> None:
        """All of its processes, at once."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def tail(self) -> str:
        return tail(self.log)


class Servers:
    """Starts servers from one launcher, which imports SGLang once for all of them."""

    def __init__(self, python: Path, model: Path, logs: Path) -> None:
        self._command = [str(python), "-u", str(LAUNCHER)]
        self._model = model
        self._logs = logs
        self._log = logs / "launcher.log"
        self._launcher: subprocess.Popen[bytes] | None = None
        self._started: list[Server] = []

    def __enter__(self) -> Self:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        with self._log.open("ab") as log:
            self._launcher = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment | ENVIRONMENT,
                bufsize=0,
                start_new_session=True,  # a terminal's Ctrl-C is ours
            )
        try:
            self._read(IMPORT_SECONDS)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self, *arguments: str) -> Server:
        """Later arguments replace those of ARGUMENTS. Returns before it serves. Errors: ServersFailed."""
        port = free_port()
        log = self._logs / f"server-{port}.log"
        words = ["--model-path", str(self._model), *ARGUMENTS, "--port", str(port), *arguments]
        launcher = self._running()
        assert launcher.stdin is not None
        launcher.stdin.write(json.dumps({"arguments": words, "log": str(log)}).encode() + b"\n")
        server = Server(self._read(END_SECONDS)["pid"], port, log)
        self._started.append(server)
        return server

    def wait(self, *servers: Server) -> None:
        """Until all of them are ready. Errors: ServersFailed."""
        end = time.monotonic() + START_SECONDS
        for server in servers:
            while not _is_ready(server.url):
                if not server.is_alive or time.monotonic() > end:
                    what = "took too long to start" if server.is_alive else "died"
                    raise ServersFailed(f"the server at {server.url} {what}; its log ends:\n{server.tail()}")
                time.sleep(_LOOK_SECONDS)

    def close(self) -> None:
        """Kills all that was started. Twice is once."""
        for server in self._started:
            server.kill()
        launcher, self._launcher = self._launcher, None
        if launcher is None:
            return
        for pipe in (launcher.stdin, launcher.stdout):
            if pipe is not None:
                pipe.close()
        try:
            launcher.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            launcher.kill()
            launcher.wait()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._launcher is None or self._launcher.poll() is not None:
            raise ServersFailed(f"the launcher does not run; its log ends:\n{tail(self._log)}")
        return self._launcher

    def _read(self, seconds: float) -> dict[str, Any]:
        """The launcher's next line."""
        launcher = self._running()
        assert launcher.stdout is not None
        readable, _, _ = select.select([launcher.stdout], [], [], seconds)
        line = launcher.stdout.readline() if readable else b""
        if not line:
            what = "ended" if readable else f"said nothing for {seconds} s"
            raise ServersFailed(f"the launcher {what}; its log ends:\n{tail(self._log)}")
        return json.loads(line)


def tail(log: Path, lines: int = _TAIL_LINES) -> str:
    """The last lines of a log."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:]) if log.exists() else "(no log)"


def group_of(server: Server) -> Sequence[int]:
    """The processes of a server but itself, its scheduler among them."""
    found: list[int] = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            pid, group = int(path.parent.name), int(path.read_text().rpartition(")")[2].split()[2])
            if group == server.pid != pid:
                found.append(pid)
    return found


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def _is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/ready", timeout=5) as answer:
            return answer.status == 200
    except (OSError, urllib.error.URLError):
        return False
