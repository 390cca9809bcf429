"""The trainer of the main job: submits the prompt groups, and consumes completed ones in batches until all are over.

Invariants: it ends when every group that it submitted was trained on, is a dead letter or was dropped, or when it is
told to stop; it trains with the same client as any other trainer, and its steps only take time.
"""

import asyncio
import json
import time
from collections.abc import Iterable, Set
from contextlib import suppress
from dataclasses import dataclass
from itertools import batched
from pathlib import Path
from typing import IO

from deploy.local.seen import Seen
from rolloutfleet.batch import Batch
from rolloutfleet.messages import PromptGroup
from rolloutfleet.reading import find_lost
from rolloutfleet.trainer import Trainer

_SUBMIT = 500
_LOOK_SECONDS = 1.0  # how long a batch is waited for before it is asked whether groups were given up


@dataclass(frozen=True, slots=True)
class Steps:
    """Groups and seconds of a step; `weights`: where each writes what it publishes, None: it publishes nothing."""

    batch: int
    seconds: float
    weights: Path | None = None


class Consumer:
    """`run` submits and consumes. `open_groups` are submitted, and not over yet; `over` counts those that are."""

    def __init__(self, trainer: Trainer, steps: Steps, output: IO[str] | None, stop: asyncio.Event) -> None:
        self.seen = Seen()
        self.submitted = 0  # groups that the run had not finished before
        self.finished_before = 0
        self.over = 0
        self.open_groups: set[str] = set()
        self._is_submitting = True
        self._trainer = trainer
        self._steps = steps
        self._version = 0  # of the weights that the engines begin with
        self._output = output
        self._stop = stop
        self._server_ahead = 0.0  # server time less ours, in seconds

    async def run(self, groups: Iterable[PromptGroup]) -> None:
        """Errors: BrokerUnavailable."""
        seconds, micros = await self._trainer.broker.client.time()
        self._server_ahead = seconds + micros / 1e6 - time.time()
        self.seen.began_ms = self.server_ms()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._submit(groups))
            tasks.create_task(self._consume())

    def server_ms(self) -> float:
        return (time.time() + self._server_ahead) * 1000

    async def _submit(self, groups: Iterable[PromptGroup]) -> None:
        for some in batched(groups, _SUBMIT):
            if self._stop.is_set():
                break
            self.open_groups |= {group.id for group in some}
            words = await self._trainer.submit(some)
            # Those that we finished meanwhile are "done", too, if the call was repeated: an answer may be lost.
            done = {group.id for group, word in zip(some, words, strict=True) if word == "done"} & self.open_groups
            self._end(done)
            self.finished_before += len(done)
            self.submitted += len(some) - len(done)
        self._is_submitting = False

    async def _consume(self) -> None:
        while not self._stop.is_set() and (self._is_submitting or self.open_groups):
            most = self._steps.batch
            size = most if self._is_submitting else min(most, len(self.open_groups))
            version = None if self._steps.weights is None else self._version
            try:
                async with self._trainer.batch(size, version=version, timeout=_LOOK_SECONDS) as batch:
                    await self._train(batch)
                if self._steps.weights is not None:
                    await self._publish(self._steps.weights)
            except TimeoutError:
                self._end((await find_lost(self._trainer.broker, self.open_groups)).keys())

    async def _train(self, batch: Batch) -> None:
        self.seen.train(batch.groups)
        self._end({group.id for group in batch})
        for group in batch:
            if self._output is not None:
                self._output.write(json.dumps(group.to_json(), ensure_ascii=False) + "\n")
        with suppress(TimeoutError):  # a step takes its time, but the end is not waited for
            await asyncio.wait_for(self._stop.wait(), self._steps.seconds)
        self.seen.end_step(self.server_ms())

    async def _publish(self, weights: Path) -> None:
        """Weights in name only: simulated engines load any folder."""
        folder = weights / f"step-{len(self.seen.steps)}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "weights").write_text(f"step {len(self.seen.steps)}\n")
        self._version = await self._trainer.publish_weights(folder, label=folder.name)

    def _end(self, ids: Set[str]) -> None:
        ended = self.open_groups & ids
        self.open_groups -= ended
        self.over += len(ended)
