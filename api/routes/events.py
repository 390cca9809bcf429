"""The snapshot as server-sent events: one each second, the same for all viewers."""

import asyncio
import time
from collections.abc import AsyncGenerator

from fastapi import APIRouter
from fastapi.responses import StreamingResponse

from api.publisher import Publisher
from api.refusals import responses
from api.routes.status import RunQuery
from api.service import ServiceOf

router = APIRouter(tags=["status"])

COMMENT_SECONDS = 15.0
_SEATS, _APART_SECONDS = 200, 0.004
_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
_STREAM = {
    "description": "Events `status`, each with a StatusReply as data.",
    "content": {"text/event-stream": {"schema": {"type": "string"}}},
}


@router.get("/events", response_class=StreamingResponse, responses={200: _STREAM, **responses(404, 422, 503)})
async def events(service: ServiceOf, run: RunQuery = None) -> StreamingResponse:
    """Now, and then each second: what /status answers. Ends when the service stops; browsers connect again."""
    if run is not None:
        await service.book(run)
    return StreamingResponse(stream(service.publisher, run), media_type="text/event-stream", headers=_HEADERS)


async def stream(publisher: Publisher, run: str | None) -> AsyncGenerator[bytes, None]:
    """The parts of the stream: a time to wait before connecting again, events, and a comment every 15 s."""
    with publisher.seat() as seat:
        yield b"retry: 2000\n\n"
        snapshot, commented = publisher.snapshot, time.monotonic()
        while not publisher.closing.is_set() and snapshot is not None:
            yield b"event: status\ndata: " + snapshot.encoded(run) + b"\n\n"
            if time.monotonic() - commented >= COMMENT_SECONDS:
                commented = time.monotonic()
                yield b": alive\n\n"
            snapshot = await publisher.next()
            # Not all at once: whoever asks for /status would wait until the last viewer was served.
            await asyncio.sleep(seat % _SEATS * _APART_SECONDS)
