"""What a group costs the broker's memory: the formula of docs/operations.md, held against a real server."""

from typing import cast

import pytest
import redis.asyncio

from rolloutfleet.broker import Finished
from rolloutfleet.messages import PromptGroup, Row, Sample
from tests.fakes.broker import Fleet

# The numbers of docs/operations.md.
PER_TOKEN = 8 + 1 + 4  # id and log-probability, mask, four characters of text
PER_SAMPLE = 400
PER_GROUP = 2500
SPARE = 1.25  # the allocator rounds up
PROMPT = 4000

N = 8


async def cost(fleet: Fleet, tokens: int) -> int:
    """Bytes of all keys of a run that holds one group with all of its samples."""
    await fleet.broker.submit([PromptGroup(id="a", prompt="x" * PROMPT, n=N)])
    (grant,) = (await fleet.broker.claim("pod/1", "token", 1)).grants
    row = Row.make(range(100_000, 100_000 + tokens), [-0.5] * tokens)
    samples = [Sample(index, "stop", (row,), text="word" * tokens) for index in range(N)]
    await fleet.broker.put([Finished(grant.id, grant.born, one.index, one.encode(), b"\0" * PROMPT) for one in samples])
    return await used(fleet.client, fleet.broker.keys.named("config").removesuffix("config"))


async def used(client: redis.asyncio.Redis, prefix: str) -> int:
    """Of what there is per group; the rest is per run."""
    names = cast("list[bytes]", await client.keys(f"{prefix}group:*") + await client.keys(f"{prefix}samples:*"))
    return sum([cast(int, await client.memory_usage(name.decode(), samples=0)) for name in names])


def formula(tokens: int) -> float:
    return SPARE * (N * (PER_TOKEN * tokens + PER_SAMPLE) + PER_GROUP + 2 * PROMPT)


@pytest.mark.leaves_keys("looks at a group that is not finished")
@pytest.mark.parametrize("tokens", [64, 1000, 8000])
async def test_a_group_costs_what_the_formula_says(client: redis.asyncio.Redis, run: str, tokens: int):
    fleet = await Fleet.make(client, run, n=N, sample_concurrency=N)
    measured = await cost(fleet, tokens)
    assert 0.5 * formula(tokens) < measured < formula(tokens)
