"""A run on the session's Valkey, and the service over it."""

from collections.abc import AsyncIterator

import pytest

from api.connection import connect_plain
from tests.api.served import TOKEN, Served, serving
from tests.fakes.broker import Fleet


@pytest.fixture
async def fleet(redis_url: str, run: str) -> AsyncIterator[Fleet]:
    """S = 4, n = 2, W = 2."""
    async with connect_plain(redis_url) as client:
        yield await Fleet.make(client, run)


@pytest.fixture
async def served(redis_url: str, fleet: Fleet) -> AsyncIterator[Served]:
    """The service, with actions, begun when the run was there."""
    async with serving(redis_url, token=TOKEN) as served:
        yield served
