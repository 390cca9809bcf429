"""What keeps a worker from claiming: the engine down, the reward service away, told to drain, the wrong tokenizer, ...

Invariants: a worker with any cause does not claim; the engine is down after a few tries in a row of one request during
which nothing succeeded, or after a few failed probes, and up again when a probe finds it ready; a cause is logged when
it begins and when it ends.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Literal

log = logging.getLogger("worker.health")

# Of weights: `loading` while none are in use yet, `updating` while newer ones are loaded.
type Cause = Literal[
    "starting",
    "engine_down",
    "reward_down",
    "fingerprint",
    "logprobs",
    "draining",
    "no_run",
    "loading",
    "updating",
    "weights_failed",
]

TRIES_UNTIL_DOWN = 5
PROBES_UNTIL_DOWN = 3
_LONGEST_DOWN = 60.0


class Fitness:
    """The causes that hold now, with their reasons. `changed`, which the worker sets, is called after each change.

    Read from the heartbeat's thread, too.
    """

    def __init__(self) -> None:
        self._causes: dict[Cause, str] = {"starting": "waits for broker, engine and run"}
        self.changed: Callable[[], None] = lambda: None

    @property
    def is_fit(self) -> bool:
        return not self._causes

    @property
    def state(self) -> str:
        return self._first[0]

    @property
    def reason(self) -> str:
        return self._first[1]

    @property
    def _first(self) -> tuple[str, str]:
        """What is told: log-probabilities that were not looked at yet say the least, they wait for all else."""
        causes = list(self._causes.items())
        others = [cause for cause in causes if cause[0] != "logprobs"]
        return next(iter([*others, *causes]), ("ready", ""))

    def has(self, cause: Cause) -> bool:
        return cause in self._causes

    def why(self, cause: Cause) -> str:
        return self._causes.get(cause, "")

    def begin(self, cause: Cause, reason: str) -> None:
        if cause not in self._causes:
            log.warning("claims no more: %s (%s)", cause, reason)
            self._causes[cause] = reason
            self.changed()

    def restate(self, cause: Cause, reason: str) -> None:
        """The cause begins, or holds for another reason now."""
        if self._causes.get(cause, reason) != reason:
            log.warning("still claims nothing: %s (%s)", cause, reason)
            self._causes[cause] = reason
            self.changed()
        self.begin(cause, reason)

    def end(self, cause: Cause) -> None:
        if self._causes.pop(cause, None) is not None:
            log.info("%s is over", cause)
            self.changed()

    def set(self, cause: Cause, reason: str) -> None:
        """The cause holds if there is a reason."""
        if reason:
            self.begin(cause, reason)
        else:
            self.end(cause)


class EngineHealth:
    """Whether the engine is down, judged by requests and probes. `went_down` is called each time that it goes down."""

    def __init__(self, fitness: Fitness) -> None:
        self._fitness = fitness
        self._last_success = float("-inf")
        self._failed_probes = 0
        self._downs = 0  # in a row, without a success between them
        self._down_until = float("-inf")
        self.probe_now = asyncio.Event()
        self.went_down: Callable[[], None] = lambda: None

    @property
    def is_down(self) -> bool:
        return self._fitness.has("engine_down")

    def succeeded(self) -> None:
        self._last_success = time.monotonic()
        self._downs = 0

    def failed(self, error: Exception, tries: int, since: float) -> None:
        """A request failed for the `tries`-th time in a row; the first was at `since` (monotonic seconds)."""
        self.probe_now.set()
        if tries >= TRIES_UNTIL_DOWN and self._last_success < since:
            self._go_down(error)

    def probed(self, error: Exception | None) -> None:
        if error is None:
            self._failed_probes = 0
            if time.monotonic() >= self._down_until:
                self._fitness.end("engine_down")
            return
        self._failed_probes += 1
        if self._failed_probes >= PROBES_UNTIL_DOWN:
            self._go_down(error)

    def _go_down(self, error: Exception) -> None:
        if self.is_down:
            return
        # An engine that says it is ready and fails every request is tried again ever more rarely.
        self._down_until = time.monotonic() + min(_LONGEST_DOWN, 2.0**self._downs - 1)
        self._downs += 1
        self._fitness.begin("engine_down", str(error))
        self.went_down()
