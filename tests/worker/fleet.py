"""What tests of the worker share: a run on a real Valkey, a fake engine, and workers in this process."""

import asyncio
import inspect
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from rolloutfleet.answers import as_fields
from rolloutfleet.broker import Broker, Entry, Finished
from rolloutfleet.messages import PromptGroup, Row, Sample
from rolloutfleet.settings import RunConfig
from tests.fakes.engine import FakeEngine
from worker.settings import WorkerSettings
from worker.start import serve
from worker.waits import within
from worker.worker import Stop

PATIENCE = 120.0


async def until(fact: Callable[[], Any | Awaitable[Any]], seconds: float = PATIENCE) -> Any:
    """Waits for a fact, and gives it. Fails when it doesn't come."""
    end = time.monotonic() + seconds
    while True:
        found = fact()
        if inspect.isawaitable(found):
            found = await found
        if found:
            return found
        assert time.monotonic() < end, f"it never came true: {inspect.getsource(fact).strip()}"
        await asyncio.sleep(0.01)


@asynccontextmanager
async def hints(fleet: "Fleet") -> AsyncGenerator[None]:
    """Hints now and then, for workers in processes of their own: nobody hints at a group whose delay is over."""
    over = asyncio.Event()

    async def hint() -> None:
        while not await within(over, 0.05):
            await fleet.broker.calls.read([["LPUSH", fleet.broker.keys.named("wake"), "1"]])
            await fleet.broker.calls.read([["LTRIM", fleet.broker.keys.named("wake"), 0, 0]])

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(hint())
        try:
            yield
        finally:
            over.set()


class Worked:
    """A worker that runs in this process."""

    def __init__(self, settings: WorkerSettings) -> None:
        self.stop = Stop()
        self.running = asyncio.create_task(serve(settings, self.stop))

    async def ended(self) -> int:
        """Its exit code."""
        async with asyncio.timeout(PATIENCE):
            return await self.running


class Fleet:
    """One run: what a test does to it, and sees of it."""

    def __init__(self, broker: Broker, redis_url: str, engine: FakeEngine) -> None:
        self.broker = broker
        self.redis_url = redis_url
        self.engine = engine

    async def configure(self, **config: Any) -> None:
        fields: dict[str, Any] = {"n": 2, "sample_concurrency": 64, "retry_seconds": 0.05}
        await self.broker.configure(RunConfig(**fields | config))

    async def submit(self, *ids: str, **fields: Any) -> None:
        group: dict[str, Any] = {"input_ids": [5, 6], "label": "4"} | fields
        await self.broker.submit([PromptGroup.make(group | {"id": name}) for name in ids])

    async def submit_made(self, *ids: str, n: int = 1, **fields: Any) -> None:
        """Groups whose samples an earlier holder has stored, so that they need only be scored."""
        await self.submit(*ids, **fields)
        for grant in (await self.broker.claim("earlier/1", f"earlier/1/{ids[0]}", len(ids))).grants:
            made = [Finished(grant.id, grant.born, index, sample(index).encode()) for index in range(n)]
            await self.broker.put(made)
            await self.broker.release(grant.token, "free")

    async def push(self, *entries: bytes) -> None:
        """Raw entries, as any producer may RPUSH them."""
        await self.broker.calls.read([["RPUSH", self.broker.keys.named("prompts"), *entries]])
        await self.broker.calls.read([["LPUSH", self.broker.keys.named("wake"), "1"]])

    def settings(self, **settings: Any) -> WorkerSettings:
        base: dict[str, Any] = {
            "redis_url": self.redis_url,
            "run": self.broker.keys.run,
            "pod": "pod",
            "engine_url": self.engine.url,
            "engine_probe_seconds": 0.1,
            "probe_host": "127.0.0.1",
            "drain_seconds": 10,
            "heartbeat_seconds": 0.1,
        }
        return WorkerSettings(**base | settings)

    @asynccontextmanager
    async def worker(self, **settings: Any) -> AsyncGenerator[Worked]:
        worked = Worked(self.settings(**settings))
        try:
            yield worked
        finally:
            worked.stop.ask()
            worked.stop.ask()
            await worked.ended()

    async def completed(self, count: int) -> list[Entry]:
        """Takes and acks so many completed groups, in the order in which they were completed."""
        found: list[Entry] = []

        async def all_there() -> bool:
            _, entries = await self.broker.take("trainer", count - len(found))
            found.extend(entries)
            return len(found) == count

        await until(all_there)
        await self.broker.ack([entry.entry for entry in found])
        return found

    async def dead(self, count: int = 1) -> list[dict[str, str]]:
        """The dead letters, once there are so many."""

        async def letters() -> list[Any]:
            (found,) = await self.broker.calls.read([["XRANGE", self.broker.keys.named("dead"), "-", "+"]])
            return found if len(found) >= count else []

        fields = [as_fields(flat) for _, flat in await until(letters)]
        return [{name: value.decode(errors="replace") for name, value in letter.items()} for letter in fields]

    async def stat(self, name: str) -> int:
        (value,) = await self.broker.calls.read([["HGET", self.broker.keys.named("stats"), name]])
        return int(value or 0)

    async def facts(self, text: str) -> bool:
        """Whether a live worker's facts hold this text."""
        (flat,) = await self.broker.calls.read([["HVALS", self.broker.keys.named("capacity")]])
        return any(text.encode() in value for value in flat)

    async def active(self) -> int:
        (leases,) = await self.broker.calls.read([["ZCARD", self.broker.keys.named("leases")]])
        return leases


def sample(index: int, ids: tuple[int, ...] = (9, 9), text: str = "#### 4", version: int = 3) -> Sample:
    return Sample(index, "stop", (Row.make(ids, [-1.0] * len(ids), version),), text)
