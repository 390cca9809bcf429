"""What the tests of an engine's contract share: a client of one engine, and requests that run beside a test."""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

QUICK: dict[str, Any] = {"max_new_tokens": 12, "ignore_eos": True}
LONG: dict[str, Any] = {"max_new_tokens": 600, "ignore_eos": True}
ENDLESS: dict[str, Any] = {"max_new_tokens": 4000, "ignore_eos": True}
PROMPT = [5, 6, 7, 8]

type Json = dict[str, Any]
type Spawn = Callable[[Awaitable[Any]], asyncio.Task[Any]]


class Client:
    """Speaks to one engine."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def post(self, path: str, body: Json | bytes | None = None) -> tuple[int, Any]:
        """(status, JSON or text)"""
        data = body if isinstance(body, bytes) else json.dumps(body or {}).encode()
        async with self._session.post(path, data=data, headers={"Content-Type": "application/json"}) as answer:
            return answer.status, _read(await answer.text())

    async def get(self, path: str) -> tuple[int, Any]:
        async with self._session.get(path) as answer:
            return answer.status, _read(await answer.text())

    async def generate(self, sampling: Json | None = None, **body: Any) -> Json:
        prompt = {} if "text" in body else {"input_ids": PROMPT}
        status, answer = await self.post("/generate", prompt | {"sampling_params": sampling or QUICK} | body)
        assert status == 200, answer
        return answer

    async def refused(self, **body: Any) -> Any:
        status, answer = await self.post("/generate", body)
        assert status == 400
        return answer

    async def events(self, body: Json) -> list[str]:
        async with self._session.post("/generate", json=body | {"stream": True}) as answer:
            assert answer.status == 200
            return [line[6:] for line in (await answer.text()).splitlines() if line.startswith("data: ")]

    async def load(self) -> tuple[int, int]:
        """(running, queued)"""
        _, answer = await self.get("/v1/loads")
        load = answer["loads"][0]
        return load["num_running_reqs"], load["num_waiting_reqs"]

    async def until_load(self, running: int, queued: int = 0) -> None:
        await until(lambda: self._has_load(running, queued))

    async def _has_load(self, running: int, queued: int) -> bool:
        return await self.load() == (running, queued)


def _read(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


async def until(fact: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(60):
        while not await fact():  # noqa: ASYNC110 - the fact is at the other end of a connection
            await asyncio.sleep(0.005)


@asynccontextmanager
async def client_of(url: str, **headers: str) -> AsyncGenerator[Client]:
    async with aiohttp.ClientSession(url, headers=headers) as session:
        yield Client(session)


@asynccontextmanager
async def beside() -> AsyncGenerator[Spawn]:
    """Runs requests beside a test; what is left at its end is cancelled."""
    tasks: list[asyncio.Task[Any]] = []

    def start(awaitable: Awaitable[Any]) -> asyncio.Task[Any]:
        tasks.append(asyncio.ensure_future(awaitable))  # pyright: ignore[reportArgumentType]
        return tasks[-1]

    try:
        yield start
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def finish(answer: Json) -> str:
    return answer["meta_info"]["finish_reason"]["type"]


def span(version: str, end: int) -> Json:
    """The only span of an answer of so many tokens."""
    return {"version": version, "start": 0, "end": end}
