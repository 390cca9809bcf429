"""Whole operators, with their own tasks and clocks: who leads, who takes over, what is left when one is cut off."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import aiohttp
import pytest

from deploy.operator import run as running
from deploy.operator.settings import OperatorSettings
from rolloutfleet.metrics import OperatorMetrics
from tests.deploy.operator.world import POOL, World, made_world
from tests.fakes.worker import until

pytestmark = pytest.mark.leaves_keys("groups that nobody finishes")


class Frozen(Exception):
    """The process is gone: nothing that it would have done comes."""


@pytest.fixture
async def world(redis_url: str, run: str) -> AsyncIterator[World]:
    async with made_world(redis_url, run, worker_replicas=(3,)) as made:
        made.cluster.deployment(POOL, 5)
        await made.beat_all()
        yield made


def settings_of(world: World, name: str) -> OperatorSettings:
    return world.operator.settings.model_copy(
        update={"pod_name": name, "probe_host": "127.0.0.1", "probe_port": 0, "lease_name": "lease"}
    )


@asynccontextmanager
async def serving(world: World, name: str) -> AsyncGenerator[OperatorMetrics]:
    stop, kept = asyncio.Event(), list[OperatorMetrics]()

    def connect(metrics: OperatorMetrics) -> object:
        kept.append(metrics)
        return world.cluster

    serving = asyncio.create_task(running.serve(settings_of(world, name), connect, stop))  # pyright: ignore[reportArgumentType]
    await until(_is(lambda: bool(kept)))
    try:
        yield kept[0]
    finally:
        stop.set()
        await serving


def _is(fact: Callable[[], bool]) -> Callable[[], Awaitable[bool]]:
    async def asked() -> bool:
        return fact()

    return asked


async def test_an_operator_scales_down_and_hands_over_when_it_stops(world: World) -> None:
    async with serving(world, "operator-0"):
        await until(_is(lambda: world.cluster.replicas(POOL) == 3))
    assert world.cluster.leases["lease"]["spec"]["holderIdentity"] == ""


async def test_what_it_did_stands_in_events_on_the_deployment(world: World) -> None:
    async with serving(world, "operator-0"):
        await until(_is(lambda: any(event["reason"] == "Scaled" for event in world.cluster.events)))
    event = next(event for event in world.cluster.events if event["reason"] == "Scaled")
    assert event["involvedObject"]["kind"] == "Deployment"
    assert "fixed" in event["message"]


async def test_of_two_one_leads_and_the_other_follows_and_takes_over(world: World) -> None:
    async with serving(world, "operator-1") as second:
        async with serving(world, "operator-0"):
            await until(_is(lambda: bool(world.cluster.leases)))
        await until(_is(lambda: second.registry.get_sample_value("rolloutfleet_operator_leading") == 1))


async def test_the_list_finds_what_the_watch_did_not_tell(world: World) -> None:
    async with serving(world, "operator-0"):
        await until(_is(lambda: world.cluster.replicas(POOL) == 3))
        world.cluster.settle()
        victim = world.cluster.names()[0]
        worker = await world.beat(victim)
        del world.cluster.pods[victim]
        world.cluster.cut_watches()

        async def is_evicted() -> bool:
            return worker not in await world.workers()

        await until(is_evicted)


async def test_the_probes_tell_who_leads_and_what_was_called(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    ports: list[int] = []
    start = running.Probes.start

    async def kept(self: running.Probes, host: str, port: int) -> None:
        await start(self, host, port)
        ports.append(self.port)

    monkeypatch.setattr(running.Probes, "start", kept)
    async with serving(world, "operator-0"), aiohttp.ClientSession() as session:
        await until(_is(lambda: bool(ports) and bool(world.cluster.leases)))
        for path, says in (("readyz", "leads"), ("healthz", "last look"), ("metrics", "rolloutfleet_operator_leading")):
            async with session.get(f"http://127.0.0.1:{ports[0]}/{path}") as answer:
                assert (answer.status, says in await answer.text()) == (200, True)


def _nothing(verb: str, resource: str, when: str) -> None:
    return


CUTS = [
    (verb, resource, when)
    for verb, resource in (
        ("list", "pods"),
        ("get", "deployments"),
        ("delete", "pods"),
        ("patch", "deployments/scale"),
        ("create", "events"),
    )
    for when in ("before", "after")
]


@pytest.mark.parametrize("cut", CUTS, ids=["-".join(cut).replace("/", "-") for cut in CUTS])
async def test_whoever_takes_over_finishes_what_one_that_was_cut_off_began(
    world: World, cut: tuple[str, str, str]
) -> None:
    """The first one is gone at that very call; the busy stay, and the number is right in the end."""
    busy = world.cluster.names()[:3]
    for pod in busy:
        await world.claim(pod)

    def freeze(*call: str) -> None:
        if call == cut:
            world.cluster.on_call = _nothing
            raise Frozen

    world.cluster.on_call = freeze
    with pytest.raises(Frozen):
        await world.looks(6)
    world.cluster.settle()
    await world.beat_all()
    world.clock.now += 30
    second = world.another("operator-1")
    await second.leader.step()
    world.clock.now += 30
    await world.looks(6, second)
    assert world.cluster.replicas(POOL) == 3
    assert sorted(world.cluster.names()) == sorted(busy)
