"""Slots busy with real worker processes, each beside a simulated engine that speaks SGLang's HTTP API.

The engines live in this process: eight more processes would take the CPU time that is measured with.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from bench.fleet import Auto, Consumer, Size, in_background
from bench.place import Place
from bench.rows import Row, Target, at_least, near
from bench.trial import ENGINES, SLOTS, N
from deploy.simulator.server import Simulator
from deploy.simulator.settings import SimulatorSettings
from rolloutfleet.broker import Broker
from rolloutfleet.messages import PromptGroup
from rolloutfleet.window import Refill

MEAN_TOKENS = 200
SPEED = 40.0  # tokens per second of each request: a sample of mean length takes 5 s
LOOK_SECONDS = 0.05
START_SECONDS = 90.0
STOP_SECONDS = 10.0
ROOT = Path(__file__).parent.parent


async def measure(place: Place, refill: Refill, overcommit: int | Auto) -> Sequence[Row]:
    """The share of busy slots in the middle of a run of the default mixture."""
    settings = [_engine(number) for number in range(ENGINES)]
    config = Size(SLOTS, N, refill, overcommit).config(ENGINES).model_copy(update={"lease_seconds": 30})
    async with AsyncExitStack() as stack:
        broker = await stack.enter_async_context(place.broker())
        reader = await stack.enter_async_context(place.blocking())
        await broker.configure(config)
        engines = [await stack.enter_async_context(Simulator(each)) for each in settings]
        await stack.enter_async_context(_workers(place, broker, engines))
        await stack.enter_async_context(in_background(Consumer(broker, reader).run()))
        # Only now, so that all workers begin at once.
        await broker.submit([PromptGroup(id=str(i), prompt=f"question {i}", label="0") for i in range(1200)])
        await asyncio.sleep(place.pick(20.0, 3.0))
        busy = await _watch(engines, place.pick(20.0, 2.0))
    over = overcommit if overcommit == "auto" else f"{overcommit / 1000:g}"
    what = f"real workers, default mixture, refill {refill}, over-commit {over}"
    return [Row(what, busy, target=_target(settings[0], refill, config.permille))]


def _engine(number: int) -> SimulatorSettings:
    return SimulatorSettings(slots=SLOTS, mean_tokens=MEAN_TOKENS, speed=SPEED, half=0.0, seed=number)


def _target(engine: SimulatorSettings, refill: Refill, overcommit: int) -> Target:
    if refill == "sample":
        return at_least(0.97)
    return near(min(1.0, overcommit / 1000 * engine.length_model().group_bound(N, 2048)), 0.02)


async def _watch(engines: Sequence[Simulator], seconds: float) -> float:
    looks: list[int] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        looks.append(sum(engine.service.engine.running for engine in engines))
        await asyncio.sleep(LOOK_SECONDS)
    return sum(looks) / len(looks) / (ENGINES * SLOTS)


@asynccontextmanager
async def _workers(place: Place, broker: Broker, engines: Sequence[Simulator]) -> AsyncGenerator[None]:
    """One worker process for each engine; all of them have reported their slots when the block begins."""
    with tempfile.TemporaryDirectory() as directory:
        log = Path(directory) / "workers.log"
        running = [
            await _start(_environment(place, broker, engine, number), log) for number, engine in enumerate(engines)
        ]
        try:
            await _until_ready(broker, log)
            yield
        finally:
            for process in running:
                if process.returncode is None:
                    process.kill()
            async with asyncio.timeout(STOP_SECONDS):
                await asyncio.gather(*(process.wait() for process in running))


def _environment(place: Place, broker: Broker, engine: Simulator, number: int) -> Mapping[str, str]:
    return {
        "PYTHONPATH": str(ROOT),
        "REDIS_URL": place.url,
        "ROLLOUTFLEET_RUN": broker.keys.run,
        "ROLLOUTFLEET_POD": f"pod-{number}",
        "ROLLOUTFLEET_ENGINE_URL": engine.url,
        "ROLLOUTFLEET_PROBE_HOST": "127.0.0.1",
    }


async def _start(environment: Mapping[str, str], log: Path) -> asyncio.subprocess.Process:
    with log.open("ab") as file:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "worker"), env=os.environ | environment, cwd=ROOT, stdout=file, stderr=file
        )


async def _until_ready(broker: Broker, log: Path) -> None:
    end = time.monotonic() + START_SECONDS
    while True:
        (slots,) = await broker.calls.read([["HGET", broker.keys.named("state"), "slots"]])
        if int(slots or 0) == ENGINES * SLOTS:
            return
        if time.monotonic() > end:
            raise TimeoutError(
                f"{slots} of {ENGINES * SLOTS} slots were reported; the workers' log ends:\n{_tail(log)}"
            )
        await asyncio.sleep(0.2)


def _tail(log: Path) -> str:
    return log.read_bytes()[-3000:].decode(errors="replace")
