"""Each check of the scripts is one that some test misses: a deliberately broken copy makes that test fail."""

import asyncio
import importlib
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import fakeredis
import pytest
from redis.exceptions import ResponseError

from rolloutfleet import lua
from rolloutfleet.errors import RolloutFleetError
from tests.fakes.broker import Fleet
from tests.library.mutations import Mutation, broken, read_table

MUTATIONS = read_table()
NOTICED = (AssertionError, ResponseError, RolloutFleetError, LookupError, ValueError, TimeoutError)
SECONDS = 3.0  # a test that goes round for ever has noticed, too

type Noticing = Callable[..., Awaitable[None]]


def noticing(caught_by: str) -> tuple[Noticing, tuple[Any, ...]]:
    """The test function that is named, and the arguments of the case that is named with it."""
    module, _, rest = caught_by.partition(".")
    name, _, argument = rest.removesuffix("]").partition("[")
    found = getattr(importlib.import_module(f"tests.library.{module}"), name)
    assert next(iter(inspect.signature(found).parameters)) == "fleet", f"{name} is no test of a run on fakeredis"
    return found, (argument,) if argument else ()


async def run(caught_by: str) -> None:
    test, arguments = noticing(caught_by)
    async with fakeredis.FakeAsyncRedis(server=fakeredis.FakeServer(), protocol=2) as client, asyncio.timeout(SECONDS):
        await test(await Fleet.make(client, "mutated", retry_seconds=0.1), *arguments)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_broken_check_is_noticed(mutation: Mutation, monkeypatch: pytest.MonkeyPatch):
    with broken(mutation, monkeypatch), pytest.raises(NOTICED):
        asyncio.run(run(mutation.caught_by))


@pytest.mark.parametrize("caught_by", sorted({mutation.caught_by for mutation in MUTATIONS}))
def test_a_test_that_notices_passes_where_nothing_is_broken(caught_by: str):
    asyncio.run(run(caught_by))


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_mutation_s_text_is_in_its_script_once(mutation: Mutation):
    assert lua.source(mutation.path).count(mutation.text) == 1
    assert mutation.text != mutation.replacement


def test_every_step_has_mutations():
    scripts = {mutation.script for mutation in MUTATIONS}
    assert scripts >= set(lua.STEPS) - {"reap"}  # its checks are in the part `leases`


def test_no_mutation_is_listed_twice():
    assert len({(mutation.script, mutation.text, mutation.replacement) for mutation in MUTATIONS}) == len(MUTATIONS)
