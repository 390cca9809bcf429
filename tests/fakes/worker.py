"""A worker in this process: claims on a real broker, stores samples and completes, without an engine.

It follows the same steps as a worker on a pod, so a trainer can't tell the difference.
"""

import asyncio
import itertools
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from rolloutfleet.broker import Beat, Broker, Finished
from rolloutfleet.messages import Grant
from rolloutfleet.redis import Client, connect
from rolloutfleet.settings import RunConfig
from tests.fakes.broker import group, sample

IDLE_SECONDS = 0.01
UNTIL_SECONDS = 15


class InstantWorker:
    """Finishes what it claims at once. `version` made the samples.

    `rejects` and `drops`: id of a group -> reason for which it becomes a dead letter, or is filtered.
    """

    def __init__(
        self,
        broker: Broker,
        name: str = "pod/1000",
        *,
        version: int = 0,
        rejects: Mapping[str, str] | None = None,
        drops: Mapping[str, str] | None = None,
    ) -> None:
        self.broker, self.name, self.version = broker, name, version
        self._rejects, self._drops = rejects or {}, drops or {}
        self._bases = itertools.count(1)

    async def step(self, most: int = 8) -> list[str]:
        """One claim, and the end of what it was granted: the ids."""
        claim = await self.broker.claim(self.name, f"{self.name}/{next(self._bases)}", most)
        for grant in claim.grants:
            await self.end(grant)
        return [grant.id for grant in claim.grants]

    async def end(self, grant: Grant) -> None:
        if grant.id in self._rejects:
            await self.broker.release(grant.token, "reject", self._rejects[grant.id])
        elif grant.id in self._drops:
            await self.broker.drop(grant.token, self._drops[grant.id])
        else:
            await self._complete(grant)

    async def _complete(self, grant: Grant) -> None:
        data = {index: sample(index, version=self.version).encode() for index in grant.missing}
        await self.broker.put([Finished(grant.id, grant.born, index, it, b"\1\0\0\0") for index, it in data.items()])
        rewards = json.dumps([float(index) for index in range(grant.n)])
        versions = json.dumps([self.version, self.version])
        fields = {"rewards": rewards, "group_reward": "null", "versions": versions, "worker": self.name}
        await self.broker.complete(grant, fields)

    async def beat(self, slots: int = 8, **facts: Any) -> None:
        await self.broker.heartbeat(Beat(self.name, (), slots, {"state": "ready", **facts}))

    async def run(self) -> None:
        """Works until it is cancelled."""
        while True:
            if not await self.step():
                await asyncio.sleep(IDLE_SECONDS)


@asynccontextmanager
async def working(url: str, run: str, **options: Any) -> AsyncGenerator[InstantWorker, None]:
    """A worker of its own connection that works in the background of the block."""
    async with connect(url) as client:
        worker = InstantWorker(Broker(client, run), **options)
        task = asyncio.create_task(worker.run())
        try:
            yield worker
        finally:
            task.cancel()
            await asyncio.wait([task])
            if not task.cancelled() and task.exception():
                raise task.exception() or AssertionError


async def make_run(client: Client, run: str, **settings: Any) -> Broker:
    """A run with n = 2 and room for a hundred groups, unless the settings say otherwise."""
    broker = Broker(client, run, retry_seconds=5)
    await broker.configure(RunConfig.model_validate({"sample_concurrency": 200, "n": 2, **settings}))
    return broker


async def until(fact: Callable[[], Awaitable[object]], what: str = "the fact") -> None:
    """Waits for a fact; a fault if it doesn't come true."""
    async with asyncio.timeout(UNTIL_SECONDS):
        while not await fact():  # noqa: ASYNC110 - the fact lies in another process: nothing sets an Event
            await asyncio.sleep(IDLE_SECONDS)


async def complete(broker: Broker, *ids: str, version: int = 0) -> None:
    """Submits these groups, and an instant worker completes them in this order."""
    await broker.submit([group(group_id) for group_id in ids])
    done: list[str] = []
    while len(done) < len(ids):
        done += await InstantWorker(broker, version=version).step(len(ids))
    assert done == list(ids)
