"""Replies that get lost on the way, and grants that a worker never heard of."""

import asyncio
from typing import Any

from deploy.embedded import EmbeddedServer
from tests.fakes.engine import FakeEngine, said
from tests.fakes.proxy import Proxy
from tests.worker.fleet import Fleet, until


async def test_lost_replies_neither_lose_nor_double_a_group(
    fleet: Fleet, valkey: EmbeddedServer, engine: FakeEngine
) -> None:
    await fleet.configure(n=2)
    await fleet.submit(*(f"g{i}" for i in range(30)))
    async with Proxy("127.0.0.1", valkey.port, seed=1) as proxy, fleet.worker(redis_url=proxy.url):
        proxy.drop_replies(probability=0.1)
        entries = await fleet.completed(30)
        dropped = proxy.dropped
        proxy.drop_replies()
    assert sorted(entry.id for entry in entries) == sorted(f"g{i}" for i in range(30))
    assert dropped > 0
    assert len(engine.requests) == 60


async def test_a_claim_whose_reply_is_lost_is_answered_again_with_the_same_group(
    fleet: Fleet, valkey: EmbeddedServer
) -> None:
    await fleet.configure(n=1)
    async with Proxy("127.0.0.1", valkey.port) as proxy, fleet.worker(redis_url=proxy.url):
        await until(lambda: fleet.facts('"ready"'))
        (sha,) = await claim_sha(fleet)
        proxy.drop_replies(count=1, only=sha)
        await fleet.submit("g")
        (entry,) = await fleet.completed(1)
    assert (proxy.dropped, entry.fields["attempts"], await fleet.stat("claimed")) == (1, b"1", 1)


async def claim_sha(fleet: Fleet) -> tuple[bytes]:
    command = await fleet.broker.calls.command("claim", "nobody", "nobody/0", 0)
    return (str(command[1]).encode(),)


async def test_a_grant_that_its_worker_never_heard_of_is_freed_by_its_heartbeats(
    fleet: Fleet, engine: FakeEngine
) -> None:
    await fleet.configure(n=1, lease_seconds=2)
    go = asyncio.Event()
    engine.script = lambda _: after(go)
    async with fleet.worker(slots=1, heartbeat_seconds=0.05):
        await until(lambda: has_claimed(fleet))
        await fleet.submit("first", "second")
        await until(lambda: engine.running == 1)
        (name,) = await workers(fleet)
        # As if the reply to its first claim had brought a group, and got lost.
        (lost,) = (await fleet.broker.claim(name, f"{name}/0", 1)).grants
        await until(lambda: is_free(fleet, lost.id))
        go.set()
        entries = await fleet.completed(2)
    assert [entry.fields["attempts"] for entry in entries] == [b"1", b"1"]
    assert await fleet.stat("reaped") == 0


async def after(event: asyncio.Event) -> dict[str, Any]:
    await event.wait()
    return said([1])


async def has_claimed(fleet: Fleet) -> bool:
    """Whether a first claim found nothing."""
    (gate,) = await fleet.broker.calls.read([["HGET", fleet.broker.keys.named("state"), "gate"]])
    return gate == b"no_prompts"


async def is_free(fleet: Fleet, group: str) -> bool:
    (due,) = await fleet.broker.calls.read([["ZSCORE", fleet.broker.keys.named("again"), group]])
    return due is not None


async def workers(fleet: Fleet) -> list[str]:
    (names,) = await fleet.broker.calls.read([["ZRANGE", fleet.broker.keys.named("workers"), 0, -1]])
    return [name.decode() for name in names]
