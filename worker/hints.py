"""Waits for the hint that a claim may succeed: BLPOP on `wake`, on a connection of its own.

Invariants: the wait ends by itself after BLOCK_SECONDS; it is never cancelled, since a cancelled BLPOP can lose the
hint, but unblocked by the server; whether a hint was taken is always said, and who took one must claim.
"""

import asyncio
import logging
from typing import Any, Self

from redis.exceptions import RedisError

from rolloutfleet.redis import BLOCK_SECONDS, connect_blocking

log = logging.getLogger("worker.hints")

_SHORTEST_SECONDS = 0.005  # 0 would be for ever
_UNBLOCK_SECONDS = 0.2  # the first time, the server may not have seen the BLPOP yet


class Hints:
    """One waiter on one `wake` key."""

    def __init__(self, redis_url: str, key: str) -> None:
        self._client = connect_blocking(redis_url)
        self._key = key
        self._waiter = self._client.client()  # bound to one connection, which CLIENT UNBLOCK can name
        self._id: int | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._waiter.aclose()
        await self._client.aclose()

    async def wait(self, interrupt: asyncio.Event, seconds: float | None = None) -> bool:
        """Whether a hint was taken, within `seconds` (BLOCK_SECONDS at the most) or until `interrupt` is set."""
        longest = BLOCK_SECONDS if seconds is None else min(BLOCK_SECONDS, max(_SHORTEST_SECONDS, seconds))
        popped = asyncio.get_running_loop().create_task(self._pop(longest))
        watch = asyncio.get_running_loop().create_task(interrupt.wait())
        try:
            await asyncio.wait({popped, watch}, return_when=asyncio.FIRST_COMPLETED)
            while not popped.done():
                await self._unblock()
                await asyncio.wait({popped}, timeout=_UNBLOCK_SECONDS)
            return popped.result()
        finally:
            watch.cancel()

    async def _pop(self, seconds: float) -> bool:
        try:
            if self._id is None:
                self._id = await self._waiter.client_id()
            answer: Any = await self._waiter.blpop([self._key], timeout=seconds)
        except RedisError as error:
            log.debug("waiting for a hint: %s", error)
            self._id = None
            await asyncio.sleep(0.5)
            return False
        return answer is not None

    async def _unblock(self) -> None:
        if self._id is None:
            return
        try:
            await self._client.execute_command("CLIENT", "UNBLOCK", self._id)
        except RedisError as error:  # forbidden, perhaps: then the wait ends by itself
            log.debug("unblocking: %s", error)
