"""The application: the parts are made here and handed to the routes through `app.state.service`."""

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from fastapi import FastAPI

from api import refusals
from api.connection import connect_plain
from api.page import page_router
from api.publisher import Publisher
from api.routes import actions, demand, events, groups, probes, status
from api.sampler import Sampler
from api.service import Service
from api.settings import ApiSettings

type Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]


def create_app(settings: ApiSettings) -> FastAPI:
    """The service over one Redis. Nothing is connected until it starts."""
    app = FastAPI(
        title="rolloutfleet",
        summary="Why is the fleet idle, since when, and what to do about it.",
        lifespan=_lifespan(settings),
        docs_url="/docs",
        redoc_url=None,
    )
    for router in (status.router, groups.router, demand.router, events.router, actions.router, probes.router):
        app.include_router(router)
    app.include_router(page_router())
    refusals.install(app)
    return app


def _lifespan(settings: ApiSettings) -> Lifespan:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None, None]:
        client = connect_plain(settings.redis_url)
        sampler = Sampler(client, settings.stuck_seconds)
        service = Service(settings, client, sampler, Publisher(sampler, settings))
        async with service.running():
            app.state.service = service
            yield

    return lifespan
