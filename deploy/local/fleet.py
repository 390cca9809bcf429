"""Engines and workers of the main job: which processes there are, how they are started, drained and killed."""

import asyncio
import random
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from deploy.embedded import HOST, free_port
from deploy.local.process import Child, ChildFailed, Command
from deploy.local.settings import LocalSettings
from rolloutfleet.broker import Broker
from rolloutfleet.errors import BrokerUnavailable
from rolloutfleet.status import read_status

_START_SECONDS = 30.0
_ENGINE_END_SECONDS = 5.0
_RELEASE_SECONDS = 15.0  # after the drain: a worker gives back what is left, and ends
_POLL_SECONDS = 0.05
_SETTLED_SECONDS = 3.0


class Fleet:
    """All processes but the broker. Started within a TaskGroup, which ends them when it is left by an error."""

    def __init__(self, settings: LocalSettings, logs: Path, say: Callable[[str], None]) -> None:
        self._settings = settings
        self._logs = logs
        self._say = say
        self._random = random.Random(settings.seed)
        self._tasks: dict[Child, asyncio.Task[None]] = {}
        self.engines: list[Child] = []
        self.workers: list[Child] = []
        self.api: Child | None = None
        self.kills = 0

    async def start_engines(self, group: asyncio.TaskGroup, answers: Path) -> Sequence[str]:
        """Starts simulated engines, if there are no real ones; their addresses, once they answer."""
        settings = self._settings
        if not settings.is_simulated:
            for url in settings.engine:
                if not await _answers(url):
                    self._say(f"nothing answers at {url} yet: the workers wait for it")
            return settings.engine
        ports = [free_port() for _ in range(settings.engines)]
        for number, port in enumerate(ports, 1):
            command = engine_command(settings, f"engine-{number}", port, answers)
            self.engines.append(self._start(group, command))
        urls = [f"http://{HOST}:{port}" for port in ports]
        for engine, url in zip(self.engines, urls, strict=True):
            await _until_it_answers(engine, url)
        return urls

    def start_workers(self, group: asyncio.TaskGroup, urls: Sequence[str], environment: dict[str, str]) -> None:
        for command in worker_commands(self._settings, urls, environment):
            self.workers.append(self._start(group, command))

    async def start_api(self, group: asyncio.TaskGroup, redis_url: str) -> None:
        """Starts the status service, where its packages are installed, and says where its page is."""
        if find_spec("fastapi") is None or find_spec("uvicorn") is None:
            self._say("no status page: pip install 'rolloutfleet[api]' brings it")
            return
        port = free_port()
        variables = {"REDIS_URL": redis_url, "ROLLOUTFLEET_API_HOST": HOST, "ROLLOUTFLEET_API_PORT": str(port)}
        self.api = self._start(group, Command("api", "api", environment=variables))
        self._say(f"status page http://{HOST}:{port}/")

    def choose_worker(self) -> Child | None:
        """A random worker that is at work; one that is still starting holds nothing that could be lost."""
        settled = [worker for worker in self.workers if worker.age_seconds > _SETTLED_SECONDS]
        return self._random.choice(settled) if settled else None

    def kill(self, worker: Child) -> None:
        """kill -9; the process is started again."""
        if worker.kill():
            self.kills += 1
            self._say(f"{worker.name}: kill -9, started again")

    async def drain(self, at_once: asyncio.Event) -> None:
        """Stops workers (they finish or give back what they hold), then engines. `at_once` cuts the waiting short."""
        for worker in self.workers:
            worker.stop()
        await self._wait(self.workers, self._settings.drain_seconds + _RELEASE_SECONDS, at_once)
        rest = [*self.engines, self.api] if self.api else self.engines
        for child in rest:
            child.stop(signal.SIGINT)
        await self._wait(rest, _ENGINE_END_SECONDS, at_once)

    def _start(self, group: asyncio.TaskGroup, command: Command) -> Child:
        child = Child(command, self._logs / f"{command.name}.log", self._say)
        self._tasks[child] = group.create_task(child.run(), name=command.name)
        return child

    async def _wait(self, children: Sequence[Child], seconds: float, at_once: asyncio.Event) -> None:
        tasks = [self._tasks[child] for child in children]
        if not tasks:
            return
        asked = asyncio.ensure_future(at_once.wait())
        ended = asyncio.ensure_future(asyncio.wait(tasks))
        await asyncio.wait((asked, ended), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        asked.cancel()
        ended.cancel()
        for child in children:
            if child.pid is not None:
                child.stop(signal.SIGKILL)
        await asyncio.wait(tasks)


class Killer:
    """Kills a worker each `every` seconds until `ended` is set."""

    def __init__(self, fleet: Fleet, broker: Broker, every: float, ended: asyncio.Event) -> None:
        self._fleet = fleet
        self._broker = broker
        self._every = every
        self._ended = ended

    async def run(self) -> None:
        while not self._ended.is_set():
            try:
                await asyncio.wait_for(self._ended.wait(), self._every)
            except TimeoutError:
                await self.kill_one()

    async def kill_one(self) -> None:
        worker = self._fleet.choose_worker()
        if worker is None:
            return
        # As a cluster does that takes a pod away: the kill is no fault of the groups, and counts as no attempt at them.
        # Where Redis is away, the next process of the pod evicts this one.
        with suppress(BrokerUnavailable):
            status = await read_status(self._broker)
            names = [one.name for one in status.workers if one.name.rpartition("/")[0] == worker.name]
            self._fleet.kill(worker)
            for name in names:
                await self._broker.evict(name, counts=False, reason="killed by --kill-every")


def engine_command(settings: LocalSettings, name: str, port: int, answers: Path) -> Command:
    """`python -m deploy simulator` with the settings that differ from its own defaults or that we promise."""
    engine = asdict(settings.simulator(answers))
    faults = {option: value for option, value in engine["faults"].items() if option in settings.faults}
    once = {option: faults.pop(option) for option in _ONCE if option in faults}
    options = {"port": port} | {option: engine[option] for option in _ENGINE_OPTIONS} | faults
    return Command(name, "deploy", ("simulator", *_words(options)), _words(once))


def _words(options: Mapping[str, Any]) -> tuple[str, ...]:
    pairs = [(f"--{name.replace('_', '-')}", str(value)) for name, value in options.items() if value is not None]
    return tuple(word for pair in pairs for word in pair)


_ONCE = ("die_after",)  # an engine that died of it serves on when it is started again
_ENGINE_OPTIONS = (
    *("slots", "speed", "half", "mean_tokens", "sigma", "between", "lengths", "accuracy", "seed", "answers"),
    *("weight_version", "health_seconds", "context_length"),
)


def worker_commands(settings: LocalSettings, urls: Sequence[str], environment: dict[str, str]) -> list[Command]:
    """One for each worker. Those beside the same engine share its slots."""
    commands: list[Command] = []
    for number in range(settings.worker_count):
        variables = environment | {
            "ROLLOUTFLEET_ENGINE_URL": urls[number % len(urls)],
            "ROLLOUTFLEET_POD": f"worker-{number + 1}",
            "ROLLOUTFLEET_SLOTS": str(share(settings.slots, settings.worker_count, len(urls), number)),
            "ROLLOUTFLEET_PROBE_HOST": HOST,
            "ROLLOUTFLEET_PROBE_PORT": "0",
            "ROLLOUTFLEET_DRAIN_SECONDS": str(settings.drain_seconds),
        }
        commands.append(Command(f"worker-{number + 1}", "worker", environment=variables))
    return commands


def share(slots: int, workers: int, engines: int, number: int) -> int:
    """Slots of the `number`-th worker: workers go round the engines, and those of one engine share its slots."""
    beside = len(range(number % engines, workers, engines))
    place = number // engines
    return max(1, slots // beside + (place < slots % beside))


async def _until_it_answers(engine: Child, url: str) -> None:
    loop = asyncio.get_running_loop()
    end = loop.time() + _START_SECONDS
    while not await _answers(url):
        if loop.time() > end:
            raise ChildFailed(f"{engine.name} did not start; its log {engine.log.name} ends:\n{engine.tail()}")
        await asyncio.sleep(_POLL_SECONDS)


async def _answers(url: str) -> bool:
    """Whether something listens there."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        async with asyncio.timeout(2):
            _, writer = await asyncio.open_connection(parts.hostname, port)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True
