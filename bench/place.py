"""Where a measurement runs: its server, and brokers on it that count their round trips."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any, cast

from rolloutfleet.broker import Broker
from rolloutfleet.redis import Client, connect, connect_blocking

_numbers = count(1)


class Trips:
    """Request-reply exchanges of clients. A pipeline is one, however many commands it carries."""

    def __init__(self) -> None:
        self.number = 0

    def watch(self, client: Client) -> Client:
        """Counts what the client sends from now on, once per exchange; connections already open are not counted."""
        pool = client.connection_pool
        pool.connection_class = _counted(pool.connection_class, self)
        return client


def _counted(kind: type[Any], trips: Trips) -> type[Any]:
    class Counted(kind):
        async def send_packed_command(self, command: Any, check_health: bool = True) -> None:
            # Handshakes of a new connection pass here too: a few in a whole run.
            trips.number += 1
            await super().send_packed_command(command, check_health)

    return Counted


@dataclass(frozen=True, slots=True)
class Place:
    """A server's URL, and whether a few seconds must do."""

    url: str
    quick: bool = False

    def pick[T](self, full: T, quick: T) -> T:
        return quick if self.quick else full

    @asynccontextmanager
    async def broker(self, trips: Trips | None = None, connections: int = 64) -> AsyncGenerator[Broker]:
        """A broker on a run that nobody else has."""
        client = connect(self.url, connections=connections)
        if trips:
            trips.watch(client)
        try:
            yield Broker(client, f"bench-{next(_numbers)}")
        finally:
            await client.aclose()

    @asynccontextmanager
    async def blocking(self, trips: Trips | None = None) -> AsyncGenerator[Client]:
        """A client for BLPOP."""
        client = connect_blocking(self.url)
        if trips:
            trips.watch(client)
        try:
            yield client
        finally:
            await client.aclose()


async def minimal_script(client: Client) -> str:
    """The hash of a script that does nothing, with the flags line that a step has."""
    return await client.script_load("#!lua flags=allow-oom\nreturn 1")


async def server_seconds(client: Client) -> float:
    """CPU time that the server has used."""
    found = cast("dict[str, float]", await client.info("cpu"))
    return found["used_cpu_user"] + found["used_cpu_sys"]
