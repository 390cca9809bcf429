"""A training job of a test: prompt groups, a trainer that takes them, and the books of both.

Invariant: what is asserted is counted from what was handed out and from the broker's own counters, nothing from what
was intended.
"""

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

from rolloutfleet.answers import as_fields
from rolloutfleet.broker import Broker
from rolloutfleet.messages import PromptGroup
from rolloutfleet.settings import RunConfig
from rolloutfleet.trainer import Trainer
from tests.cluster.kube import Json, uid_of, until

N = 4
FINISH_SECONDS = 600
MAY_STAY = frozenset(
    {"state", "config", "policy", "stats", "done", "dead", "completed", "wake"}
    | {"workers", "capacity", "draining", "barred"}
)


class Job:
    """One run. `trained`: how often each group was trained on."""

    def __init__(self, trainer: Trainer, n: int) -> None:
        self.trainer, self.n = trainer, n
        self.submitted: list[str] = []
        self.trained: Counter[str] = Counter()
        self.problems: list[str] = []
        self._numbers = itertools.count(1)

    @property
    def broker(self) -> Broker:
        return self.trainer.broker

    async def submit(self, count: int, tokens: int = 60) -> list[str]:
        """Groups whose samples are all `tokens` long."""
        ids = [f"group-{next(self._numbers)}" for _ in range(count)]
        sampling = {"max_new_tokens": tokens, "ignore_eos": True}
        fields: dict[str, Any] = {"input_ids": [5, 6, 7], "label": "4", "n": self.n, "sampling_params": sampling}
        await self.trainer.submit([PromptGroup.make(fields | {"id": name}) for name in ids])
        self.submitted += ids
        return ids

    @asynccontextmanager
    async def training(self) -> AsyncGenerator[None]:
        """Trains on whatever is completed, in the background of the block."""
        over = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._train(over))
            try:
                yield
            finally:
                over.set()

    async def _train(self, over: asyncio.Event) -> None:
        while not over.is_set():
            groups = await self.trainer.take(16, timeout=1)
            for group in groups:
                self.trained[group.id] += 1
                if sorted(sample.index for sample in group.samples) != list(range(self.n)):
                    self.problems.append(f"{group.id} has {len(group.samples)} samples, and not {self.n}")
            await self.trainer.ack(groups)

    async def finished(self, seconds: float = FINISH_SECONDS) -> None:
        """All that was submitted has been trained on."""

        async def all_there() -> bool:
            return len(self.trained) >= len(self.submitted)

        await until(all_there, f"{len(self.submitted)} groups are trained on", seconds)

    async def assert_whole(self, *, zombies: bool = False) -> None:
        """Each group once, with n samples, none of which was made a second time; nothing is left of them.

        `zombies`: workers went on with groups that had been given to others, and brought what they had finished.
        """
        counts = await self.stats()
        assert self.problems == []
        assert self.trained == Counter(self.submitted)
        assert (counts.get("dead", 0), counts.get("dropped", 0)) == (0, 0)
        assert counts["samples"] == self.n * len(self.submitted)
        assert zombies or counts.get("samples_made_again", 0) == 0
        assert await self.left_keys() == []

    async def stats(self) -> dict[str, int]:
        (flat,) = await self.broker.calls.read([["HGETALL", self.broker.keys.named("stats")]])
        return {name: int(value) for name, value in as_fields(flat).items() if value.isdigit()}

    async def left_keys(self) -> list[str]:
        prefix = self.broker.keys.prefix
        keys = cast("AsyncIterator[bytes]", self.broker.client.scan_iter(match=f"{prefix}*"))
        found = [key.decode().removeprefix(prefix) async for key in keys]
        return sorted(set(found) - MAY_STAY)

    # Who holds what

    async def active(self) -> int:
        (leases,) = await self.broker.calls.read([["ZCARD", self.broker.keys.named("leases")]])
        return leases

    async def held(self) -> Counter[str]:
        """Worker (pod uid and start) -> groups that it holds."""
        (tokens,) = await self.broker.calls.read([["HKEYS", self.broker.keys.named("grants")]])
        return Counter("/".join(token.decode().split("/")[:2]) for token in tokens)

    async def held_by(self, pod: Json) -> int:
        return sum(count for worker, count in (await self.held()).items() if pod_of(worker) == uid_of(pod))

    async def busy(self) -> set[str]:
        """Uids of the pods that hold groups."""
        return {pod_of(worker) for worker in await self.held()}

    async def members(self, name: str) -> set[str]:
        """Uids of the pods whose workers are in `workers`, `draining` or `barred`."""
        (names,) = await self.broker.calls.read([["ZRANGE", self.broker.keys.named(name), 0, -1]])
        return {pod_of(worker.decode()) for worker in names}


def pod_of(worker: str) -> str:
    """The uid of a worker's pod."""
    return worker.split("/")[0]


@asynccontextmanager
async def connected(url: str, run: str, **config: Any) -> AsyncGenerator[Job]:
    """A connected trainer of a run with n = 4 and a place for each slot, unless the config says otherwise."""
    fields: dict[str, Any] = {"n": N, "sample_concurrency": "auto", "lease_seconds": 60, "retry_seconds": 0.5} | config
    trainer = Trainer.connect(url, run, config=RunConfig(**fields), retry_seconds=60)
    async with trainer:
        yield Job(trainer, fields["n"])
