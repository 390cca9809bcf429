"""The stream of snapshots: the same for all, each second, until the service closes."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from api.models import StatusReply
from api.publisher import Publisher, Snapshot
from api.routes import events
from api.routes.events import stream
from api.sampler import Sampler
from api.settings import ApiSettings
from tests.api.served import Served
from tests.fakes.broker import Fleet, fake_client

PATIENCE = 60


async def data(parts: AsyncIterator[bytes]) -> dict[str, Any]:
    """The data of the next event."""
    async with asyncio.timeout(PATIENCE):
        async for part in parts:
            if part.startswith(b"event: status\n"):
                return json.loads(part.split(b"data: ", 1)[1])
    raise AssertionError("the stream ended")


async def test_a_viewer_is_told_at_once_and_again(served: Served, fleet: Fleet, run: str):
    parts = stream(served.service.publisher, None)
    first, second = await data(parts), await data(parts)
    assert run in [one["name"] for one in first["runs"]]
    assert second["at_ms"] > first["at_ms"]
    await parts.aclose()


async def test_what_is_streamed_is_what_status_answers(served: Served, fleet: Fleet, run: str):
    parts = stream(served.service.publisher, None)
    assert StatusReply.model_validate(await data(parts)).runs != []
    await parts.aclose()


async def test_a_viewer_of_one_run_is_told_of_that_one(served: Served, fleet: Fleet, run: str):
    parts = stream(served.service.publisher, run)
    assert [one["name"] for one in (await data(parts))["runs"]] == [run]
    await parts.aclose()


async def test_a_viewer_of_a_wrong_run_is_404(served: Served):
    assert (await served.http.get("/events", params={"run": "nothing-of-this-name"})).status_code == 404


async def test_all_viewers_share_one_encoding(served: Served):
    snapshot = served.service.publisher.snapshot
    assert snapshot.encoded() is snapshot.encoded()


async def test_a_stream_ends_when_the_service_closes(served: Served):
    parts = stream(served.service.publisher, None)
    await data(parts)
    served.service.publisher.close()
    async with asyncio.timeout(PATIENCE):
        left = [part async for part in parts]
    assert left == []


async def test_a_quiet_stream_is_kept_alive_by_comments(served: Served, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(events, "COMMENT_SECONDS", 0.0)
    parts = stream(served.service.publisher, None)
    found = [await anext(parts) for _ in range(3)]
    assert found[-1].startswith(b":")
    await parts.aclose()


async def test_snapshots_go_on_while_nothing_is_read():
    settings = ApiSettings.model_validate({"redis_url": "redis://127.0.0.1:1"})
    async with fake_client() as client:
        publisher = Publisher(Sampler(client, 600), settings)  # nobody runs the sampler
        async with publisher.running():
            first: Snapshot = publisher.snapshot
            second = await publisher.next()
    assert second is not None
    assert second.reply.at_ms > first.reply.at_ms
