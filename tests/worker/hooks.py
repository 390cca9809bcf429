"""Hooks that do what strangers do."""

import asyncio
import os
import threading
import time
from typing import Any

from rolloutfleet.messages import PromptGroup, Sample
from worker.generate import Session

release_blocked = threading.Event()  # ends what `blocks` waits for
switches: dict[str, Any] = {}  # what a test tells a hook


def length(prompt: PromptGroup, sample: Sample) -> float:
    return float(sample.length)


async def length_async(prompt: PromptGroup, sample: Sample) -> int:
    await asyncio.sleep(0)
    return sample.length


def raises(prompt: PromptGroup, sample: Sample) -> float:
    raise switches["raise"]


async def raises_async(prompt: PromptGroup, sample: Sample) -> float:
    raise switches["raise"]


def returns(*_: Any) -> Any:
    return switches["return"]


def returns_in_turn(*_: Any) -> Any:
    return switches["in_turn"].pop(0)


def blocks(prompt: PromptGroup, sample: Sample) -> float:
    release_blocked.wait(30)
    return 1.0


async def swallows_cancel(prompt: PromptGroup, sample: Sample) -> float:
    for _ in range(1000):
        try:
            await asyncio.sleep(0.05)
        except asyncio.CancelledError:
            switches["cancelled"] = True
        if switches.get("end"):
            break
    return 1.0


def drops_odd(prompt: PromptGroup, *_: Any) -> Any:
    return ("drop", "all equal") if prompt.id.startswith("odd") else "keep"


async def filter_that_blocks_the_loop(*_: Any) -> str:
    """What nobody should do: stops the main loop for longer than a lease."""
    time.sleep(switches["seconds"])  # noqa: ASYNC251  # the point of it
    return "keep"


def returns_coroutine(prompt: PromptGroup, sample: Sample) -> Any:
    return length_async(prompt, sample)


def kills_bad(prompt: PromptGroup, sample: Sample) -> float:
    if prompt.id.startswith("killer"):
        os._exit(9)
    return 1.0


async def kills_bad_generate(session: Session) -> None:
    if session.prompt.id.startswith("killer"):
        await asyncio.sleep(0.1)  # its neighbours have begun
        os._exit(9)
    await session.generate()


async def two_turns(session: Session) -> None:
    first = await session.generate(max_new_tokens=4)
    session.append([50, 51], mask=0)
    await session.generate()
    session.finish(reward=0.25, metadata={"first": list(first.ids)})


async def waits_between_turns(session: Session) -> None:
    await session.generate()
    switches["between"] = switches.get("between", 0) + 1
    await switches["go"].wait()
    session.append([50])
    await session.generate()


async def renders_again(session: Session) -> None:
    await session.generate()
    await session.generate(input_ids=[5, 6, 99])


async def own_prompt(session: Session) -> None:
    await session.generate(input_ids=[40, 41])


async def encodes_42(session: Session) -> None:
    await session.generate()
    session.append(await session.encode("42"))
    await session.generate()


class Environment:
    """One sample's world: says in `switches` what happens to it."""

    def __init__(self) -> None:
        switches.setdefault("made", []).append(self)
        self.is_closed = 0

    async def generate(self, session: Session) -> None:
        await switches["play"](session)

    async def close(self) -> None:
        self.is_closed += 1


class ClosesInAThread(Environment):
    def close(self) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        self.is_closed += 1


class NeverCloses(Environment):
    async def close(self) -> None:
        self.is_closed += 1
        await asyncio.Event().wait()


class CannotBeMade:
    def __init__(self) -> None:
        raise ConnectionError("no game server")

    async def generate(self, session: Session) -> None:
        raise AssertionError("never called")


class HasNoGenerate:
    def close(self) -> None:
        raise AssertionError("never called")


async def whole_input(session: Session) -> None:
    await session.generate()
    await session.generate(input_ids=[*(session.prompt_ids or ()), *session.ids, 60])


async def makes_nothing(session: Session) -> None:
    session.append([1])


async def generate_raises(session: Session) -> None:
    raise switches["raise"]


async def swallows_failures(session: Session) -> None:
    try:
        await session.generate()
    except Exception:
        switches["swallowed"] = True


async def odd_metadata(session: Session) -> None:
    await session.generate()
    session.finish(metadata={"object": object()})


def not_async(session: Session) -> None:
    raise AssertionError("never called")
