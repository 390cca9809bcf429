"""A TCP proxy in front of a broker that loses what a network can lose: replies, connections, time.

Invariant: a reply that is dropped belongs to a request that the broker has executed; the connection is cut with it.
"""

import asyncio
import contextlib
import random
from types import TracebackType
from typing import Self

CHUNK = 1 << 16


class Proxy:
    """`async with Proxy(host, port) as proxy`: clients connect to `proxy.url`. Faults begin when they are asked for."""

    def __init__(self, target_host: str, target_port: int, seed: int = 0) -> None:
        self.dropped = 0  # replies until now
        self.refused = 0  # connections until now
        self._target = target_host, target_port
        self._random = random.Random(seed)
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[None]] = set()
        self._drop_count, self._drop_probability, self._drop_only = 0, 0.0, b""
        self._refuses = False
        self._delay_seconds = 0.0

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=CHUNK)

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        await self._cut_all()

    @property
    def port(self) -> int:
        assert self._server is not None, "start the proxy first"
        return self._server.sockets[0].getsockname()[1]

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def drop_replies(self, count: int = 0, probability: float = 0.0, only: bytes = b"") -> None:
        """The next `count` replies, and each later one with `probability`, are swallowed and their connection is cut.

        `only`: replies to requests that contain these bytes. Zeros end it.
        """
        self._drop_count, self._drop_probability, self._drop_only = count, probability, only

    async def refuse(self, is_away: bool) -> None:
        """Cuts every connection and closes each new one at once, as long as `is_away`."""
        self._refuses = is_away
        if is_away:
            await self._cut_all()

    def delay(self, seconds: float) -> None:
        """Holds each reply back for so long."""
        self._delay_seconds = seconds

    async def _cut_all(self) -> None:
        for pair in list(self._open):
            pair.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refuses:
            self.refused += 1
            writer.close()
            return
        pair = asyncio.current_task()
        assert pair is not None
        self._open.add(pair)
        try:
            await self._connect(reader, writer)
        except (OSError, asyncio.CancelledError):  # either side went, or we cut it
            pass
        finally:
            self._open.discard(pair)
            writer.close()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream_reader, upstream_writer = await asyncio.open_connection(*self._target, limit=CHUNK)
        asked = bytearray()
        requests = asyncio.create_task(self._forward(reader, upstream_writer, asked))
        try:
            while data := await upstream_reader.read(CHUNK):
                if self._drops(bytes(asked)):
                    return
                asked.clear()
                await asyncio.sleep(self._delay_seconds)
                writer.write(data)
                await writer.drain()
        finally:
            requests.cancel()
            with contextlib.suppress(asyncio.CancelledError, OSError):
                await requests
            upstream_writer.close()

    async def _forward(self, reader: asyncio.StreamReader, upstream: asyncio.StreamWriter, asked: bytearray) -> None:
        while data := await reader.read(CHUNK):
            asked += data
            upstream.write(data)
            await upstream.drain()
        upstream.write_eof()

    def _drops(self, asked: bytes) -> bool:
        if self._drop_only not in asked:
            return False
        if self._drop_count > 0:
            self._drop_count -= 1
        elif self._random.random() >= self._drop_probability:
            return False
        self.dropped += 1
        return True
