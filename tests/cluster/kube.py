"""The cluster as tests see it: kubectl, awaited, with what it says as data."""

import asyncio
import json
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

COMMAND_SECONDS = 180
PATIENCE_SECONDS = 300
REACH_SECONDS = 60
UNREACHED = ("TLS handshake timeout", "Unable to connect", "was refused", "i/o timeout")  # nothing was asked yet

type Json = dict[str, Any]


class CommandFailed(AssertionError):
    """A command of a test failed, or ended well where the test says that it must not; the message is what it said."""


async def command(*words: str, stdin: str = "", seconds: float = COMMAND_SECONDS) -> str:
    """What it says. Errors: CommandFailed."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*words, stdin=pipe, stdout=pipe, stderr=pipe)
    try:
        async with asyncio.timeout(seconds):
            out, err = await process.communicate(stdin.encode())
    except BaseException:
        if process.returncode is None:
            process.kill()
            await process.wait()
        raise
    if process.returncode:
        raise CommandFailed(f"{' '.join(words)}: {(err or out).decode(errors='replace').strip()}")
    return out.decode()


async def kubectl(*words: str, stdin: str = "", seconds: float = COMMAND_SECONDS) -> str:
    """What it says. An API server that can't be reached on a busy machine is asked again. Errors: CommandFailed."""
    end = time.monotonic() + REACH_SECONDS
    while True:
        try:
            return await command("kubectl", "--request-timeout=30s", *words, stdin=stdin, seconds=seconds)
        except CommandFailed as error:
            if time.monotonic() > end or not any(each in str(error) for each in UNREACHED):
                raise
            await asyncio.sleep(1)


async def get(*words: str) -> list[Json]:
    """Objects; a name or kinds and selectors, as after `kubectl get`."""
    found = json.loads(await kubectl("get", *words, "-o", "json"))
    return found.get("items", [found])


async def apply(*objects: Mapping[str, Any]) -> None:
    await kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))


async def raw(path: str) -> str:
    """What the API server says at a path, for instance of a pod's port by its proxy."""
    return await kubectl("get", "--raw", path)


async def until[T](
    fact: Callable[[], Awaitable[T | None]], what: str, seconds: float = PATIENCE_SECONDS, pause: float = 0.2
) -> T:
    """Waits for a fact, and gives it. A refused look counts as not yet."""
    end, last = time.monotonic() + seconds, ""
    while True:
        try:
            if found := await fact():
                return found
        except (CommandFailed, TimeoutError) as error:
            last = f" (last: {error})"
        assert time.monotonic() < end, f"never came true within {seconds:.0f} s: {what}{last}"
        await asyncio.sleep(pause)


def name_of(thing: Json) -> str:
    return thing["metadata"]["name"]


def uid_of(thing: Json) -> str:
    return thing["metadata"]["uid"]


def is_ready(pod: Json) -> bool:
    conditions: Sequence[Json] = pod.get("status", {}).get("conditions", ())
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def is_going(pod: Json) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def image() -> str:
    return os.environ.get("ROLLOUTFLEET_CLUSTER_IMAGE", "")
