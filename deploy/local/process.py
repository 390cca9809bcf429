"""A process of the fleet that is kept running: started again when it is killed or dies, until it is told to stop.

Invariants: leaving `run`, however that happens, leaves no process behind; deaths that nobody asked for are told and
bounded; what a process writes goes into its log.
"""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

# In a row, each within _LONG_LIFE_SECONDS of its start. More than the attempts of a group that kills its worker.
MOST_DEATHS = 8
_LONG_LIFE_SECONDS = 30.0
_DELAY_SECONDS = 0.5
_TAIL_LINES = 20
_PACKAGES = Path(__file__).parents[2]


class ChildFailed(RuntimeError):
    """A process dies as often as it is started; the message ends with the tail of its log."""


@dataclass(frozen=True, slots=True)
class Command:
    """`python -m module arguments`, with variables added to our environment. `name` is shown to people.

    `once`: arguments of the first start only; what makes a process die would otherwise make each one die.
    """

    name: str
    module: str
    arguments: Sequence[str] = ()
    once: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict[str, str])


class Child:
    """`run` starts the process and keeps it running. `stop` and `kill` may be called at any time."""

    def __init__(self, command: Command, log: Path, say: Callable[[str], None]) -> None:
        self.name = command.name
        self.log = log
        self.starts = 0
        self.deaths = 0  # that nobody asked for
        self._command = command
        self._say = say
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = False
        self._was_killed = False
        self._began = time.monotonic()

    @property
    def age_seconds(self) -> float:
        """How long the process runs."""
        return 0.0 if self.pid is None else time.monotonic() - self._began

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""
        return self._process.pid if self._process is not None and self._process.returncode is None else None

    async def run(self) -> None:
        """Until `stop`. Errors: ChildFailed."""
        deaths = 0
        try:
            while not self._stopping:
                code = await self._run_once()
                if self._stopping or self._was_killed:
                    self._was_killed = False
                    continue
                deaths = 1 if time.monotonic() - self._began > _LONG_LIFE_SECONDS else deaths + 1
                await self._after_death(code, deaths)
        finally:
            await self._end()

    def kill(self) -> bool:
        """SIGKILL, and a new process in its place; whether there was one."""
        if self.pid is None or self._stopping:
            return False
        self._was_killed = True
        self._send(signal.SIGKILL)
        return True

    def stop(self, which: signal.Signals = signal.SIGTERM) -> None:
        """Asks it to end, and starts it no more."""
        self._stopping = True
        self._send(which)

    def tail(self) -> str:
        """The last lines of its log."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join(text.splitlines()[-_TAIL_LINES:])

    async def _run_once(self) -> int:
        with self.log.open("ab") as log:
            self._process = await self._spawn(log)
        self.starts += 1
        self._began = time.monotonic()
        if self._stopping:  # told while it was being started
            self._send(signal.SIGTERM)
        return await self._process.wait()

    async def _spawn(self, log: IO[bytes]) -> asyncio.subprocess.Process:
        paths = [str(_PACKAGES), *filter(None, [os.environ.get("PYTHONPATH")])]
        return await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "deploy.local.child", str(os.getpid()), self._command.module),
            *self._command.arguments,
            *(self._command.once if self.starts == 0 else ()),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={
                **os.environ,
                **self._command.environment,
                "PYTHONPATH": os.pathsep.join(paths),
                "PYTHONUNBUFFERED": "1",
            },
            start_new_session=True,  # a terminal's Ctrl-C is ours: we stop the workers while the broker still runs
        )

    async def _after_death(self, code: int, deaths: int) -> None:
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        # A wrong setting does not mend itself.
        if deaths > MOST_DEATHS or code == 2:
            raise ChildFailed(f"{self.name} died ({how}); its log {self.log.name} ends:\n{self.tail()}")
        self.deaths += 1
        self._say(f"{self.name} died ({how}): started again")
        await asyncio.sleep(_DELAY_SECONDS * (deaths - 1))

    async def _end(self) -> None:
        if self.pid is not None:
            self._send(signal.SIGKILL)
        if self._process is not None:
            await self._process.wait()

    def _send(self, which: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            try:
                self._process.send_signal(which)
            except ProcessLookupError:  # it ended just now
                return
