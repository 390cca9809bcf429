"""The broker of the main job: the user's own, or a Valkey server that is started for it and kept running."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit, urlunsplit

from redis.exceptions import RedisError

from deploy.embedded import EmbeddedServer, ServerFailed
from rolloutfleet.errors import BrokerUnavailable
from rolloutfleet.redis import connect

_PATIENCE_SECONDS = 60.0
_LOOK_SECONDS = 0.5
_MOST_DEATHS = 5


class LocalBroker:
    """A context manager. `url` is where it is; the server, if it is ours, ends with the block."""

    def __init__(self, url: str | None, say: Callable[[str], None]) -> None:
        self.deaths = 0
        self._given = url
        self._say = say
        self._server = None if url else EmbeddedServer(durability="everysec")

    def __enter__(self) -> Self:
        if self._server is not None:
            self._server.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.close()

    @property
    def url(self) -> str:
        return self._given or ("" if self._server is None else self._server.url)

    @property
    def shown(self) -> str:
        """The address without a password."""
        parts = urlsplit(self.url)
        return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))

    async def wait(self, stop: asyncio.Event) -> None:
        """Until the broker answers, or `stop`. Errors: BrokerUnavailable after a minute."""
        client = connect(self.url, connections=1)
        end = time.monotonic() + _PATIENCE_SECONDS
        said = False
        try:
            while not stop.is_set():
                try:
                    await client.ping()
                    return
                except RedisError as error:
                    if time.monotonic() > end:
                        raise BrokerUnavailable(f"--redis-url: nothing answers at {self.shown}: {error}") from error
                    if not said:
                        self._say(f"waiting for Redis at {self.shown}: {error}")
                        said = True
                await _wait_for(stop, _LOOK_SECONDS)
        finally:
            await client.aclose()

    async def watch(self, ended: asyncio.Event) -> None:
        """Starts our server again when it dies; its append-only file brings everything back. Errors: ServerFailed."""
        while self._server is not None and not ended.is_set():
            if not self._server.is_running:
                self.deaths += 1
                if self.deaths > _MOST_DEATHS:
                    raise ServerFailed(f"the broker died {self.deaths} times; its log ends:\n{self._server.log_tail()}")
                self._say("the broker died: started again from its append-only file")
                # On this thread: only a child of the main thread is sure to end with us.
                self._server.start()
            await _wait_for(ended, _LOOK_SECONDS)


async def _wait_for(event: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)
