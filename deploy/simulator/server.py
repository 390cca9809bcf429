"""A simulated engine on a port: `async with Simulator(settings) as engine: engine.url`.

- It serves from `start` to `stop`, unless it dies: a request that would end the real engine, or a fault, then
  closes the port and every connection at once.
- Between the ends of requests nothing runs: one timer waits for the next one.
"""

import asyncio
import hmac
from collections.abc import Callable
from types import TracebackType
from typing import Self

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from deploy.simulator.control import ControlRoutes
from deploy.simulator.engine import Engine
from deploy.simulator.generate import GenerateRoute
from deploy.simulator.service import Service
from deploy.simulator.settings import SimulatorSettings

# Prompts of a whole context as JSON numbers are some MiB.
_LARGEST_BODY = 256 << 20
_BACKLOG = 4096
# Ends of requests that are nearer together share a wake-up; each still happens at its own instant.
_LEAST_WAIT_SECONDS = 0.001
_OPEN_PATHS = ("/health", "/ready", "/metrics")


class Simulator:
    """One engine. `died`, if given, is called instead of closing the port when the engine is to die."""

    def __init__(self, settings: SimulatorSettings | None = None, died: Callable[[], None] | None = None) -> None:
        self.settings = settings or SimulatorSettings()
        self.port = 0
        self.dead = asyncio.Event()
        self._pump = Pump()
        self.service = Service(self.settings, self._pump.arm)
        self._pump.engine = self.service.engine
        self._died = died or self.dead.set
        self._runner: web.AppRunner | None = None
        self._undertaker: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        return f"http://{self.settings.host}:{self.port}"

    async def start(self) -> None:
        """Binds; `port` and `url` hold from here on. Raises OSError when the port is taken."""
        runner = web.AppRunner(self._app(), access_log=None, handler_cancellation=True, shutdown_timeout=0.5)
        await runner.setup()
        site = web.TCPSite(runner, self.settings.host, self.settings.port, backlog=_BACKLOG)
        try:
            await site.start()
        except OSError:
            await runner.cleanup()
            raise
        self._runner = runner
        self.port = runner.addresses[0][1]
        self._undertaker = asyncio.create_task(self._bury(runner, site))

    async def stop(self) -> None:
        """Closes the port and ends what still runs. Twice is once."""
        if self._undertaker is not None:
            self._undertaker.cancel()
            await asyncio.wait({self._undertaker})
            self._undertaker = None
        self._pump.stop()
        if self._runner is not None:
            runner, self._runner = self._runner, None
            _drop_connections(runner)
            await runner.cleanup()

    async def drain(self) -> None:
        """As the real engine after SIGTERM: goes on serving, and returns when it is found idle, which is looked for
        now and then."""
        self.service.is_draining = True
        while not self.service.engine.is_idle and not self.dead.is_set():
            try:
                async with asyncio.timeout(self.settings.drain_check_seconds):
                    await self.dead.wait()
            except TimeoutError:
                self.service.engine.settle()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def _app(self) -> web.Application:
        guards = [] if self.settings.api_key is None else [_key_guard(self.settings.api_key)]
        app = web.Application(client_max_size=_LARGEST_BODY, middlewares=guards)
        generate = GenerateRoute(self.service, self._died)
        app.add_routes([web.post("/generate", generate.__call__), web.put("/generate", generate.__call__)])
        app.add_routes(ControlRoutes(self.service, self._died).routes())
        return app

    async def _bury(self, runner: web.AppRunner, site: web.TCPSite) -> None:
        await self.dead.wait()
        await site.stop()
        _drop_connections(runner)


class Pump:
    """Wakes the engine when its next request ends, and at no other time."""

    def __init__(self) -> None:
        self.engine: Engine | None = None
        self._timer: asyncio.TimerHandle | None = None

    def arm(self) -> None:
        """Be awake at the next end. A timer that is too early does no harm: it finds nothing due and arms again."""
        wait = self.engine.seconds_to_next() if self.engine else None
        if wait is None:
            return
        loop = asyncio.get_running_loop()
        due = loop.time() + max(wait, _LEAST_WAIT_SECONDS)
        if self._timer is not None:
            if self._timer.when() <= due:
                return
            self._timer.cancel()
        self._timer = loop.call_at(due, self._wake)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        self.engine = None

    def _wake(self) -> None:
        self._timer = None
        if self.engine is not None:
            self.engine.settle()
            self.arm()


def _drop_connections(runner: web.AppRunner) -> None:
    if runner.server is None:
        return
    for connection in list(runner.server.connections):
        if connection.transport is not None:
            connection.transport.abort()


def _key_guard(key: str) -> Middleware:
    expected = f"Bearer {key}".encode()

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        given = request.headers.get("Authorization", "").encode("utf-8", "surrogateescape")
        if request.path.startswith(_OPEN_PATHS) or hmac.compare_digest(given, expected):
            return await handler(request)
        return web.json_response({"error": "Unauthorized"}, status=401)

    return guard
