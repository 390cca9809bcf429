"""A run on fakeredis for what is only logic, and one on the real Valkey for what needs a clock, blocking or memory."""

from collections.abc import AsyncIterator

import pytest
import redis.asyncio
from hypothesis import HealthCheck, settings

from tests.fakes.broker import Fleet, fake_client

# A machine that is busy with other tests is slow, and that is no fault of what is tested.
settings.register_profile("library", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("library")


@pytest.fixture
async def fleet(run: str) -> AsyncIterator[Fleet]:
    """A run on fakeredis: S = 4, n = 2, W = 2."""
    async with fake_client() as client:
        yield await Fleet.make(client, run)


@pytest.fixture
async def real_fleet(client: redis.asyncio.Redis, run: str) -> Fleet:
    """The same on the session's Valkey."""
    return await Fleet.make(client, run)


@pytest.fixture
async def each_fleet(each_client: redis.asyncio.Redis, run: str) -> Fleet:
    """The same on each server of the matrix."""
    return await Fleet.make(each_client, run)
