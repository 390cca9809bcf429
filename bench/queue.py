"""Whether a long queue makes claims dearer: 1,000,000 groups wait, against 1,000."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from itertools import batched

from bench.fleet import PAYLOAD
from bench.place import Place, server_seconds
from bench.rows import Row, Table, near
from deploy.embedded import EmbeddedServer
from rolloutfleet.broker import SLICE, Broker, Finished
from rolloutfleet.settings import RunConfig

CALLERS = 32
SHORT = 1000
CALLS_AT_ONCE = 8
PROMPT = "x" * 64
N = 8
REWARDS = "[1,1,1,1,1,1,1,1]"
NO_REWRITE = ("--auto-aof-rewrite-percentage", "0")  # a fork in the middle of a turn would be measured with it


class Line:
    """A run, on a server of its own, in which about so many groups wait."""

    def __init__(self, broker: Broker, waiting: int) -> None:
        self.broker = broker
        self.waiting = waiting
        self.server_seconds = 0.0  # CPU time of the server over all turns
        self._submitted = 0
        self._claims = 0

    async def open(self) -> None:
        # A window that never closes: nothing but the queue differs.
        await self.broker.configure(RunConfig(sample_concurrency=100_000 * N, n=N))
        await self.fill(self.waiting)

    async def fill(self, groups: int) -> None:
        numbers = range(self._submitted, self._submitted + groups)
        self._submitted += groups
        for calls in batched(batched(numbers, SLICE), CALLS_AT_ONCE):
            await asyncio.gather(*(self._submit(some) for some in calls))

    async def _submit(self, numbers: Sequence[int]) -> None:
        flat: list[str | int] = []
        for number in numbers:
            flat += [str(number), 0, f'{{"id":"{number}","prompt":"{PROMPT}"}}']
        await self.broker.calls.step("submit", *flat)

    async def turn(self, groups: int) -> float:
        """Groups per second through claim, put and complete; afterwards as many wait as before."""
        start, used = time.monotonic(), await server_seconds(self.broker.client)
        await asyncio.gather(*(self._work(groups // CALLERS) for _ in range(CALLERS)))
        rate = groups // CALLERS * CALLERS / (time.monotonic() - start)
        self.server_seconds += await server_seconds(self.broker.client) - used
        while entries := (await self.broker.take("trainer", SLICE))[1]:
            await self.broker.ack([entry.entry for entry in entries])
        await self.fill(groups // CALLERS * CALLERS)
        return rate

    async def _work(self, groups: int) -> None:
        for _ in range(groups):
            self._claims += 1
            claim = await self.broker.claim("worker/1", f"worker/1/{self._claims}", 1)
            (grant,) = claim.grants
            await self.broker.put([Finished(grant.id, grant.born, index, PAYLOAD) for index in range(N)])
            word = await self.broker.complete(grant, {"rewards": REWARDS, "worker": "worker/1"})
            assert word == "ok", word


async def measure(place: Place) -> Table:
    long = place.pick(1_000_000, 20_000)
    async with AsyncExitStack() as stack:
        servers = [stack.enter_context(EmbeddedServer(arguments=NO_REWRITE)) for _ in range(3)]
        brokers = [await stack.enter_async_context(Place(server.url).broker()) for server in servers]
        lines = [Line(broker, waiting) for broker, waiting in zip(brokers, (SHORT, long, SHORT), strict=True)]
        start = time.monotonic()
        for line in lines:
            await line.open()
        filled = time.monotonic() - start
        rates = await _take_turns(lines, place.pick(32, 3), place.pick(192, 64))
    used = [line.server_seconds for line in lines]
    ratio = [many / few for few, many, _ in rates]
    control = [again / few for few, _, again in rates]
    rows = [
        Row(f"throughput with {long:,} waiting / with {SHORT:,}", statistics.median(ratio), target=near(1, 0.05)),
        Row("    the same of two queues of 1,000 (noise)", statistics.median(control)),
        Row("    the middle half of the rounds lies within", _spread(ratio)),
        Row("    CPU time of the server for the same turns", used[1] / used[0]),
        Row(f"claim, put, complete with {SHORT:,} waiting", statistics.median(rate[0] for rate in rates), "/s"),
        Row(f"claim, put, complete with {long:,} waiting", statistics.median(rate[1] for rate in rates), "/s"),
        Row(f"submit, in slices of {SLICE}", long / filled, "/s"),
    ]
    facts = (
        "three servers with one run each; turns one after another in a rotating order, medians over the rounds' ratios",
        f"{CALLERS} callers, n = {N}, one group a claim, its samples in one put",
        "no command grows with the queue; what is left of the extra are misses of the caches in a heap of some MB and "
        "more, as with 20,000 waiting groups",
    )
    return Table("queue", rows, facts)


async def _take_turns(lines: Sequence[Line], rounds: int, groups: int) -> list[list[float]]:
    """Rates by round and line. The order alternates, so that a drift of the machine favours none."""
    rates: list[list[float]] = []
    for line in lines:
        await line.turn(groups)  # connects, loads the scripts
    for number in range(rounds):
        found = [0.0] * len(lines)
        order = [(index + number) % len(lines) for index in range(len(lines))]
        for index in order if number % 2 else reversed(order):
            found[index] = await lines[index].turn(groups)
        rates.append(found)
    return rates


def _spread(ratios: Sequence[float]) -> float:
    """Distance of the quartiles."""
    if len(ratios) < 2:
        return 0.0
    low, _, high = statistics.quantiles(ratios, n=4)
    return high - low
