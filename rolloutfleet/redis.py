"""Connections to Redis or Valkey.

redis-py retries by itself and cuts blocking commands at its socket timeout: here it does neither. Retries belong to
Broker, which repeats a step under the token it was first called with; blocking calls have a pool of their own.
"""

from collections.abc import Callable
from typing import Any, cast

import hiredis
import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.exceptions import DataError

type Client = redis.asyncio.Redis

_pack = cast(Callable[[tuple[Any, ...]], bytes], hiredis.pack_command)  # pyright: ignore[reportUnknownMemberType]

BLOCK_SECONDS = 4  # longest that a blocking command waits; after that the caller looks for itself
_TIMEOUT_SECONDS = 10.0


def connect(url: str, *, connections: int = 64) -> Client:
    """A client for commands that answer at once. Binary answers (bytes); no retries; every wait ends."""
    return _client(url, connections, _TIMEOUT_SECONDS)


def connect_blocking(url: str) -> Client:
    """A client for BLPOP and XREAD BLOCK of at most BLOCK_SECONDS: few connections, a longer timeout."""
    return _client(url, 4, BLOCK_SECONDS + _TIMEOUT_SECONDS)


class _Packing:
    """A connection's way to write commands: redis-py lets hiredis do it for blocking sockets only.

    In Python a step with its 19 keys takes several times as long, and a worker's time goes into those.
    """

    def pack_command(self, name: str | bytes, *args: Any) -> list[bytes]:
        words = (name.encode() if isinstance(name, str) else name).split()  # CONFIG SET is one name to redis-py
        try:
            return [_pack((*words, *args))]
        except TypeError as error:
            raise DataError(str(error)) from error


def _client(url: str, connections: int, timeout: float) -> Client:
    # One that blocks: the other kind fails as if Redis were away when more calls are under way than connections.
    pool = redis.asyncio.BlockingConnectionPool.from_url(
        url,
        max_connections=connections,
        timeout=_TIMEOUT_SECONDS,
        socket_timeout=timeout,
        socket_connect_timeout=_TIMEOUT_SECONDS,
        retry=AsyncRetry(NoBackoff(), 0),
        protocol=2,
    )
    pool.connection_class = type("Connection", (_Packing, pool.connection_class), {})
    return redis.asyncio.Redis.from_pool(pool)
