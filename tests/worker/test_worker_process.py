"""`python -m worker` as a process, in the end beside the simulated engine."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager

import pytest

from deploy.simulator.server import Simulator
from deploy.simulator.settings import SimulatorSettings
from tests.fakes.engine import FakeEngine, never, said
from tests.worker.fleet import PATIENCE, Fleet, hints, until
from worker.__main__ import main

HOOKS = "tests.worker.hooks"


def environment(fleet: Fleet, **settings: str) -> dict[str, str]:
    ours = {f"ROLLOUTFLEET_{name.upper()}": value for name, value in settings.items()}
    base = {
        "REDIS_URL": fleet.redis_url,
        "ROLLOUTFLEET_RUN": fleet.broker.keys.run,
        "ROLLOUTFLEET_POD": "pod",
        "ROLLOUTFLEET_ENGINE_URL": fleet.engine.url,
        "ROLLOUTFLEET_HEARTBEAT_SECONDS": "0.2",
        "ROLLOUTFLEET_PROBE_HOST": "127.0.0.1",
    }
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "HOME") if name in os.environ}
    return {**kept, **base, **ours}


@asynccontextmanager
async def process(env: Mapping[str, str], *arguments: str) -> AsyncGenerator[Process]:
    started = await asyncio.create_subprocess_exec(sys.executable, "-m", "worker", *arguments, env=env, stderr=PIPE)
    try:
        yield started
    finally:
        if started.returncode is None:
            started.kill()
        await started.communicate()


async def end_of(started: Process) -> tuple[int | None, str]:
    async with asyncio.timeout(PATIENCE):
        _, said_by_it = await started.communicate()
    return started.returncode, said_by_it.decode()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--slots", "0"], "worker: slots: Input should be greater than or equal to 1 (it is '0')\n"),
        (["--redis-url", "127.0.0.1:6379"], "worker: REDIS_URL: Redis URL must specify one of the following schemes"),
        (["--run", "a b"], "worker: run: String should match pattern"),
        (["--reward", "nonsense"], "worker: reward: String should match pattern"),
        (
            ["--max-new-tokens", "10", "--context-length", "5"],
            "max_new_tokens fills the whole context_length: lower it",
        ),
    ],
)
def test_a_wrong_setting_is_one_sentence_and_exit_code_2(
    arguments: list[str], sentence: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("REDIS_URL", "redis://127.0.0.1:1")
    monkeypatch.setenv("ROLLOUTFLEET_RUN", "r")
    code, words = main(arguments), capsys.readouterr().err
    assert code == 2
    assert sentence in words
    assert words.count("\n") == 1


async def test_a_hook_that_can_not_be_loaded_is_one_sentence_and_exit_code_2(fleet: Fleet) -> None:
    async with process(environment(fleet), "--reward", "no.module:f") as started:
        code, words = await end_of(started)
    assert (code, words.count("\n")) == (2, 1)
    assert words.startswith("worker: reward: can't load 'no.module:f' (ModuleNotFoundError")


def test_a_missing_setting_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("REDIS_URL", "redis://127.0.0.1:1")
    monkeypatch.delenv("ROLLOUTFLEET_RUN", raising=False)
    code, words = main([]), capsys.readouterr().err
    assert (code, words) == (2, "worker: run is not set: give it as an option or in the environment\n")


async def test_sigterm_finishes_what_is_held_and_exits_with_0(fleet: Fleet, engine: FakeEngine) -> None:
    await fleet.configure(n=1)
    go = asyncio.Event()

    async def script(_: object) -> dict[str, object]:
        await go.wait()
        return said([1])

    engine.script = script
    await fleet.submit("g")
    async with process(environment(fleet)) as started:
        await until(lambda: engine.running == 1)
        started.send_signal(signal.SIGTERM)
        await until(lambda: fleet.facts('"draining"'))
        go.set()
        code, words = await end_of(started)
    assert code == 0
    assert "ready worker=pod/" in words
    assert len(await fleet.completed(1)) == 1


async def test_a_killed_worker_loses_no_finished_sample(fleet: Fleet, engine: FakeEngine) -> None:
    await fleet.configure(n=2)
    engine.script = lambda request: said([1]) if len(engine.requests) == 1 else never(request)
    await fleet.submit("g")
    async with process(environment(fleet)) as started:
        await until(lambda: fleet.stat("samples"))
        started.kill()
        await started.wait()
    before = len(engine.requests)
    engine.script = lambda _: said([1])
    async with process(environment(fleet)), hints(fleet):
        await fleet.completed(1)
    assert len(engine.requests) == before + 1


@pytest.mark.parametrize(("hook", "setting"), [("kills_bad", "reward"), ("kills_bad_generate", "generate")])
async def test_a_group_that_kills_its_process_dies_alone_and_its_neighbours_complete(
    fleet: Fleet, hook: str, setting: str
) -> None:
    await fleet.configure(n=1, max_attempts=3, retry_seconds=0.01, retry_cap_seconds=0.01)
    await fleet.submit("killer", *(f"g{i}" for i in range(5)))
    env = environment(fleet, **{setting: f"{HOOKS}:{hook}", "slots": "6"})
    over = asyncio.Event()
    keeper = asyncio.create_task(keep_alive(env, over))
    async with hints(fleet):
        (letter,) = await fleet.dead()
        entries = await fleet.completed(5)
    over.set()
    crashes = await keeper
    assert letter["id"] == "killer"
    assert sorted(entry.id for entry in entries) == [f"g{i}" for i in range(5)]
    assert crashes >= 3


async def keep_alive(env: Mapping[str, str], over: asyncio.Event) -> int:
    """Starts the worker again whenever it died, as Kubernetes does; how often it died."""
    crashes = 0
    while not over.is_set():
        async with process(env) as started:
            ended, told = asyncio.create_task(started.wait()), asyncio.create_task(over.wait())
            await asyncio.wait({ended, told}, return_when=asyncio.FIRST_COMPLETED)
            crashes += started.returncode == 9
            told.cancel()
    return crashes


async def test_a_worker_completes_groups_of_a_simulated_engine_with_faults(fleet: Fleet) -> None:
    await fleet.configure(n=4, refill="sample")
    settings = SimulatorSettings(speed=20_000, half=0, health_seconds=0.01)
    async with Simulator(settings) as simulator:
        faults = {"error_rate": 0.1, "abort_rate": 0.1, "short_logprobs_rate": 0.05, "disconnect_rate": 0.05}
        simulator.service.set_faults(settings.faults.changed(faults))
        await fleet.submit(*(f"g{i}" for i in range(20)), prompt="What is 2 + 2?", input_ids=None)
        async with fleet.worker(engine_url=simulator.url):
            entries = await fleet.completed(20)
    assert {entry.fields["n"] for entry in entries} == {b"4"}
    assert await fleet.stat("samples") == 80
