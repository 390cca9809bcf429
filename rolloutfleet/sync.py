"""The trainer's client without asyncio: the same methods, on an event loop that runs in a thread of its own."""

import asyncio
import threading
from collections.abc import Coroutine, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rolloutfleet.batch import Batch
from rolloutfleet.broker import Submitted
from rolloutfleet.messages import CompletedGroup, PromptGroup
from rolloutfleet.policy import Mode
from rolloutfleet.reading import Outcome
from rolloutfleet.settings import RunConfig
from rolloutfleet.status import Status
from rolloutfleet.trainer import Trainer
from rolloutfleet.weights import Unused


class SyncTrainer:
    """What `Trainer` is, for code that blocks. Made by `connect`, used as a context manager, from one thread."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="rolloutfleet", daemon=True)

    @classmethod
    def connect(
        cls,
        url: str,
        run: str,
        consumer: str = "trainer",
        *,
        config: RunConfig | None = None,
        idle_seconds: float = 300,
        retry_seconds: float = 60,
    ) -> Self:
        """See Trainer.connect."""
        return cls(
            Trainer.connect(url, run, consumer, config=config, idle_seconds=idle_seconds, retry_seconds=retry_seconds)
        )

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self._call(self._trainer.__aenter__())
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """See Trainer.close. A second call does nothing."""
        if self._loop.is_closed():
            return
        if not self._thread.is_alive():  # it was never entered
            self._loop.close()
            return
        self._call(self._trainer.close())
        self._end()

    def submit(self, groups: Sequence[PromptGroup], *, max_queued: int | None = None) -> list[Submitted]:
        """See Trainer.submit."""
        return self._call(self._trainer.submit(groups, max_queued=max_queued))

    def take(self, most: int, timeout: float | None = None, *, version: int | None = None) -> list[CompletedGroup]:
        """See Trainer.take."""
        return self._call(self._trainer.take(most, timeout, version=version))

    def judge(self, groups: Sequence[CompletedGroup], version: int) -> list[CompletedGroup]:
        """See Trainer.judge."""
        return self._call(self._trainer.judge(groups, version))

    @contextmanager
    def batch(
        self, size: int, *, version: int | None = None, timeout: float | None = None
    ) -> Generator[Batch, None, None]:
        """See Trainer.batch."""
        block = self._trainer.batch(size, version=version, timeout=timeout)
        batch = self._call(block.__aenter__())
        try:
            yield batch
        except BaseException as error:
            self._call(block.__aexit__(type(error), error, error.__traceback__))
            raise
        self._call(block.__aexit__(None, None, None))

    def generate(
        self, groups: Sequence[PromptGroup], timeout: float | None = None, *, version: int | None = None
    ) -> list[Outcome]:
        """See Trainer.generate."""
        return self._call(self._trainer.generate(groups, timeout, version=version))

    def ack(self, groups: Sequence[CompletedGroup]) -> list[str]:
        """See Trainer.ack."""
        return self._call(self._trainer.ack(groups))

    def recycle(self, group: CompletedGroup) -> str:
        """See Trainer.recycle."""
        return self._call(self._trainer.recycle(group))

    def publish_weights(
        self, path: str | Path = "", label: str = "", mode: Mode = "retract", at_once: int = 0, *, sealed: bool = True
    ) -> int:
        """See Trainer.publish_weights."""
        return self._call(self._trainer.publish_weights(path, label, mode, at_once, sealed=sealed))

    def delete_old_weights(self, keep: int = 2) -> list[Unused]:
        """See Trainer.delete_old_weights."""
        return self._call(self._trainer.delete_old_weights(keep))

    def status(self) -> Status:
        return self._call(self._trainer.status())

    def _call[T](self, call: Coroutine[Any, Any, T]) -> T:
        if not self._thread.is_alive():  # nobody would ever answer
            call.close()
            raise RuntimeError(
                "the trainer is not connected: use it inside of `with SyncTrainer.connect(...) as trainer`"
            )
        future = asyncio.run_coroutine_threadsafe(call, self._loop)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()  # Ctrl-C while waiting: the wait must end, or its connection would be lost
            raise

    def _end(self) -> None:
        self._call(self._loop.shutdown_default_executor())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=10)
        self._loop.close()
