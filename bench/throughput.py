"""Groups per second through all steps of a group, beside what the same client gets from the server."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import cast

from bench.fleet import Consumer, Meter, Size, Worker, in_background, sample_of
from bench.place import Place, Trips, minimal_script, server_seconds
from bench.rows import Row, Table, at_least
from bench.trial import configure, submit
from rolloutfleet.redis import Client

PLACES = 64
PROMPT = "x" * 1024
SHARE = 0.25  # of what the server would do if each round trip were a script that does nothing


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn: rates per second, and round trips of a group."""

    ping: float
    script: float
    groups: float
    trips: float
    client_us: float  # CPU time of this process per group
    server_us: float  # CPU time of the server per group

    @property
    def share(self) -> float:
        return self.groups * self.trips / self.script


async def measure(place: Place) -> Table:
    rows: list[Row] = []
    for n in (1, 8):
        turns = [await _turn(place, n) for _ in range(place.pick(8, 1))]
        rows += _rows(n, turns)
    facts = (
        f"submit, claim, put, complete, take, ack on one event loop: a worker of {PLACES} places whose samples take no "
        "time, and a trainer",
        "prompt and sample 1 KiB each; medians over turns of PING, minimal EVALSHA and groups, one after another",
        "share: groups/s x round trips / minimal EVALSHA rate; the target asks for a quarter. Many samples travel in "
        "one round trip, and few round trips raise the target. CPU times vary less than rates",
    )
    return Table("throughput", rows, facts)


def _rows(n: int, turns: Sequence[Turn]) -> Sequence[Row]:
    def median(value: Callable[[Turn], float]) -> float:
        return statistics.median(value(turn) for turn in turns)

    target = SHARE * median(lambda turn: turn.script / turn.trips)
    return [
        Row(f"n = {n}: groups", median(lambda turn: turn.groups), "/s", at_least(target)),
        Row("    PING", median(lambda turn: turn.ping), "/s"),
        Row("    minimal EVALSHA", median(lambda turn: turn.script), "/s"),
        Row("    round trips per group", median(lambda turn: turn.trips)),
        Row("    share", median(lambda turn: turn.share)),
        Row("    CPU time of the client per group", median(lambda turn: turn.client_us), "us"),
        Row("    CPU time of the server per group", median(lambda turn: turn.server_us), "us"),
    ]


async def _turn(place: Place, n: int) -> Turn:
    groups, calls = place.pick(1000, 300), place.pick(4000, 1000)
    async with place.broker() as broker:
        client = broker.client
        sha = await minimal_script(client)
        ping = await rate(client, calls, lambda: command(client, "PING"))
        script = await rate(client, calls, lambda: command(client, "EVALSHA", sha, 0))
    return Turn(ping, script, *await work(place, groups, n))


async def command(client: Client, *words: str | int) -> object:
    return cast(object, await client.execute_command(*words))  # pyright: ignore[reportUnknownVariableType]


async def rate(client: Client, calls: int, call: Callable[[], Awaitable[object]]) -> float:
    """Calls per second of as many callers as there are places."""

    async def caller() -> None:
        for _ in range(calls // PLACES):
            await call()

    await asyncio.gather(*(command(client, "PING") for _ in range(PLACES)))  # connects
    start = time.monotonic()
    await asyncio.gather(*(caller() for _ in range(PLACES)))
    return calls // PLACES * PLACES / (time.monotonic() - start)


async def work(place: Place, groups: int, n: int) -> tuple[float, float, float, float]:
    """Of one worker with a window of its places: groups per second, and what one group costs (see Turn)."""
    trips, meter = Trips(), Meter()
    size = Size(PLACES * n, n, "group")
    async with place.broker(trips) as broker, place.blocking(trips) as blocking:
        await configure(broker, size, 1)
        await broker.calls.load()
        worker = Worker("engine/1", broker, blocking, size, lambda _: [0.0] * n, meter, sample_of(1024))
        trips.number = 0
        start, client, server = time.monotonic(), time.process_time(), await server_seconds(broker.client)
        await submit(broker, groups, PROMPT)
        async with in_background(worker.run()):
            await Consumer(broker, blocking).run(groups)
            seconds, number = time.monotonic() - start, trips.number
        client, server = time.process_time() - client, await server_seconds(broker.client) - server
    return groups / seconds, number / groups, client / groups * 1e6, server / groups * 1e6
