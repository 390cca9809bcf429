"""A fleet for each test: its own run, its own fake engine."""

from collections.abc import AsyncIterator

import pytest

from rolloutfleet.broker import Broker
from rolloutfleet.redis import connect
from tests.fakes.engine import FakeEngine
from tests.worker.fleet import Fleet


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers that look for themselves more often: nobody hints at a group whose delay is over."""
    monkeypatch.setattr("worker.hints.BLOCK_SECONDS", 0.1)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers that, without a hint, look for themselves later than any test waits."""
    monkeypatch.setattr("worker.hints.BLOCK_SECONDS", 600)
    monkeypatch.setattr("rolloutfleet.redis.BLOCK_SECONDS", 600)


@pytest.fixture
async def engine() -> AsyncIterator[FakeEngine]:
    async with FakeEngine() as fake:
        yield fake


@pytest.fixture
async def fleet(run: str, redis_url: str, engine: FakeEngine) -> AsyncIterator[Fleet]:
    async with connect(redis_url) as client:
        yield Fleet(Broker(client, run), redis_url, engine)
