"""The trainer of a chaos run: takes, proves that each group is sound, acks; dies now and then with what it holds."""

import asyncio
import contextlib
from collections import Counter

from rolloutfleet.errors import BrokerUnavailable
from rolloutfleet.messages import CompletedGroup
from rolloutfleet.trainer import Trainer
from tests.chaos.hooks import checksum


class Crash(Exception):
    """The trainer dies in the middle of a step."""


class Consumer:
    """Takes until it is stopped. `trained` counts by id how often it was trained on; `unsound` says what was wrong."""

    def __init__(self, url: str, run: str, batch: int) -> None:
        self.trained: Counter[str] = Counter()
        self.born: dict[str, set[str]] = {}
        self.unsound: list[str] = []
        self.crashes = 0
        self._url, self._run, self._batch = url, run, batch
        self._crash = False
        self._ended = asyncio.Event()

    def crash(self) -> None:
        """The next step dies after it has trained on half of its batch."""
        self._crash = True

    def stop(self) -> None:
        self._ended.set()

    async def run(self) -> None:
        while not self._ended.is_set():
            with contextlib.suppress(Crash, BrokerUnavailable):
                await self._live()

    async def _live(self) -> None:
        async with Trainer.connect(self._url, self._run, "rank-0", idle_seconds=10) as trainer:
            while not self._ended.is_set():
                groups = await trainer.take(self._batch, timeout=0.5)
                self._check(groups)
                if self._crash and groups:
                    self._crash = False
                    self.crashes += 1
                    await self._ack(trainer, groups[: len(groups) // 2])
                    raise Crash
                await self._ack(trainer, groups)

    async def _ack(self, trainer: Trainer, groups: list[CompletedGroup]) -> None:
        if groups:
            await trainer.ack(groups)
            self.trained.update(group.id for group in groups)

    def _check(self, groups: list[CompletedGroup]) -> None:
        for group in groups:
            self.born.setdefault(group.id, set()).add(group.born)
            sums = tuple(
                checksum(token for row in sample.rows for token in row.ids.tolist()) for sample in group.samples
            )
            if group.rewards != sums:
                self.unsound.append(f"{group.id}: rewards {group.rewards} of samples whose checksums are {sums}")
            if [sample.index for sample in group.samples] != list(range(len(group.samples))):
                self.unsound.append(f"{group.id}: indices {[sample.index for sample in group.samples]}")
