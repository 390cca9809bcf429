"""The process around the application: one uvicorn server that ends its streams before it waits for them."""

import asyncio
import logging
import signal
import socket
from collections.abc import Generator
from contextlib import contextmanager

import uvicorn
from fastapi import FastAPI

from api.app import create_app
from api.service import Service
from api.settings import ApiSettings

log = logging.getLogger("api")

_GRACE_SECONDS = 1  # for requests that are under way at SIGTERM; streams end at once
_BACKLOG = 2048


class Server(uvicorn.Server):
    """On shutdown uvicorn waits for open connections, and an event stream would stay open for ever."""

    def __init__(self, app: FastAPI, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._app = app

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """A signal ends the process in order, with code 0; uvicorn would raise it once more at the end."""
        loop, signals = asyncio.get_running_loop(), (signal.SIGTERM, signal.SIGINT)
        for which in signals:
            loop.add_signal_handler(which, self.handle_exit, which, None)
        try:
            yield
        finally:
            for which in signals:
                loop.remove_signal_handler(which)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        service: Service = self._app.state.service
        service.publisher.close()
        await super().shutdown(sockets)


def serve(settings: ApiSettings) -> int:
    """Listens until a signal ends it; the exit code."""
    try:
        listener = listen(settings)
    except OSError as error:
        log.error("can't listen on %s port %d: %s", settings.host, settings.port, error)
        return 1
    log.info("listening on http://%s:%d", *listener.getsockname()[:2])
    app = create_app(settings)
    config = uvicorn.Config(
        app,
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_GRACE_SECONDS,
    )
    server = Server(app, config)
    asyncio.run(server.serve(sockets=[listener]))
    return 0 if server.started else 1


def listen(settings: ApiSettings) -> socket.socket:
    """The socket that answers come from. Errors: OSError."""
    listener = socket.create_server((settings.host, settings.port), family=_family(settings.host), backlog=_BACKLOG)
    # asyncio does this only for sockets that say they are TCP; without it an answer waits 40 ms for an ACK.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
