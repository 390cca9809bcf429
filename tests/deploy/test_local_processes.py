"""Processes of the main job are kept running, within bounds, and end with it; what is shown meanwhile."""

import asyncio
import io
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from deploy.local import process
from deploy.local.live import Speed
from deploy.local.process import MOST_DEATHS, Child, ChildFailed, Command
from deploy.local.screen import Screen

PATIENCE_SECONDS = 120
# Modules of the standard library that make good children: one serves until it is ended, the others end by themselves.
SERVES = Command("server", "http.server", ("--bind", "127.0.0.1", "0"))
ENDS = Command("poem", "this")
REFUSES = Command("refuser", "http.server", ("--no-such-option",))


@pytest.fixture(autouse=True)
def without_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_DELAY_SECONDS", 0.0)


async def until(fact: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not fact():  # noqa: ASYNC110 - the fact is in another process
            await asyncio.sleep(0.01)


async def until_it_runs(child: Child, *, but: int | None = None) -> int:
    await until(lambda: child.pid not in (None, but))
    return child.pid or 0


async def until_it_serves(child: Child) -> None:
    await until(lambda: "Serving" in child.tail())


def arguments_of(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()


def exists(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


async def test_a_killed_process_is_started_again_and_not_counted_as_a_death(tmp_path: Path) -> None:
    child = Child(SERVES, tmp_path / "log", lambda line: None)
    running = asyncio.create_task(child.run())
    first = await until_it_runs(child)
    assert child.kill()
    second = await until_it_runs(child, but=first)
    child.stop(signal.SIGKILL)
    await running
    assert (child.starts, child.deaths) == (2, 0)
    assert not exists(first)
    assert not exists(second)


async def test_leaving_run_by_an_error_leaves_no_process(tmp_path: Path) -> None:
    child = Child(SERVES, tmp_path / "log", lambda line: None)
    running = asyncio.create_task(child.run())
    pid = await until_it_runs(child)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not exists(pid)


async def test_a_process_that_always_dies_fails_with_the_tail_of_its_log(tmp_path: Path) -> None:
    said: list[str] = []
    child = Child(ENDS, tmp_path / "log", said.append)
    with pytest.raises(ChildFailed, match=r"(?s)poem died \(exit code 0\).*Namespaces are one honking great idea"):
        await child.run()
    assert (child.starts, child.deaths) == (MOST_DEATHS + 1, MOST_DEATHS)
    assert said == ["poem died (exit code 0): started again"] * MOST_DEATHS


async def test_a_process_that_refuses_its_settings_is_not_started_again(tmp_path: Path) -> None:
    child = Child(REFUSES, tmp_path / "log", lambda line: None)
    with pytest.raises(ChildFailed, match=r"(?s)exit code 2.*unrecognized arguments"):
        await child.run()
    assert child.starts == 1


async def test_a_process_gets_arguments_of_its_first_start_only_once(tmp_path: Path) -> None:
    once = Command("server", SERVES.module, SERVES.arguments, once=("--directory", str(tmp_path)))
    child = Child(once, tmp_path / "log", lambda line: None)
    running = asyncio.create_task(child.run())
    first = await until_it_runs(child)
    await until_it_serves(child)
    assert "--directory" in arguments_of(first)
    (tmp_path / "log").write_text("")
    child.kill()
    second = await until_it_runs(child, but=first)
    await until_it_serves(child)
    assert "--directory" not in arguments_of(second)
    child.stop(signal.SIGKILL)
    await running


def test_a_terminal_keeps_what_was_said_above_the_block() -> None:
    out = io.StringIO()
    screen = Screen(out, is_live=True)
    screen.draw(["one", "two"])
    screen.say("hello")
    assert out.getvalue() == "one\ntwo\n\x1b[2A\x1b[Jhello\none\ntwo\n"


def test_without_a_terminal_nothing_is_drawn() -> None:
    out = io.StringIO()
    screen = Screen(out, is_live=False)
    screen.draw(["block"])
    screen.say("hello")
    screen.clear()
    assert out.getvalue() == "hello\n"


def test_speed_is_the_growth_over_the_last_seconds() -> None:
    speed = Speed(seconds=5)
    assert speed.of(0, 0.0) == 0.0
    assert speed.of(100, 1.0) == 100.0
    speeds = [speed.of(100 + 10 * second, float(second)) for second in range(2, 20)]
    assert speeds[-1] == pytest.approx(10.0)
