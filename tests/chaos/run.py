"""One chaos run: a whole fleet of real processes, faults at a steady pace, and a verdict at the end."""

import asyncio
import contextlib
import tempfile
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from deploy.embedded import EmbeddedServer
from rolloutfleet.broker import Broker
from rolloutfleet.messages import PromptGroup
from rolloutfleet.redis import connect
from rolloutfleet.settings import RunConfig
from rolloutfleet.status import read_status
from tests.chaos.consumer import Consumer
from tests.chaos.faults import Injector
from tests.chaos.processes import Engine, Process, Worker, free_port
from tests.chaos.reward import RewardService
from tests.chaos.settings import ChaosSettings
from tests.chaos.verdict import Verdict, judge
from tests.fakes.proxy import Proxy

RUN = "chaos"


class ChaosRun:
    """Everything of one run. Workers and trainer talk to the broker through a proxy, the harness itself without."""

    def __init__(self, settings: ChaosSettings, logs: Path) -> None:
        self.settings = settings
        self.logs = logs
        self.server = EmbeddedServer(durability="always")
        self.reward = RewardService()
        self.engines: list[Engine] = []
        self.workers: list[Worker] = []
        self.ids: set[str] = set()

    async def run(self) -> Verdict:
        """Starts, breaks, waits for the end, judges."""
        began = time.monotonic()
        await asyncio.to_thread(self.server.start)
        self.proxy = Proxy("127.0.0.1", self.server.port)
        client = connect(self.server.url)
        self.broker = Broker(client, RUN, retry_seconds=60)
        try:
            async with self._fleet():
                injector = Injector(self)
                await self._work(injector)
                await self._drain()
                return await judge(self.broker, self.consumer, self.ids, time.monotonic() - began, injector.done)
        finally:
            await client.aclose()
            await asyncio.to_thread(self.server.close)

    @asynccontextmanager
    async def _fleet(self) -> AsyncGenerator[None, None]:
        await self.proxy.start()
        await self.reward.start()
        await self._configure()
        self.engines = [self._engine(number) for number in range(self.settings.engines)]
        self.workers = [self._worker(number) for number in range(self.settings.workers)]
        self.consumer = Consumer(self._proxied, RUN, batch=self.settings.window // 2)
        try:
            async with asyncio.TaskGroup() as group:
                for engine in self.engines:
                    await engine.start()
                self._running = [group.create_task(worker.keep_running()) for worker in self.workers]
                consuming = group.create_task(self.consumer.run())
                yield
                self.consumer.stop()
                await consuming
        finally:
            for process in [*self.workers, *self.engines]:
                await process.end()
            await self.reward.stop()
            await self.proxy.stop()

    async def _configure(self) -> None:
        settings = self.settings
        await self.broker.configure(
            RunConfig(
                sample_concurrency=settings.sample_concurrency,
                n=settings.n,
                refill=settings.refill,
                lease_seconds=settings.lease_seconds,
                group_seconds=120,
                retry_seconds=0.2,
                retry_cap_seconds=2,
            )
        )
        groups = [
            PromptGroup(id=f"g{number}", prompt=f"question {number}", metadata=self._mark(number))
            for number in range(settings.groups)
        ]
        self.ids = {group.id for group in groups}
        await self.broker.submit(groups)

    def _mark(self, number: int) -> str | None:
        every = self.settings.groups // (self.settings.poison + 1)
        return (
            "poison" if every and number and number % every == 0 and number // every <= self.settings.poison else None
        )

    async def _work(self, injector: "Injector") -> None:
        """Injects the next fault whenever enough groups are over; ends when all are."""
        end = time.monotonic() + self.settings.minutes * 60
        async with asyncio.TaskGroup() as group:
            while (over := await self._over()) < len(self.ids) and time.monotonic() < end:
                for fault in injector.due(over / len(self.ids)):
                    group.create_task(fault)
                await asyncio.sleep(0.1)

    async def _over(self) -> int:
        status = await read_status(self.broker)
        return status.stat("acked") + status.dead

    async def _drain(self) -> None:
        for worker in self.workers:
            worker.finish()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.gather(*self._running), 60)
        for task in self._running:
            task.cancel()  # a worker that does not end is shown by the keys that it leaves

    @property
    def _proxied(self) -> str:
        return f"redis://127.0.0.1:{self.proxy.port}/0"

    def _engine(self, number: int) -> Engine:
        options = ["--slots", str(self.settings.slots), "--seed", str(self.settings.seed + number), "--half", "0"]
        lengths = ["--speed", "400", "--mean-tokens", "60"]
        faults = [
            "--error-rate",
            "0.01",
            "--abort-rate",
            "0.01",
            "--queue-full-rate",
            "0.01",
            "--disconnect-rate",
            "0.005",
        ]
        return Engine(f"engine-{number}", free_port(), [*options, *lengths, *faults], self.logs)

    def _worker(self, number: int) -> Worker:
        engine = self.engines[number % len(self.engines)]
        return Worker(f"worker-{number}", {**self._worker_env(), "ROLLOUTFLEET_ENGINE_URL": engine.url}, self.logs)

    def _worker_env(self) -> dict[str, str]:
        return {
            "REDIS_URL": self._proxied,
            "ROLLOUTFLEET_RUN": RUN,
            "ROLLOUTFLEET_SLOTS": str(self.settings.slots),
            "ROLLOUTFLEET_GENERATE": "tests.chaos.hooks:generate",
            "ROLLOUTFLEET_REWARD_URL": self.reward.url,
            "ROLLOUTFLEET_MAX_NEW_TOKENS": "400",
            "ROLLOUTFLEET_REQUEST_TIMEOUT_SECONDS": "20",
            "ROLLOUTFLEET_DRAIN_SECONDS": "2",
            "ROLLOUTFLEET_ENGINE_PROBE_SECONDS": "1",
            "ROLLOUTFLEET_PROBE_HOST": "127.0.0.1",
        }

    @property
    def processes(self) -> list[Process]:
        return [*self.workers, *self.engines]


async def run_chaos(settings: ChaosSettings) -> tuple[Verdict, str]:
    """The verdict, and the ends of the processes' logs where it does not hold."""
    with tempfile.TemporaryDirectory() as logs:
        run = ChaosRun(settings, Path(logs))
        verdict = await run.run()
        tails = "" if verdict.holds else "\n".join(f"--- {one.name}\n{one.tail()}" for one in run.processes)
        return verdict, tails
