"""Environments: one for each sample, and closed however the sample ends."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.fakes.engine import FakeEngine, never, said
from tests.worker import hooks
from tests.worker.fleet import Fleet, until
from worker.generate import Session
from worker.settings import WrongSetting

HOOKS = "tests.worker.hooks"
ENVIRONMENT = f"{HOOKS}:Environment"


@pytest.fixture(autouse=True)
def fresh_switches() -> None:
    hooks.switches.clear()


def plays(play: Callable[[Session], Awaitable[object]]) -> None:
    hooks.switches["play"] = play


def made() -> list[hooks.Environment]:
    return hooks.switches.get("made", [])


def all_closed(count: int) -> bool:
    return [environment.is_closed for environment in made()] == [1] * count


async def test_each_sample_has_an_environment_of_its_own_that_is_closed_when_it_is_finished(fleet: Fleet) -> None:
    plays(lambda session: session.generate())
    await fleet.configure(n=3)
    await fleet.submit("g")
    async with fleet.worker(generate=ENVIRONMENT):
        await fleet.completed(1)
        assert all_closed(3)


@pytest.mark.parametrize("kind", ["ClosesInAThread", "NeverCloses"])
async def test_how_an_environment_closes_is_its_own_affair(
    fleet: Fleet, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("worker.environments.CLOSE_SECONDS", 0.2)
    plays(lambda session: session.generate())
    await fleet.configure(n=1)
    await fleet.submit("g")
    async with fleet.worker(generate=f"{HOOKS}:{kind}"):
        await fleet.completed(1)
        assert all_closed(1)


async def test_the_environment_of_a_sample_that_failed_is_closed(fleet: Fleet) -> None:
    async def fails(_: Session) -> None:
        raise SystemExit(3)

    plays(fails)
    await fleet.configure(n=1, max_attempts=1)
    await fleet.submit("g")
    async with fleet.worker(generate=ENVIRONMENT):
        await fleet.dead()
        assert all_closed(1)


async def test_environments_of_siblings_of_a_failed_sample_are_closed(fleet: Fleet, engine: FakeEngine) -> None:
    async def play(session: Session) -> None:
        if session.index == 0:
            await until(lambda: len(made()) == 2)
            raise ValueError("lost the game")
        await session.generate()

    plays(play)
    engine.script = never
    await fleet.configure(n=2, max_attempts=1)
    await fleet.submit("g")
    async with fleet.worker(generate=ENVIRONMENT):
        await fleet.dead()
        assert all_closed(2)


async def test_environments_of_a_drained_worker_are_closed_before_their_group_is_given_back(
    fleet: Fleet, engine: FakeEngine
) -> None:
    plays(lambda session: session.generate())
    engine.script = never
    await fleet.configure(n=2)
    await fleet.submit("g")
    async with fleet.worker(generate=ENVIRONMENT, drain_seconds=0) as worked:
        await until(lambda: len(engine.requests) == 2)
        worked.stop.ask()
        assert await worked.ended() == 0
    assert all_closed(2)
    assert await fleet.stat("released:free") == 1
    engine.script = lambda _: said([1])
    async with fleet.worker():
        await fleet.completed(1)


async def test_the_environment_of_a_lost_group_is_closed(fleet: Fleet, engine: FakeEngine) -> None:
    plays(lambda session: session.generate())
    engine.script = lambda request: never(request) if len(engine.requests) == 1 else said([1])
    await fleet.configure(n=1)
    await fleet.submit("g")
    async with fleet.worker(generate=ENVIRONMENT):
        await until(lambda: engine.requests)
        ((token,),) = await fleet.broker.calls.read([["HKEYS", fleet.broker.keys.named("grants")]])
        await fleet.broker.release(token.decode(), "free")
        await fleet.completed(1)
        await until(lambda: all_closed(2))


async def test_a_reclaimed_sample_of_several_turns_begins_again(fleet: Fleet, engine: FakeEngine) -> None:
    async def play(session: Session) -> None:
        await session.generate()
        hooks.switches["turns"] = [*hooks.switches.get("turns", []), list(session.ids)]
        if len(made()) == 1:
            await asyncio.Event().wait()

    plays(play)
    await fleet.configure(n=1)
    await fleet.submit("g")
    async with fleet.worker(generate=ENVIRONMENT, partial_tokens=1, drain_seconds=0) as first:
        await until(lambda: hooks.switches.get("turns"))
        first.stop.ask()
        await first.ended()
        async with fleet.worker(generate=ENVIRONMENT, partial_tokens=1):
            await fleet.completed(1)
    assert hooks.switches["turns"] == [[1, 2, 3], [1, 2, 3]]
    assert [request["input_ids"] for request in engine.requests] == [[5, 6], [5, 6]]
    assert all("stream" not in request for request in engine.requests)


async def test_an_environment_that_cannot_be_made_fails_its_sample(fleet: Fleet) -> None:
    await fleet.configure(n=1, max_attempts=1)
    await fleet.submit("g")
    async with fleet.worker(generate=f"{HOOKS}:CannotBeMade"):
        (letter,) = await fleet.dead()
    assert letter["reason"].startswith(f"sample 0: generate {HOOKS}:CannotBeMade raised ConnectionError: no game")


@pytest.mark.parametrize("wrong", ["HasNoGenerate", "not_async"])
async def test_a_generate_that_can_not_be_awaited_is_refused_at_start(fleet: Fleet, wrong: str) -> None:
    await fleet.configure(n=1)
    async with fleet.worker() as idle:
        idle.stop.ask()
    with pytest.raises(WrongSetting, match="async def"):
        async with fleet.worker(generate=f"{HOOKS}:{wrong}") as worked:
            await worked.ended()
