"""What a Redis or Valkey must be set to, so that nothing is lost; asked at each start and by `rolloutfleet doctor`."""

from dataclasses import dataclass
from typing import Any

from redis.exceptions import RedisError

from rolloutfleet.redis import Client


@dataclass(frozen=True, slots=True)
class Server:
    """What the server says of itself. None: it does not tell (CONFIG may be forbidden on a managed one)."""

    name: str  # "valkey" or "redis"
    version: str
    maxmemory_policy: str | None
    maxmemory: int | None  # bytes; 0: no bound
    used_memory: int | None  # bytes
    aof: bool | None

    def problems(self) -> list[str]:
        """What should be mended, a sentence each; empty: nothing."""
        found: list[str] = []
        baseline = (7, 2) if self.name == "valkey" else (7, 0)
        if _numbers(self.version) < baseline:
            found.append(f"{self.name} {self.version} is too old: use Redis >= 7.0 or Valkey >= 7.2")
        if self.maxmemory_policy not in (None, "noeviction"):
            found.append(
                f"maxmemory-policy is {self.maxmemory_policy}: the server may delete groups when memory is full; "
                "set it to noeviction"
            )
        if self.aof is False:
            found.append("the append-only file is off: a restart of the server loses the run; set appendonly yes")
        return found


async def read_server(client: Client) -> Server:
    """Asks the server. Errors: those of redis-py, where it does not answer at all."""
    answer: dict[str, Any] = await client.info()
    info = {name: str(value) for name, value in answer.items()}
    policy = info.get("maxmemory_policy") or await _setting(client, "maxmemory-policy")
    return Server(
        "valkey" if "valkey_version" in info else "redis",
        info.get("valkey_version") or info.get("redis_version", "0"),
        policy,
        _int(info.get("maxmemory")),
        _int(info.get("used_memory")),
        info["aof_enabled"] == "1" if "aof_enabled" in info else None,
    )


async def _setting(client: Client, name: str) -> str | None:
    try:
        found = await client.config_get(name)
    except RedisError:
        return None
    return {str(key): str(value) for key, value in found.items()}.get(name)


def _int(text: str | None) -> int | None:
    return int(text) if text and text.isdigit() else None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
