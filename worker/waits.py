"""Waiting that ends: for an event, with a limit; and the back-off between tries."""

import asyncio
import random


async def within(event: asyncio.Event, seconds: float) -> bool:
    """Whether the event was set before so many seconds were over."""
    try:
        async with asyncio.timeout(max(0.0, seconds)):
            await event.wait()
    except TimeoutError:
        return event.is_set()
    return True


async def any_within(seconds: float, *events: asyncio.Event) -> bool:
    """Whether one of the events was set before so many seconds were over."""
    if not any(event.is_set() for event in events):
        loop = asyncio.get_running_loop()
        waits = {loop.create_task(event.wait()) for event in events}
        try:
            await asyncio.wait(waits, timeout=max(0.0, seconds), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
    return any(event.is_set() for event in events)


def back_off(tries: int, first: float = 0.2, longest: float = 10.0) -> float:
    """Seconds to wait after so many failed tries (1 and up): doubling, and half of it jitter."""
    delay = min(longest, first * 2 ** min(tries - 1, 30))
    return delay * random.uniform(0.5, 1)
