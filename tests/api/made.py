"""Looks at a run that nobody had to run: a status, its points and its workers, with what a test changes of them."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from api.look import Look
from api.sampler import RunBook
from rolloutfleet.broker import Broker
from rolloutfleet.history import Point
from rolloutfleet.settings import RunConfig
from rolloutfleet.status import Status, WorkerStatus
from rolloutfleet.window import Reason, Window
from tests.fakes.broker import fake_client

NOW_MS = 1_764_433_380_000


def worker(name: str = "pod/1000", slots: int = 8, *, draining: bool = False, **facts: Any) -> WorkerStatus:
    return WorkerStatus(name, slots, 50.0, {"state": "ready", "busy": slots, **facts}, draining)


def status(*, stats: Mapping[str, int] | None = None, **changes: Any) -> Status:
    """A run with S = 16, n = 2, W = 8 and one busy worker, in which ten groups wait to be claimed."""
    window = Window(samples=16, n=2, active=4, outstanding=8)
    made = Status(
        run="math",
        config=RunConfig(sample_concurrency=16, n=2),
        window=replace(window, **changes.pop("window", {})),
        prompts=10,
        again=0,
        again_seconds=None,
        dead=0,
        stats={name: str(value) for name, value in (stats or {}).items()},
        gate="open",
        gate_seconds=3.0,
        workers=[worker()],
        state={"epoch": "1764433000.5"},
        now_ms=NOW_MS,
    )
    return replace(made, **changes)


def look(seen: Status | None = None, **changes: Any) -> Look:
    made = Look(
        status=seen or status(),
        prompts_ms=None,
        again_ms=None,
        waiting_ms=None,
        dead_ms=None,
        consumers=[],
        version=None,
        version_label=None,
        oldest_versions=[],
    )
    return replace(made, **changes)


def point(at: float, *, epoch: str = "1", behind: Mapping[str, int] | None = None, **counters: int) -> Point:
    return Point(
        at=at,
        at_ms=round(at * 1000),
        epoch=epoch,
        counters=counters,
        behind_ms=behind or {},
        reason=Reason.OPEN,
        busy=4,
        slots=8,
        active=2,
        waiting=0,
        queued=10,
        window=8,
    )


def book(seen: Look | None = None) -> RunBook:
    return RunBook(Broker(fake_client(), "math"), seen or look(), at=0.0)
