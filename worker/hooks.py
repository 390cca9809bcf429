"""Hooks are strangers: functions of the user, named as `module:function`, that may do anything.

Invariants: whatever a hook raises (CancelledError, SystemExit), however long it blocks, a call ends within its time as
a value or as HookFailed with the hook's name; no permit is kept by one that never returns. Synchronous hooks run in
daemon threads, so that a stuck one does not hold up the end of the process.
"""

import asyncio
import importlib
import inspect
import logging
import threading
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from worker.settings import WrongSetting

log = logging.getLogger("worker.hooks")

MOST_STUCK = 256  # threads of calls that timed out and never returned; beyond that no call is begun


class HookFailed(Exception):
    """The message begins with the hook's name. `is_away`: a service that the hook needs is down."""

    def __init__(self, message: str, is_away: bool = False) -> None:
        super().__init__(message)
        self.is_away = is_away


@dataclass(frozen=True, slots=True)
class Hook:
    """A function and the name under which it is spoken of."""

    name: str
    call: Callable[..., Any]

    @property
    def is_async(self) -> bool:
        return inspect.iscoroutinefunction(self.call) or inspect.iscoroutinefunction(
            getattr(self.call, "__call__", None)  # noqa: B004  # an object whose __call__ is a coroutine function
        )


def load_hook(setting: str, path: str) -> Hook:
    """The function at `module:function`. Errors: WrongSetting, naming the setting."""
    module, _, name = path.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except Exception as error:  # importing runs the stranger's module
        raise WrongSetting(f"{setting}: can't load {path!r} ({type(error).__name__}: {error})") from error
    if not callable(found):
        raise WrongSetting(f"{setting}: {path!r} is no function")
    return Hook(f"{setting} {path}", found)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a hook ended."""

    value: Any = None
    error: BaseException | None = None


class HookRunner:
    """Calls hooks, at most `concurrency` at once, each for at most `timeout_seconds`."""

    def __init__(self, concurrency: int, timeout_seconds: float) -> None:
        self._permits = asyncio.Semaphore(concurrency)
        self._timeout = timeout_seconds
        self._stuck = 0
        self._tasks: set[asyncio.Task[Outcome]] = set()

    async def call(self, hook: Hook, *args: Any) -> Any:
        """What the hook returns. Errors: HookFailed."""
        async with self._permits:
            return await self.call_freely(hook, self._timeout, *args)

    async def call_freely(self, hook: Hook, timeout: float | None, *args: Any) -> Any:
        """As `call`, without a permit, and with a timeout of its own (seconds; None: the caller's own ends it)."""
        try:
            outcome = await (
                self._in_task(hook, timeout, args) if hook.is_async else self._in_thread(hook, timeout, args)
            )
        except TimeoutError:
            raise HookFailed(f"{hook.name} took longer than {timeout:g} s") from None
        if outcome.error is not None:
            raise _failure(hook, outcome.error)
        return outcome.value

    async def _in_task(self, hook: Hook, timeout: float | None, args: tuple[Any, ...]) -> Outcome:
        task = asyncio.get_running_loop().create_task(_caught(hook.call, args))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            done, _ = await asyncio.wait({task}, timeout=timeout)
        finally:
            task.cancel()  # not awaited: a stranger may swallow it
        if not done:
            raise TimeoutError
        return task.result()

    async def _in_thread(self, hook: Hook, timeout: float | None, args: tuple[Any, ...]) -> Outcome:
        if self._stuck >= MOST_STUCK:
            raise HookFailed(f"{hook.name}: {self._stuck} calls never returned: give it a timeout of its own")
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[Outcome] = loop.create_future()
        threading.Thread(target=_thread, args=(hook.call, args, loop, ended), name=hook.name, daemon=True).start()
        try:
            async with asyncio.timeout(timeout):
                # Shielded: the future belongs to the thread, which may end it long after we are gone.
                return await asyncio.shield(ended)
        finally:
            if not ended.done():  # nobody waits for it any more
                self._stuck += 1
                ended.add_done_callback(self._returned)

    def _returned(self, _: asyncio.Future[Outcome]) -> None:
        self._stuck -= 1


async def _caught(call: Callable[..., Awaitable[Any]], args: tuple[Any, ...]) -> Outcome:
    # SystemExit that leaves a task would end the event loop, and CancelledError would look like our own.
    try:
        return Outcome(await call(*args))
    except BaseException as error:
        return Outcome(error=error)


def _thread(
    call: Callable[..., Any], args: tuple[Any, ...], loop: asyncio.AbstractEventLoop, ended: asyncio.Future[Outcome]
) -> None:
    try:
        outcome = Outcome(call(*args))
    except BaseException as error:
        outcome = Outcome(error=error)
    if isinstance(outcome.value, Coroutine):
        outcome.value.close()
        outcome = Outcome(error=TypeError("returned a coroutine: make the hook itself `async def`"))
    try:
        loop.call_soon_threadsafe(_end, ended, outcome)
    except RuntimeError:
        return  # the loop is closed: the process ends


def _end(ended: asyncio.Future[Outcome], outcome: Outcome) -> None:
    if not ended.done():
        ended.set_result(outcome)


def _failure(hook: Hook, error: BaseException) -> HookFailed:
    if not isinstance(error, Exception):
        log.error("%s raised %s", hook.name, type(error).__name__)
    words = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return HookFailed(f"{hook.name} raised {words}"[:1000], _is_away(error))


def _is_away(error: BaseException) -> bool:
    """Whether a ConnectionError is at the bottom of it: HTTP libraries raise errors of their own around it."""
    found: object = error
    for _ in range(8):
        if not isinstance(found, BaseException) or isinstance(found, ConnectionError):
            break
        found = getattr(found, "reason", None) or found.__cause__ or found.__context__
    return isinstance(found, ConnectionError)
