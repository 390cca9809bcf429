"""Real child processes of a chaos run: engines, and workers that are started again whenever they end."""

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import aiohttp

_RESTART_SECONDS = 0.2


class Process:
    """One `python -m ...` that can be killed and frozen. Output goes to a file."""

    def __init__(self, name: str, arguments: Sequence[str], env: Mapping[str, str], logs: Path) -> None:
        self.name = name
        self._arguments = arguments
        self._env = {**os.environ, **env}
        self._log = logs / f"{name}.log"
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", *self._arguments, env=self._env, stdout=log, stderr=log, start_new_session=True
            )

    def signal(self, number: signal.Signals) -> None:
        """Nothing happens to a process that has ended."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    async def wait(self) -> int:
        assert self._process is not None, f"{self.name} was not started"
        return await self._process.wait()

    async def end(self) -> None:
        """SIGKILL, also where it is frozen."""
        self.signal(signal.SIGKILL)
        if self._process is not None:
            await self._process.wait()

    def tail(self, size: int = 2000) -> str:
        return self._log.read_text(errors="replace")[-size:]


class Engine(Process):
    """A simulated engine on a port that stays the same."""

    def __init__(self, name: str, port: int, options: Sequence[str], logs: Path) -> None:
        self.url = f"http://127.0.0.1:{port}"
        super().__init__(name, ["deploy", "simulator", "--port", str(port), *options], {}, logs)

    async def stall(self, stalled: bool) -> None:
        """While stalled it takes requests and makes no token."""
        async with aiohttp.ClientSession() as session:
            await session.post(f"{self.url}/simulator/faults", json={"stalled": stalled})


class Worker(Process):
    """A worker process in a pod that starts it again whenever it ends."""

    def __init__(self, name: str, env: Mapping[str, str], logs: Path) -> None:
        super().__init__(name, ["worker"], {**env, "ROLLOUTFLEET_POD": name}, logs)
        self.starts = 0
        self._ended = False

    async def keep_running(self) -> None:
        """Until `finish`."""
        while not self._ended:
            self.starts += 1
            await self.start()
            await self.wait()
            await asyncio.sleep(_RESTART_SECONDS)

    def finish(self) -> None:
        """Drains, and is not started again."""
        self._ended = True
        self.signal(signal.SIGTERM)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
