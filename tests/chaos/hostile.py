"""`python -m tests.chaos.hostile`: real workers beside an engine that lies; a table of its lies and what was counted.

Every group that is delivered is proved from the bytes in Redis to be what the engine meant well; every other one is a
dead letter with its reason; every lie is counted under its name. Exit code 1 if anything of this does not hold.
"""

import argparse
import asyncio
import json
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from deploy.embedded import EmbeddedServer
from rolloutfleet.broker import Broker, Entry
from rolloutfleet.messages import PromptGroup
from rolloutfleet.metrics import ENGINE_FAULTS
from rolloutfleet.reading import read_dead
from rolloutfleet.redis import connect
from rolloutfleet.settings import RunConfig
from tests.chaos.hostile_engine import HostileEngine
from tests.chaos.lies import LIES, REFUSAL
from tests.chaos.processes import Worker, free_port
from tests.chaos.soundness import faults_of
from tests.chaos.verdict import keys_left

RUN = "hostile"

_FAILED = re.compile(r"sample \d+: .+, (\d+) tries")
_FAULTS, _SLOTS_BUSY, _HELD = (
    f"rolloutfleet_worker_{name}" for name in ("engine_faults_total", "slots_busy", "groups_held")
)
_STOP_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class HostileSettings:
    """`honesty`: good answers for each lie. `timeout_seconds`: how long a worker waits, the price of each silence."""

    groups: int = 150
    n: int = 2
    workers: int = 2
    slots: int = 32
    honesty: float = 2.0
    timeout_seconds: float = 1.0
    max_tries: int = 4
    max_attempts: int = 3
    seed: int = 1
    minutes: float = 10.0  # at most; what is not over by then is lost
    json: Path | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """A fault's name: the lies told, the least and the most that reached a worker, and what workers counted."""

    fault: str
    lies: Mapping[str, int]
    least: int
    most: int
    counted: int

    @property
    def holds(self) -> bool:
        return self.least <= self.counted <= self.most


@dataclass(frozen=True, slots=True)
class HostileVerdict:
    """Counts of groups. `unsound`: delivered or given up as they must not be. `left`: what nobody gave back."""

    groups: int
    completed: int
    dead: int
    lost: int
    doubled: int
    unsound: Sequence[str]
    dead_reasons: Mapping[str, int]
    requests: int
    rows: Sequence[Row]
    left: Sequence[str]
    restarts: int
    exits: Sequence[int]
    seconds: float

    @property
    def holds(self) -> bool:
        bad = self.lost or self.doubled or self.unsound or self.left or self.restarts or any(self.exits)
        return not bad and self.groups == self.completed + self.dead and all(row.holds for row in self.rows)


