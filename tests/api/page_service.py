"""A service whose snapshots a test writes: what the page does with what it is told, without Redis and its clocks."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any

from fastapi import FastAPI, HTTPException
from fastapi.responses import StreamingResponse

from api.group_models import DeadLetterRow, DeadPage
from api.models import History, StatusReply
from api.page import page_router
from tests.api import page_data

SECONDS = 0.1  # between two events; the page must not care


class FakeService:
    """`reply` makes each snapshot. `is_silent`: the stream stands still; `is_down`: only the page is served."""

    def __init__(self) -> None:
        self.url = ""  # where it listens
        self.reply: Callable[[], StatusReply] = page_data.reply
        self.letters: list[DeadLetterRow] = []
        self.is_silent = self.is_down = self.is_closing = False
        self.app = FastAPI(docs_url=None)
        self.app.include_router(page_router())
        self.app.add_api_route("/events", self.events)
        self.app.add_api_route("/status/{run}/history", self.history)
        self.app.add_api_route("/status/{run}/dead", self.dead)
        self.app.add_api_route("/audit", self.audit)

    def says(self, *runs: Any, **changes: Any) -> None:
        """From now on the snapshots are these."""
        self.reply = lambda: page_data.reply(*runs, **changes)

    async def events(self) -> StreamingResponse:
        self._refuse_if_down()
        return StreamingResponse(self._stream(), media_type="text/event-stream")

    async def _stream(self) -> AsyncGenerator[str, None]:
        while not (self.is_down or self.is_closing):
            if not self.is_silent:
                yield f"event: status\ndata: {self.reply().model_dump_json()}\n\n"
            await asyncio.sleep(SECONDS)

    async def history(self, run: str) -> History:
        self._refuse_if_down()
        return page_data.history(run)

    async def dead(self, run: str) -> DeadPage:
        self._refuse_if_down()
        return DeadPage(run=run, total=len(self.letters), letters=self.letters, next=None)

    async def audit(self) -> dict[str, list[str]]:
        return {"records": []}

    def _refuse_if_down(self) -> None:
        if self.is_down:
            raise HTTPException(503, "away")
