"""Engines of a test's own, simulated or real, that a test may starve, freeze and kill."""

import asyncio
import os
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

from deploy.simulator import Simulator, SimulatorSettings
from tests.engine.client import client_of
from tests.engine.model import make_model
from tests.engine.servers import Server, Servers, group_of

REAL_OPTIONS = {
    "slots": "--max-running-requests",
    "max_queued_requests": "--max-queued-requests",
    "api_key": "--api-key",
}
SCHEDULER = b"scheduler"  # in the title that SGLang gives to the process


class OwnEngine(Protocol):
    """`freeze` stops what makes tokens, not what answers HTTP; `die` kills it; `terminate` is a SIGTERM."""

    @property
    def url(self) -> str: ...

    async def freeze(self) -> None: ...

    async def thaw(self) -> None: ...

    async def die(self) -> None: ...

    async def terminate(self) -> None: ...

    async def ended(self) -> None:
        """Returns when a terminated engine may be looked for; until then one in this process must be left alone: a
        connection that asyncio takes while its server closes is never answered."""
        ...

    def weights(self) -> Path:
        """Other weights of the same model."""
        ...


class SimulatedEngine:
    def __init__(self, simulator: Simulator, folder: Path) -> None:
        self._simulator = simulator
        self._folder = folder
        self.drain: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        return self._simulator.url

    async def freeze(self) -> None:
        await self._fault(stalled=True)

    async def thaw(self) -> None:
        await self._fault(stalled=False)

    async def die(self) -> None:
        self._simulator.dead.set()

    async def terminate(self) -> None:
        self.drain = asyncio.create_task(self._drain())

    async def ended(self) -> None:
        if self.drain is not None:
            await self.drain

    def weights(self) -> Path:
        return self._folder

    async def _drain(self) -> None:
        await self._simulator.drain()
        await self._simulator.stop()

    async def _fault(self, **faults: Any) -> None:
        async with client_of(self.url) as client:
            await client.post("/simulator/faults", faults)


class RealEngine:
    def __init__(self, server: Server, folder: Path) -> None:
        self._server = server
        self._folder = folder

    @property
    def url(self) -> str:
        return self._server.url

    async def freeze(self) -> None:
        os.kill(self._scheduler(), signal.SIGSTOP)

    async def thaw(self) -> None:
        os.kill(self._scheduler(), signal.SIGCONT)

    async def die(self) -> None:
        os.kill(self._scheduler(), signal.SIGKILL)

    async def terminate(self) -> None:
        self._server.signal(signal.SIGTERM)

    async def ended(self) -> None:
        """Another process answers to the end."""

    def weights(self) -> Path:
        return make_model(self._folder / "other", seed=1)

    def _scheduler(self) -> int:
        titles = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in group_of(self._server)}
        (found,) = [pid for pid, title in titles.items() if SCHEDULER in title]
        return found


@asynccontextmanager
async def own_engine(servers: Servers | None, folder: Path, settings: dict[str, Any]) -> AsyncGenerator[OwnEngine]:
    """Without `servers` a simulated one. Settings have the simulator's names."""
    if servers is None:
        quick: dict[str, Any] = {"speed": 1000, "half": 0, "health_seconds": 0, "health_timeout_seconds": 0.1}
        async with Simulator(SimulatorSettings(drain_check_seconds=0.02, **quick | settings)) as simulator:
            engine = SimulatedEngine(simulator, folder)
            yield engine
            if engine.drain is not None:
                engine.drain.cancel()
        return
    words = [word for name, value in settings.items() for word in (REAL_OPTIONS[name], str(value))]
    server = await asyncio.to_thread(servers.start, *words)
    try:
        await asyncio.to_thread(servers.wait, server)
        yield RealEngine(server, folder)
    finally:
        server.kill()
