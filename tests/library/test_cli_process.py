"""The command line as a person runs it: a process with an environment, pipes and Ctrl-C."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis.asyncio

from rolloutfleet.broker import Broker
from tests.fakes.broker import Fleet
from tests.fakes.worker import complete, make_run, until

ROOT = Path(__file__).parents[2]
PROCESS_SECONDS = 30


@pytest.fixture
async def broker(client: redis.asyncio.Redis, run: str) -> Broker:
    return await make_run(client, run)


@pytest.fixture
def environment(redis_url: str, run: str) -> dict[str, str]:
    return os.environ | {"REDIS_URL": redis_url, "ROLLOUTFLEET_RUN": run, "PYTHONPATH": str(ROOT)}


def command(*options: str) -> list[str]:
    return [sys.executable, "-m", "rolloutfleet.cli", *options]


async def call(environment: dict[str, str], *options: str, given: str = "") -> "subprocess.CompletedProcess[str]":
    """A command that ends by itself."""
    return await asyncio.to_thread(
        subprocess.run,
        command(*options),
        input=given,
        env=environment,
        capture_output=True,
        encoding="utf-8",
        timeout=PROCESS_SECONDS,
    )


@contextmanager
def running(environment: dict[str, str], *options: str) -> Generator[subprocess.Popen[str]]:
    """A command that goes on until it is told to stop."""
    pipe = subprocess.PIPE
    with subprocess.Popen(command(*options), env=environment, stdout=pipe, stderr=pipe, encoding="utf-8") as process:
        try:
            yield process
        finally:
            process.kill()


async def test_groups_come_in_by_a_pipe(environment: dict[str, str], broker: Broker):
    text = "Wie groß ist π?"
    done = await call(environment, "submit", "-", given=json.dumps({"id": "a", "prompt": text}, ensure_ascii=False))
    assert (done.returncode, done.stdout, done.stderr.splitlines()[-1]) == (0, "", "1 queued")
    (grant,) = await Fleet(broker).hold()
    assert json.loads(grant.text)["prompt"] == text
    await Fleet(broker).finish(grant)
    await Fleet(broker).take_and_ack()


async def test_completed_groups_go_out_by_a_pipe_with_progress_beside_it(environment: dict[str, str], broker: Broker):
    await complete(broker, "a", "b")
    done = await call(environment, "consume", "--groups", "2")
    assert done.returncode == 0
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == ["a", "b"]
    assert done.stderr.splitlines()[-1] == "2 groups taken"


@pytest.mark.usefixtures("broker")
async def test_a_status_can_be_read_by_another_program(environment: dict[str, str], run: str):
    done = await call(environment, "status", "--json")
    assert (done.returncode, done.stderr, json.loads(done.stdout)["run"]) == (0, "", run)


async def test_a_setting_that_is_missing_ends_with_2_and_one_sentence(environment: dict[str, str]):
    environment.pop("REDIS_URL")
    done = await call(environment, "status")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "rolloutfleet: REDIS_URL is not set: give it as an option or in the environment\n"


async def test_a_command_that_is_none_ends_with_2_and_the_commands_that_are(environment: dict[str, str]):
    done = await call(environment, "dance")
    assert done.returncode == 2
    assert "configure" in done.stderr


@pytest.mark.usefixtures("broker")
async def test_top_is_plain_text_where_there_is_no_terminal_and_ends_on_ctrl_c(environment: dict[str, str], run: str):
    with running(environment, "top", "--every", "0.05") as process:
        assert process.stdout is not None
        frame = [await asyncio.to_thread(process.stdout.readline) for _ in range(7)]
        process.send_signal(signal.SIGINT)
        rest, said = await asyncio.to_thread(process.communicate, timeout=PROCESS_SECONDS)
    assert frame[0].startswith(f"{run}: no prompt group waits"[:80])
    assert frame[-1].strip() == "workers   none is alive"
    assert "\x1b" not in "".join(frame) + rest
    assert (process.returncode, said) == (130, "")


async def test_top_says_first_that_a_run_is_stuck_and_why(environment: dict[str, str], broker: Broker):
    await Fleet(broker).submit("a")
    with running(environment, "top", "--every", "0.05", "--stuck-seconds", "0.1") as process:
        assert process.stdout is not None
        said = await asyncio.to_thread(lambda: next(line for line in process.stdout or () if line.startswith("STUCK")))
    assert said == "STUCK: no group was completed for 0 s: no worker is alive\n"
    await Fleet(broker).finish_all()


async def test_consume_ends_on_ctrl_c_with_what_it_took(environment: dict[str, str], broker: Broker):
    await complete(broker, "a")
    with running(environment, "consume") as process:
        assert process.stdout is not None
        line = await asyncio.to_thread(process.stdout.readline)
        await until(lambda: Fleet(broker).stat("acked"))
        process.send_signal(signal.SIGINT)
        _, said = await asyncio.to_thread(process.communicate, timeout=PROCESS_SECONDS)
    assert json.loads(line)["id"] == "a"
    assert (process.returncode, "Traceback" in said) == (130, False)
