"""A router in front of the engines: it tells nothing, forwards only requests, and drops what it does not know."""

import pytest
from pydantic import ValidationError

from rolloutfleet.errors import EngineUnavailable, InvalidGroup
from tests.fakes.engine import FakeEngine, Json, never, said
from tests.worker.fleet import Fleet, until
from worker.engine import EngineClient, EngineInfo
from worker.tokens import check_routed

ROUTER: Json = {"engine_kind": "router", "slots": 4, "context_length": 5000, "vocab_size": 100}


async def test_a_worker_needs_nothing_of_a_router_but_its_readiness(fleet: Fleet, engine: FakeEngine) -> None:
    engine.is_router = True
    await fleet.configure(n=2)
    await fleet.submit("g")
    async with fleet.worker(**ROUTER):
        (entry,) = await fleet.completed(1)
    assert entry.fields["versions"] == b"[7, 7]"


async def test_a_router_without_engines_is_not_ready(engine: FakeEngine) -> None:
    engine.is_router, engine.is_ready = True, False
    async with EngineClient(engine.url, is_router=True) as client:
        with pytest.raises(EngineUnavailable, match="readiness"):
            await client.check_ready()
        assert await client.info() == EngineInfo()


async def test_a_drain_asks_a_router_for_nothing(fleet: Fleet, engine: FakeEngine) -> None:
    engine.is_router, engine.script = True, never
    await fleet.configure(n=1)
    await fleet.submit("g")
    async with fleet.worker(**ROUTER, drain_seconds=0) as worked:
        await until(lambda: engine.requests)
        worked.stop.ask()
        await worked.ended()
    assert engine.aborted == []
    engine.script = lambda _: said([1])
    async with fleet.worker(**ROUTER):
        await fleet.completed(1)


@pytest.mark.parametrize("params", [{"logit_bias": {"1": 2}}, {"stop_regex": "x"}, {"top_k": 5}])
def test_parameters_that_a_router_drops_are_refused(params: Json) -> None:
    with pytest.raises(InvalidGroup, match="a router drops"):
        check_routed(params)


def test_what_a_router_forwards_is_taken() -> None:
    check_routed({"temperature": 0.7, "stop": ["a"], "sampling_seed": 3, "logit_bias": None})


@pytest.mark.parametrize(
    ("change", "words"), [({"slots": None}, "set slots"), ({"partial_tokens": 8}, "partial_tokens")]
)
def test_settings_that_a_router_can_not_serve_are_refused(fleet: Fleet, change: Json, words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        fleet.settings(**ROUTER | change)
