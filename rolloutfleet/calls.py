"""Running scripts: by hash, loaded where they are missing, called again under the same arguments when a reply is lost.

Invariants: every step may be executed twice without harm, so a call is repeated until it is answered or its time is up;
then BrokerUnavailable says so, and whether the step was executed is unknown. Nothing is retried behind our back.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

from redis.exceptions import (
    ClusterDownError,
    ConnectionError,
    ExecAbortError,
    MasterDownError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TimeoutError,
    TryAgainError,
)

from rolloutfleet.errors import BrokerUnavailable
from rolloutfleet.keys import Keys
from rolloutfleet.lua import Script, scripts
from rolloutfleet.redis import Client

# Answers of a server that cannot serve now: back off and go on. The client library makes classes of some, and cuts
# their first word off; the others still begin with it.
_NOT_NOW_CLASSES = (OutOfMemoryError, ReadOnlyError, ClusterDownError, TryAgainError, MasterDownError)
_NOT_NOW = ("MISCONF", "BUSY ", "NOREPLICAS", "READONLY", "LOADING", "CLUSTERDOWN", "TRYAGAIN", "MASTERDOWN", "OOM")
_FIRST_DELAY = 0.02
_LONGEST_DELAY = 1.0

type Arg = str | bytes | int | float


class Calls:
    """Calls the steps of one run. `retry_seconds`: how long a call is repeated before BrokerUnavailable is raised."""

    def __init__(self, client: Client, keys: Keys, retry_seconds: float = 30) -> None:
        self.client = client
        self.keys = keys
        self.retry_seconds = retry_seconds
        # As bytes: the client encodes them again with every call.
        self._all_keys = [key.encode() for key in keys.all()]
        self._scripts: dict[str, Script] = {}

    async def step(self, name: str, *args: Arg) -> Any:
        """Runs a step. Errors: BrokerUnavailable."""
        return await self.repeat(lambda: self._step(name, args))

    async def read(self, commands: Sequence[Sequence[Arg]]) -> list[Any]:
        """Plain commands in one round trip, in order; an answer may be an exception. Errors: BrokerUnavailable."""
        return await self.repeat(lambda: self._pipeline(commands, transaction=False))

    async def transaction(self, commands: Sequence[Sequence[Arg]]) -> list[Any] | None:
        """Commands in one MULTI, sent again whole if a script is not loaded. None: refused, since memory is full.

        Errors: BrokerUnavailable; redis.ResponseError, where one of the commands failed.
        """

        async def send() -> list[Any] | None:
            try:
                answers = await self._pipeline(commands, transaction=True)
                if any(isinstance(answer, NoScriptError) for answer in answers):
                    await self.load()
                    answers = await self._pipeline(commands, transaction=True)
            except (OutOfMemoryError, ExecAbortError):
                return None
            for answer in answers:
                if isinstance(answer, RedisError):
                    raise answer
            return answers

        return await self.repeat(send)

    async def command(self, name: str, *args: Arg) -> list[Arg]:
        """The EVALSHA of a step, for a transaction."""
        script = await self._script(name)
        return ["EVALSHA", script.sha, len(self._all_keys), *self._all_keys, *args]

    async def load(self) -> None:
        """Loads all scripts. Called at the first use, and whenever the server has forgotten them."""
        known = scripts(flags=await self._knows_flags())
        async with self.client.pipeline(transaction=False) as pipe:
            for script in known.values():
                pipe.script_load(script.text)
            await pipe.execute()
        self._scripts = known

    async def _knows_flags(self) -> bool:
        try:
            await self.client.execute_command("EVAL", "#!lua flags=allow-oom\nreturn 1", 0)
        except ResponseError as error:
            if _is_not_now(error):
                raise
            return False
        return True

    async def repeat[T](self, call: Callable[[], Awaitable[T]]) -> T:
        """Calls until there is an answer. Errors: BrokerUnavailable after retry_seconds; any other error at once."""
        end, delay = time.monotonic() + self.retry_seconds, _FIRST_DELAY
        while True:
            try:
                return await call()
            except RedisError as error:
                if not _is_not_now(error):
                    raise
                if time.monotonic() + delay > end:
                    raise BrokerUnavailable(
                        f"Redis does not serve ({error}): is it running, is the URL right?"
                    ) from error
                if isinstance(error, ResponseError) and not isinstance(error, OutOfMemoryError):
                    # A replica, or a server that starts: a new connection may lead to the one that serves.
                    await self.client.connection_pool.disconnect(inuse_connections=False)
            await asyncio.sleep(delay * random.uniform(0.5, 1))
            delay = min(delay * 2, _LONGEST_DELAY)

    async def _step(self, name: str, args: Sequence[Arg]) -> Any:
        command = await self.command(name, *args)
        try:
            return await self._execute(command)
        except NoScriptError:
            await self.load()
            return await self._execute(command)

    async def _execute(self, command: Sequence[Arg]) -> Any:
        return cast(Any, await self.client.execute_command(*command))

    async def _pipeline(self, commands: Sequence[Sequence[Arg]], transaction: bool) -> list[Any]:
        async with self.client.pipeline(transaction=transaction) as pipe:
            for command in commands:
                pipe.execute_command(*command)
            answers: list[Any] = await pipe.execute(raise_on_error=False)
        for answer in answers:
            if isinstance(answer, RedisError) and _is_not_now(answer):
                raise answer
        return answers

    async def _script(self, name: str) -> Script:
        if not self._scripts:
            await self.load()
        return self._scripts[name]


def _is_not_now(error: RedisError) -> bool:
    if isinstance(error, ConnectionError | TimeoutError):
        return True
    return isinstance(error, _NOT_NOW_CLASSES) or (isinstance(error, ResponseError) and str(error).startswith(_NOT_NOW))
