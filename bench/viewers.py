"""The status service under 200 viewers: how long /status takes, and what the viewers cost Redis."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Sequence
from contextlib import asynccontextmanager
from typing import cast

import aiohttp

from bench.fleet import in_background
from bench.place import Place
from bench.rows import Row, Table, at_most
from bench.trial import submit
from rolloutfleet.broker import Beat, Broker
from rolloutfleet.redis import Client
from rolloutfleet.settings import RunConfig

VIEWERS = 200
WORKERS = 20
ASKS_PER_SECOND = 20  # /status, beside the events
QUEUED = 10_000


async def measure(place: Place) -> Table:
    async with (
        place.broker() as broker,
        _service(place.url) as url,
        aiohttp.ClientSession(url, connector=_any()) as web,
    ):
        await broker.configure(RunConfig())
        await submit(broker, QUEUED)
        seconds = place.pick(60.0, 3.0)
        async with in_background(_beat(broker)):
            await _until_seen(web)
            alone, _ = await _commands(broker.client, _ask(web, seconds / 4))
            async with _viewers(url, seconds + 2) as viewers:
                await asyncio.sleep(2)
                watched, spans = await _commands(broker.client, _ask(web, seconds))
            events = viewers.result()
    facts = (
        f"{VIEWERS} viewers of /events (a process of their own) for {seconds:.0f} s, {WORKERS} workers that beat each "
        f"second, {QUEUED:,} groups queued",
        f"each viewer was sent {events / VIEWERS / (seconds + 2):.2f} events per second",
    )
    return Table("viewers", _rows(spans, alone, watched), facts)


def _rows(spans: Sequence[float], alone: float, watched: float) -> Sequence[Row]:
    milliseconds = sorted(1000 * span for span in spans)
    return [
        Row("/status, p50", milliseconds[len(milliseconds) // 2], "ms"),
        Row("/status, p99", milliseconds[len(milliseconds) * 99 // 100], "ms", at_most(20)),
        Row("commands per second at Redis, nobody watches", alone),
        Row("the same with all viewers / nobody", watched / alone, "", at_most(1.1)),
    ]


@asynccontextmanager
async def _service(redis_url: str) -> AsyncGenerator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    env = {
        **os.environ,
        "REDIS_URL": redis_url,
        "ROLLOUTFLEET_API_HOST": "127.0.0.1",
        "ROLLOUTFLEET_API_PORT": str(port),
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "api", "--log-level", "WARNING", env=env, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        await process.wait()


def _any() -> aiohttp.TCPConnector:
    return aiohttp.TCPConnector(limit=0)


async def _beat(broker: Broker) -> None:
    facts = {"state": "ready", "busy": 30, "held": 4, "engine": "http://127.0.0.1:30000"}
    while True:
        for number in range(WORKERS):
            await broker.heartbeat(Beat(f"pod-{number}/1", (), 32, facts, busy_ms=900, slot_ms=1000))
        await asyncio.sleep(1)


async def _until_seen(web: aiohttp.ClientSession) -> None:
    end = time.monotonic() + 20
    while time.monotonic() < end:
        try:
            async with web.get("/status") as answer:
                if any(len(run["workers"]) == WORKERS for run in (await answer.json())["runs"]):
                    return
        except aiohttp.ClientError:
            pass  # it starts
        await asyncio.sleep(0.1)
    raise RuntimeError("the status service did not see the workers within 20 s")


@asynccontextmanager
async def _viewers(url: str, seconds: float) -> AsyncGenerator[asyncio.Task[int]]:
    """The viewers as a process, ended when the block is; how many events they were sent."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.viewers", url, str(seconds), stdout=asyncio.subprocess.PIPE
    )

    async def count() -> int:
        out, _ = await process.communicate()
        return int(out)

    task = asyncio.create_task(count())
    try:
        yield task
        await task
    finally:
        if process.returncode is None:
            process.kill()


async def _watch(url: str, seconds: float) -> int:
    events = 0

    async def view(web: aiohttp.ClientSession) -> None:
        nonlocal events
        async with web.get("/events", timeout=aiohttp.ClientTimeout(total=None)) as answer:
            async for line in answer.content:
                events += line.startswith(b"data:")

    async with (
        aiohttp.ClientSession(url, connector=_any(), read_bufsize=2**20) as web,
        in_background(*(view(web) for _ in range(VIEWERS))),
    ):
        await asyncio.sleep(seconds)
    return events


async def _ask(web: aiohttp.ClientSession, seconds: float) -> list[float]:
    """How long each /status took."""
    spans: list[float] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        start = time.monotonic()
        async with web.get("/status") as answer:
            await answer.read()
        spans.append(time.monotonic() - start)
        await asyncio.sleep(max(0.0, 1 / ASKS_PER_SECOND - spans[-1]))
    return spans


async def _commands[T](client: Client, work: Awaitable[T]) -> tuple[float, T]:
    """Commands per second that the server processed while `work` went on, and its result."""
    start, before = time.monotonic(), await _processed(client)
    result = await work
    return (await _processed(client) - before) / (time.monotonic() - start), result


async def _processed(client: Client) -> int:
    found = cast("dict[str, int]", await client.info("stats"))
    return found["total_commands_processed"]


if __name__ == "__main__":
    print(asyncio.run(_watch(sys.argv[1], float(sys.argv[2]))))
