"""What each page of the tour begins with: a broker of a run that is configured, on a real server."""

import pytest
import redis.asyncio

from rolloutfleet import RunConfig
from rolloutfleet.broker import Broker


@pytest.fixture
async def broker(client: redis.asyncio.Redis, run: str) -> Broker:
    """A run whose window is W = ceil(sample_concurrency / n) = 2 groups of 2 samples."""
    broker = Broker(client, run)
    await broker.configure(RunConfig(sample_concurrency=4, n=2, lease_seconds=0.5, retry_seconds=0.01))
    return broker
