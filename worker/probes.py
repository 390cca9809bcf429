"""/healthz, /readyz and /metrics on a small port.

/healthz is served by the main loop, so that it fails exactly when that is stuck; /readyz says why the worker isn't
ready.
"""

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from worker.health import Cause, Fitness
from worker.heartbeat import Heart

NOT_READY: tuple[Cause, ...] = (
    "starting",
    "engine_down",
    "fingerprint",
    "logprobs",
    "no_run",
    "loading",
    "weights_failed",
)


class Probes:
    """Served from the first moment on; `heart` is set when it beats."""

    def __init__(self, registry: CollectorRegistry, fitness: Fitness) -> None:
        self._registry = registry
        self._fitness = fitness
        self.heart: Heart | None = None
        self._runner: web.AppRunner | None = None
        self.port = 0

    async def start(self, host: str, port: int) -> None:
        """Errors: OSError where the port is taken."""
        app = web.Application()
        app.add_routes(
            [
                web.get("/healthz", self._healthz),
                web.get("/readyz", self._readyz),
                web.get("/metrics", self._metrics),
            ]
        )
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
        await self._runner.setup()
        await web.TCPSite(self._runner, host, port).start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    def why_not_ready(self) -> str:
        """The reason, or nothing. A worker that is told to drain, whose reward service is away, or that goes from one
        version of the weights to the next, is ready."""
        for cause in NOT_READY:
            if self._fitness.has(cause):
                return f"{cause}: {self._fitness.why(cause)}"
        return "" if self.heart is not None and self.heart.is_answered else "Redis does not answer"

    async def _healthz(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, _: web.Request) -> web.Response:
        reason = self.why_not_ready()
        return web.Response(status=503 if reason else 200, text=f"{reason or 'ready'}\n")

    async def _metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=generate_latest(self._registry), headers={"Content-Type": CONTENT_TYPE_LATEST})
