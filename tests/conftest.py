"""Real servers for tests, and the rule that a test leaves no keys behind.

`run` is a fresh run name. A test that uses it with `client` (or `valkey`, `redis_url`) works on the session's Valkey;
with `each_client` (or `each_server`) it runs once on every server of the matrix. Afterwards no key of the run may be
left but those that invariant I5 allows.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import AsyncIterator, Generator, Iterator
from typing import cast

import pytest
import redis
import redis.asyncio

from deploy.embedded import EmbeddedServer
from tests.servers import MATRIX, available_servers

# What I5 of the design allows after a drain; `completed` only as an empty stream.
MAY_STAY = frozenset(
    {"state", "config", "policy", "stats", "done", "dead", "completed", "wake"}
    | {"workers", "capacity", "draining", "barred", "updating"}
)
KEYS_PER_SCAN = 1000

run_numbers = itertools.count(1)
call_failed = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.when == "call":
        item.stash[call_failed] = report.failed
    return report


@pytest.fixture(scope="session")
def valkey() -> Iterator[EmbeddedServer]:
    """The Valkey of the whole session. A test that kills or freezes its server starts one of its own."""
    with EmbeddedServer(durability="off") as server:
        yield server


@pytest.fixture(scope="session")
def redis_url(valkey: EmbeddedServer) -> str:
    return valkey.url


@pytest.fixture(scope="session", params=[kind.name for kind in MATRIX])
def each_server(request: pytest.FixtureRequest) -> Iterator[EmbeddedServer]:
    """Each server of the matrix in turn; those that aren't installed are skipped."""
    binary = dict(available_servers()).get(request.param)
    if binary is None:
        pytest.skip(f"{request.param} is not installed")
    with EmbeddedServer(durability="off", binary=binary) as server:
        yield server


@pytest.fixture
async def client(redis_url: str) -> AsyncIterator[redis.asyncio.Redis]:
    async with redis.asyncio.Redis.from_url(redis_url, decode_responses=False) as connected:
        yield connected


@pytest.fixture
async def each_client(each_server: EmbeddedServer) -> AsyncIterator[redis.asyncio.Redis]:
    async with redis.asyncio.Redis.from_url(each_server.url, decode_responses=False) as connected:
        yield connected


@pytest.fixture
def run(request: pytest.FixtureRequest) -> str:
    """A run name that no other test of the session has."""
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", request.node.name)[:80].strip("-")
    return f"{readable}-{next(run_numbers)}"


@pytest.fixture(autouse=True)
def leaves_nothing_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails a test whose run has keys left that I5 doesn't allow, and deletes what the run had."""
    used = {"run", "valkey", "each_server"} & set(request.fixturenames)
    if "run" not in used or len(used) == 1:
        yield
        return
    run_name: str = request.getfixturevalue("run")
    servers: list[EmbeddedServer] = [request.getfixturevalue(name) for name in used - {"run"}]
    yield
    left = sorted(key for server in servers for key in sweep(server, run_name))
    may_leave = request.node.get_closest_marker("leaves_keys") is not None
    if left and not may_leave and not request.node.stash.get(call_failed, False):
        pytest.fail(f"the test left keys of its run behind: {', '.join(left)}")


def sweep(server: EmbeddedServer, run_name: str) -> list[str]:
    """Delete all keys of the run, and say which of them shouldn't have been there any more."""
    prefix = f"rf1:{{{run_name}}}:"
    with redis.Redis.from_url(server.url) as client:
        found = cast("Iterator[bytes]", client.scan_iter(match=f"{prefix}*", count=KEYS_PER_SCAN))
        keys = {key.decode(): key for key in found}
        left = [name for name in keys if name.removeprefix(prefix) not in MAY_STAY]
        if f"{prefix}completed" in keys and client.xlen(f"{prefix}completed"):
            left.append(f"{prefix}completed (not empty)")
        for some in itertools.batched(keys.values(), KEYS_PER_SCAN):
            client.unlink(*some)
    return left
