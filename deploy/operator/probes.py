"""/healthz, /readyz and /metrics of the operator, on a small port.

A follower is ready as the leader is. /healthz fails when the loop has stood still for so long that only a new process
helps; an API server or a Redis that is away is no fault of this process.
"""

import time

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from deploy.operator.leader import Leader
from deploy.operator.loop import Loop

STUCK_SECONDS = 120.0


class Probes:
    """Served from the first moment on."""

    def __init__(self, registry: CollectorRegistry, loop: Loop, leader: Leader) -> None:
        self._registry = registry
        self._loop = loop
        self._leader = leader
        self._runner: web.AppRunner | None = None
        self.port = 0

    async def start(self, host: str, port: int) -> None:
        """Errors: OSError where the port is taken."""
        app = web.Application()
        routes = {"/healthz": self._healthz, "/readyz": self._readyz, "/metrics": self._metrics}
        app.add_routes([web.get(path, answer) for path, answer in routes.items()])
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
        await self._runner.setup()
        await web.TCPSite(self._runner, host, port).start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _healthz(self, _: web.Request) -> web.Response:
        still = time.monotonic() - self._loop.looked_at
        return web.Response(status=503 if still > STUCK_SECONDS else 200, text=f"last look {still:.0f} s ago\n")

    async def _readyz(self, _: web.Request) -> web.Response:
        if self._leader.is_leading:
            return web.Response(text="leads\n")
        if self._leader.holder:
            return web.Response(text=f"follows {self._leader.holder}\n")
        return web.Response(status=503, text="the Lease was not read yet: no API server, or no right to it\n")

    async def _metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=generate_latest(self._registry), headers={"Content-Type": CONTENT_TYPE_LATEST})
