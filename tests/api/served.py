"""The application in this process, and what tests ask of it."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
from fastapi import FastAPI

from api.app import create_app
from api.service import Service
from api.settings import ApiSettings

TOKEN = "a-token-of-the-tests"
BEARER = {"Authorization": f"Bearer {TOKEN}"}


@dataclass(frozen=True, slots=True)
class Served:
    """A running service. `http` reaches it without a socket."""

    app: FastAPI
    http: httpx.AsyncClient

    @property
    def service(self) -> Service:
        return self.app.state.service

    async def get(self, path: str, **query: Any) -> Any:
        """The JSON of an answer that must be 200."""
        answer = await self.http.get(path, params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def post(self, path: str, body: dict[str, Any] | None = None) -> Any:
        """The JSON of an action, with the token, that must be 200."""
        answer = await self.http.post(path, json=body, headers=BEARER)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def run(self, run: str) -> dict[str, Any]:
        """The run as a fresh look shows it."""
        if run in self.service.sampler.books:
            await self.service.sampler.look()
            self.service.publisher.snapshot = self.service.publisher.make()
        return (await self.get(f"/status/{run}"))["run"]


@asynccontextmanager
async def serving(url: str, **settings: Any) -> AsyncGenerator[Served, None]:
    """The service over this Redis."""
    app = create_app(ApiSettings.model_validate({"redis_url": url, **settings}))
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://api") as http,
    ):
        yield Served(app, http)