class HostileRun:
    """Everything of one run: a broker and workers in processes, the engine and the reader in this one."""

    def __init__(self, settings: HostileSettings, server: EmbeddedServer, logs: Path) -> None:
        self.settings = settings
        self.engine = HostileEngine(settings.seed, settings.slots, settings.honesty)
        self.workers: list[Worker] = []
        self._server = server
        self._logs = logs
        self._ports = [free_port() for _ in range(settings.workers)]
        self._prompts = {f"g{number}": (1, number // 1000, number % 1000) for number in range(settings.groups)}
        self._taken: Counter[str] = Counter()
        self._unsound: list[str] = []
        self._dead: dict[str, tuple[str, int]] = {}

    async def run(self) -> HostileVerdict:
        """Starts, reads until every group is over, stops, judges."""
        began = time.monotonic()
        async with connect(self._server.url) as client, self.engine, self._processes() as running:
            broker = Broker(client, RUN, retry_seconds=30)
            await self._submit(broker)
            await self._read(broker, began + self.settings.minutes * 60)
            metrics, left = await self._idle()
            restarts = sum(worker.starts - 1 for worker in self.workers)
            for worker in self.workers:
                worker.finish()
            await asyncio.wait(running, timeout=_STOP_SECONDS)
            exits = [await worker.wait() for worker in self.workers if running[self.workers.index(worker)].done()]
            left += await keys_left(broker)
        self._judge_dead()
        return self._verdict(metrics, left, restarts, exits, time.monotonic() - began)

    @asynccontextmanager
    async def _processes(self) -> AsyncGenerator[list[asyncio.Task[None]]]:
        self.workers = [
            Worker(f"worker-{at}", self._environment(port), self._logs) for at, port in enumerate(self._ports)
        ]
        running = [asyncio.create_task(worker.keep_running()) for worker in self.workers]
        try:
            yield running
        finally:
            for task in running:
                task.cancel()
            for worker in self.workers:
                await worker.end()

    def _environment(self, port: int) -> dict[str, str]:
        settings: dict[str, Any] = {
            "run": RUN,
            "engine_url": self.engine.url,
            "slots": self.settings.slots,
            "request_timeout_seconds": self.settings.timeout_seconds,
            "max_tries": self.settings.max_tries,
            "reward": "tests.chaos.hooks:reward",
            "probe_host": "127.0.0.1",
            "probe_port": port,
        }
        named = {f"ROLLOUTFLEET_{name.upper()}": str(value) for name, value in settings.items()}
        return {"REDIS_URL": self._server.url, **named}

    async def _submit(self, broker: Broker) -> None:
        settings = self.settings
        places = settings.workers * settings.slots
        await broker.configure(
            RunConfig(sample_concurrency=places, n=settings.n, max_attempts=settings.max_attempts, retry_seconds=0.05)
        )
        # The seed names the sample: the worker makes one of it for each group and index.
        params = {"max_new_tokens": 64, "sampling_seed": 0}
        groups = [
            PromptGroup(id=name, input_ids=list(prompt), sampling_params=params)
            for name, prompt in self._prompts.items()
        ]
        await broker.submit(groups)

    # Reading

    async def _read(self, broker: Broker, end: float) -> None:
        while len(self._taken.keys() | self._dead.keys()) < len(self._prompts) and time.monotonic() < end:
            _, entries = await broker.take("checker", 64)
            await self._check(broker, entries)
            await self._read_dead(broker)
            if not entries:
                await asyncio.sleep(0.05)

    async def _check(self, broker: Broker, entries: Sequence[Entry]) -> None:
        for entry in entries:
            keys = [broker.keys.group(entry.id), broker.keys.samples(entry.id, entry.born)]
            group, stored = [cast(dict[bytes, bytes], await _hash(broker, key)) for key in keys]
            faults = faults_of(entry.fields, group, stored, self.engine.said)
            self._unsound += [f"{entry.id}: {fault}" for fault in faults]
            self._taken[entry.id] += 1
        if entries:
            await broker.ack([entry.entry for entry in entries])

    async def _read_dead(self, broker: Broker) -> None:
        for letter in await read_dead(broker, len(self._prompts)):
            self._dead[letter.id] = letter.reason, letter.attempts

    async def _idle(self) -> tuple[list[dict[str, float]], list[str]]:
        """The workers' metrics once nothing is held any more, and what is held for ever."""
        metrics: list[dict[str, float]] = []
        for _ in range(100):
            metrics = [await _metrics(port) for port in self._ports]
            if not any(found[name] for found in metrics for name in (_SLOTS_BUSY, _HELD)):
                return metrics, []
            await asyncio.sleep(0.05)
        return metrics, [f"{name} {found[name]:g}" for found in metrics for name in (_SLOTS_BUSY, _HELD) if found[name]]

    # The verdict

    def _judge_dead(self) -> None:
        for name, (reason, attempts) in self._dead.items():
            failed = _FAILED.fullmatch(reason)
            if REFUSAL in reason and self.engine.has_refused(self._prompts[name]):
                continue
            tried = failed is not None and int(failed[1]) == self.settings.max_tries
            if not tried or attempts != self.settings.max_attempts:
                self._unsound.append(f"{name} is dead after {attempts} attempts: {reason}")

    def _verdict(
        self, metrics: list[dict[str, float]], left: list[str], restarts: int, exits: list[int], seconds: float
    ) -> HostileVerdict:
        over = self._taken.keys() | self._dead.keys()
        both = self._taken.keys() & self._dead.keys()
        return HostileVerdict(
            groups=len(self._prompts),
            completed=len(self._taken),
            dead=len(self._dead),
            lost=len(self._prompts.keys() - over),
            doubled=self._taken.total() - len(self._taken) + len(both),
            unsound=self._unsound,
            dead_reasons=dict(Counter(re.sub(r"sample \d+: ", "", reason)[:70] for reason, _ in self._dead.values())),
            requests=len(self.engine.met),
            rows=list(self._rows(metrics)),
            left=left,
            restarts=restarts,
            exits=[*exits, *[-1] * (len(self.workers) - len(exits))],
            seconds=round(seconds, 1),
        )

    def _rows(self, metrics: list[dict[str, float]]) -> Iterator[Row]:
        made = self.engine.made()
        least, most = self.engine.counted(self.settings.timeout_seconds)
        for fault in ENGINE_FAULTS:
            lies = {kind: made[kind] for kind, (name, _) in LIES.items() if name == fault}
            counted = int(sum(found.get(f"{_FAULTS}:{fault}", 0) for found in metrics))
            yield Row(fault, lies, least[fault], most[fault], counted)


async def _hash(broker: Broker, key: str) -> dict[Any, Any]:
    call: Callable[[str], Any] = broker.client.hgetall
    return await call(key)


async def _metrics(port: int) -> dict[str, float]:
    """By name, and for faults by name:fault."""
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/metrics") as answer:
        text = await answer.text()
    families = text_string_to_metric_families(text)
    samples = [sample for family in families for sample in family.samples]
    return {":".join([sample.name, *sample.labels.values()]): sample.value for sample in samples}


async def run_hostile(settings: HostileSettings) -> tuple[HostileVerdict, str]:
    """The verdict, and the ends of the workers' logs where it does not hold."""
    with tempfile.TemporaryDirectory() as logs, EmbeddedServer(durability="off") as server:
        run = HostileRun(settings, server, Path(logs))
        verdict = await run.run()
        tails = "" if verdict.holds else "\n".join(f"--- {one.name}\n{one.tail()}" for one in run.workers)
        return verdict, tails


# The command


def main() -> int:
    settings = _read_settings()
    verdict, tails = asyncio.run(run_hostile(settings))
    print(tails + "\n".join(table(verdict)))
    if settings.json:
        settings.json.write_text(json.dumps({**asdict(verdict), "holds": verdict.holds}, indent=2))
    return 0 if verdict.holds else 1


def _read_settings() -> HostileSettings:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.hostile", description=__doc__)
    defaults: dict[str, object] = asdict(HostileSettings())
    for name, default in defaults.items():
        kind: type[object] = Path if name == "json" else type(default)
        parser.add_argument(f"--{name.replace('_', '-')}", type=kind, default=default, help=f"default {default}")
    return HostileSettings(**vars(parser.parse_args()))


def table(verdict: HostileVerdict) -> Iterator[str]:
    """One line for each fault, then the rest of the verdict."""
    yield f"{'fault':26} {'made':>5} {'seen':>11} {'counted':>7}   lies"
    for row in verdict.rows:
        if not (row.lies or row.most or row.counted):
            continue
        seen = f"{row.least}" if row.least == row.most else f"{row.least} to {row.most}"
        mark = "" if row.holds else "  WRONG"
        lies = ", ".join(f"{kind} {times}" for kind, times in row.lies.items())
        yield f"{row.fault:26} {sum(row.lies.values()):5} {seen:>11} {row.counted:7}   {lies}{mark}"
    shown = {**asdict(verdict), "holds": verdict.holds}
    yield from (f"{name:26} {shown[name]}" for name in shown if name not in ("rows", "dead_reasons"))
    yield from (f"{count:>6} x {reason}" for reason, count in sorted(verdict.dead_reasons.items()))


if __name__ == "__main__":
    sys.exit(main())
