"""The simulated engine as a process: its first line, its signals, its death."""

import asyncio
import json
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from deploy.simulator import Faults, SimulatorSettings
from deploy.simulator.cli import main

PROGRAM = "import sys; from deploy.simulator.cli import main; sys.exit(main(sys.argv[1:]))"
ROOT = Path(__file__).parents[2]
ENDLESS: dict[str, Any] = {"input_ids": [1], "sampling_params": {"max_new_tokens": 20_000, "ignore_eos": True}}
PATIENCE_SECONDS = 120


@asynccontextmanager
async def process_of(*options: str) -> AsyncGenerator[tuple[asyncio.subprocess.Process, aiohttp.ClientSession]]:
    command = (sys.executable, "-c", PROGRAM, "--drain-check-seconds", "0.02", "--health-seconds", "0", *options)
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, cwd=ROOT)
    assert process.stdout is not None
    try:
        said = json.loads(await process.stdout.readline())
        assert said["url"].endswith(f":{said['port']}")
        async with aiohttp.ClientSession(said["url"]) as session:
            yield process, session
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def exit_code(process: asyncio.subprocess.Process) -> int:
    async with asyncio.timeout(PATIENCE_SECONDS):
        return await process.wait()


async def until_it_runs(session: aiohttp.ClientSession) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            async with session.get("/v1/loads") as answer:
                if (await answer.json())["loads"][0]["num_running_reqs"]:
                    return


async def until_it_drains(session: aiohttp.ClientSession) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            async with session.get("/health") as answer:
                if answer.status == 503:
                    return


async def test_sigterm_drains_what_runs_and_takes_new_requests_until_idle() -> None:
    async with process_of("--speed", "1000") as (process, session):
        request = asyncio.ensure_future(session.post("/generate", json={**ENDLESS, "rid": "long"}))
        await until_it_runs(session)
        process.send_signal(signal.SIGTERM)
        await until_it_drains(session)
        short = {"input_ids": [1], "sampling_params": {"max_new_tokens": 2}}
        assert (await session.post("/generate", json=short)).status == 200
        assert process.returncode is None
        await session.post("/abort_request", json={"rid": "long"})
        assert (await request).status == 200
        assert await exit_code(process) == 0


@pytest.mark.parametrize("last", [signal.SIGINT, signal.SIGTERM])
async def test_sigint_and_a_second_sigterm_end_it_at_once(last: signal.Signals) -> None:
    async with process_of("--speed", "1") as (process, session):
        request = asyncio.ensure_future(session.post("/generate", json=ENDLESS))
        await until_it_runs(session)
        process.send_signal(signal.SIGTERM)
        await until_it_drains(session)
        process.send_signal(last)
        assert await exit_code(process) == 0
        with pytest.raises(aiohttp.ClientError):
            await request


@pytest.mark.parametrize(("path", "body"), [("/generate", {"input_ids": [-1]}), ("/simulator/faults", {"die": True})])
async def test_a_deadly_request_kills_the_process(path: str, body: dict[str, Any]) -> None:
    async with process_of() as (process, session):
        with pytest.raises(aiohttp.ClientError):
            await session.post(path, json=body)
        assert await exit_code(process) == -signal.SIGKILL


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--slots", "0"), "slots must be at least 1"),
        (("--error-rate", "2"), "error_rate must be in 0 to 1"),
        (("--lengths", "/no/such/trace.csv"), "/no/such/trace.csv"),
        (("--stop-token", "9", "--vocabulary", "16", "--between", "3"), "between must be a share"),
    ],
)
def test_a_wrong_setting_is_named_and_the_exit_code_is_2(
    options: tuple[str, ...], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(options) == 2
    assert sentence in capsys.readouterr().err


def test_settings_of_a_demo_are_the_defaults() -> None:
    assert SimulatorSettings().faults == Faults()
    assert SimulatorSettings().length_model().mean() == pytest.approx(200, rel=1e-3)
