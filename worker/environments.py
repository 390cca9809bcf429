"""Custom generate: a coroutine function, or a class of environments of which each sample gets one of its own.

Invariants: an environment that was made is closed once, however its sample ended; closing begins when nothing of the
environment runs any more (a stranger that swallows its cancellation is given a second), takes a bounded time, and fails
nothing.
"""

import asyncio
import inspect
import logging
from typing import Any

from worker.generate import Session
from worker.hooks import Hook, HookFailed, HookRunner, load_hook
from worker.settings import WrongSetting
from worker.waits import within

log = logging.getLogger("worker.environments")

CLOSE_SECONDS = 5.0
_GRACE_SECONDS = 1.0


def load_generate(path: str) -> Hook:
    """Errors: WrongSetting, where there is nothing that could be awaited."""
    hook = load_hook("generate", path)
    if inspect.isclass(hook.call):
        found: Any = getattr(hook.call, "generate", None)
        if not inspect.iscoroutinefunction(found):
            raise WrongSetting(f"generate: class {path!r} has no method `async def generate(self, session)`: add it")
    elif not hook.is_async:
        raise WrongSetting(f"generate: {path!r} is no coroutine function: make it `async def`")
    return hook


async def play(runner: HookRunner, hook: Hook, session: Session) -> None:
    """Makes the sample of a session. Errors: HookFailed."""
    if not inspect.isclass(hook.call):
        await runner.call_freely(hook, None, session)
        return
    made: list[Any] = []
    over = asyncio.Event()

    async def live(session: Session) -> None:
        try:
            made.append(hook.call())
            await made[0].generate(session)
        finally:
            over.set()

    try:
        await runner.call_freely(Hook(hook.name, live), None, session)
    finally:
        if made:
            await within(over, _GRACE_SECONDS)
            await _close(runner, hook, made[0])


async def _close(runner: HookRunner, hook: Hook, environment: Any) -> None:
    close: Any = getattr(environment, "close", None)
    if close is None:
        return
    try:
        await runner.call_freely(Hook(f"{hook.name}.close", close), CLOSE_SECONDS)
    except HookFailed as error:
        log.warning("%s", error)
