"""What a server must be set to: each fault of it is one sentence with its mend."""

from dataclasses import replace
from typing import Any

import pytest
import redis.asyncio
from redis.exceptions import ResponseError

from deploy.embedded import EmbeddedServer
from rolloutfleet.redis import connect
from rolloutfleet.server import Server, read_server

SOUND = Server("valkey", "9.1.0", "noeviction", 0, 1_000_000, aof=True)


class ManagedRedis:
    """A server that tells little and forbids CONFIG, as managed ones do."""

    def __init__(self, **info: Any) -> None:
        self._info = info

    async def info(self) -> dict[str, Any]:
        return self._info

    async def config_get(self, name: str) -> dict[str, str]:
        raise ResponseError(f"unknown command 'CONFIG GET {name}'")


async def read(**info: Any) -> Server:
    return await read_server(ManagedRedis(**info))  # pyright: ignore[reportArgumentType]


def test_a_sound_server_has_no_problems():
    assert SOUND.problems() == []


@pytest.mark.parametrize(("name", "version"), [("redis", "6.2.14"), ("redis", "5.0"), ("valkey", "7.1.9")])
def test_an_old_server_is_told_which_one_to_use(name: str, version: str):
    problems = replace(SOUND, name=name, version=version).problems()
    assert problems == [f"{name} {version} is too old: use Redis >= 7.0 or Valkey >= 7.2"]


@pytest.mark.parametrize(("name", "version"), [("redis", "7.0.0"), ("redis", "10.1"), ("valkey", "7.2.0")])
def test_the_oldest_that_will_do_and_all_after_it_are_sound(name: str, version: str):
    assert replace(SOUND, name=name, version=version).problems() == []


def test_a_server_without_an_append_only_file_loses_the_run_at_a_restart():
    (problem,) = replace(SOUND, aof=False).problems()
    assert problem == "the append-only file is off: a restart of the server loses the run; set appendonly yes"


def test_what_a_server_does_not_tell_is_no_problem():
    assert replace(SOUND, maxmemory_policy=None, aof=None).problems() == []


async def test_what_a_managed_server_does_not_tell_is_unknown():
    server = await read(redis_version="7.2.4")
    assert server == Server("redis", "7.2.4", None, None, None, None)


async def test_a_valkey_is_judged_by_its_own_version_and_not_by_the_redis_it_says_to_be():
    server = await read(redis_version="7.2.4", valkey_version="9.1.0", maxmemory_policy="noeviction", aof_enabled=1)
    assert (server.name, server.version, server.problems()) == ("valkey", "9.1.0", [])


async def test_an_old_redis_is_read_as_one():
    assert (await read(redis_version="6.2.14", aof_enabled=1)).problems()[0].startswith("redis 6.2.14 is too old")


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
async def test_a_real_server_that_evicts_says_so(policy: str):
    with EmbeddedServer(durability="everysec", arguments=["--maxmemory-policy", policy]) as server:
        async with connect(server.url) as client:
            (problem,) = (await read_server(client)).problems()
    assert problem.startswith(f"maxmemory-policy is {policy}: the server may delete groups when memory is full; ")
    assert problem.endswith("set it to noeviction")


async def test_a_real_server_that_keeps_everything_is_sound():
    with EmbeddedServer(durability="everysec") as server:
        async with connect(server.url) as client:
            found = await read_server(client)
    assert (found.problems(), found.aof, found.maxmemory_policy) == ([], True, "noeviction")


async def test_a_real_server_without_an_append_only_file_says_so(client: redis.asyncio.Redis):
    found = await read_server(client)
    assert (found.name, found.aof, found.maxmemory) == ("valkey", False, 0)
    assert found.used_memory is not None
    assert found.used_memory > 0


async def test_each_server_of_the_matrix_is_new_enough(each_client: redis.asyncio.Redis):
    assert [problem for problem in (await read_server(each_client)).problems() if "too old" in problem] == []
