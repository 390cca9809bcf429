"""A worker claims nothing while its engine reports log-probabilities of another scale."""

import asyncio
import math
from collections.abc import Callable

import pytest

from rolloutfleet.policy import Mode, Publication
from tests.fakes.engine import FakeEngine, said
from tests.worker.fleet import Fleet, until
from worker.engine import EngineClient
from worker.health import Fitness
from worker.scale import Scale, judge

type Scaled = Callable[[float, float], float]
COLD = ({1: -0.5, 2: -1.5, 3: -2.5}, (9, -7.0))

WRONG: list[tuple[Scaled, str]] = [
    (lambda score, _: score, "don't follow the temperature"),
    (lambda score, heat: (score / heat) / math.log(10), "are not nats"),
    (lambda _score, _heat: 9.0, "are not nats"),
    (lambda score, heat: score / heat if score else math.nan, "a log-probability is not finite"),
]


@pytest.mark.parametrize(("scale", "reason"), WRONG)
async def test_an_engine_with_another_scale_gets_nothing_until_it_is_mended(
    fleet: Fleet, engine: FakeEngine, scale: Scaled, reason: str
) -> None:
    await fleet.configure(n=1)
    await fleet.submit("g")
    right, engine.scale = engine.scale, scale
    async with fleet.worker():
        await until(lambda: fleet.facts(reason))
        assert engine.requests == []
        engine.scale = right
        await fleet.completed(1)


async def test_an_engine_that_was_down_is_looked_at_again(fleet: Fleet, engine: FakeEngine) -> None:
    await fleet.configure(n=1)
    async with fleet.worker():
        await until(lambda: fleet.facts('"ready"'))
        await engine.stop()
        await until(lambda: fleet.facts('"engine_down"'))
        engine.scale = lambda score, _: score
        await engine.start()
        await until(lambda: fleet.facts("don't follow the temperature"))


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worker.weights.POLICY_SECONDS", 0.05)
    monkeypatch.setattr("worker.watches.LEAST_PROBE_SECONDS", 0.05)


async def publish(fleet: Fleet, path: str, mode: Mode = "retract") -> None:
    await fleet.broker.publish(path, Publication(path, mode=mode))


def wrong_under(engine: FakeEngine, version: str) -> Scaled:
    return lambda score, heat: score if engine.weight_version == version else score / heat


@pytest.mark.usefixtures("quick")
async def test_it_is_the_published_weights_that_are_looked_at_before_the_first_claim(
    fleet: Fleet, engine: FakeEngine
) -> None:
    await fleet.configure(n=1)
    engine.scale = wrong_under(engine, "1")
    engine.script = lambda _: said([1], version=engine.weight_version)
    await publish(fleet, "/w/1")
    await fleet.submit("g")
    async with fleet.worker():
        await until(lambda: fleet.facts("don't follow the temperature"))
        assert engine.requests == []
        await publish(fleet, "/w/2")
        await fleet.completed(1)


@pytest.mark.usefixtures("quick")
async def test_new_weights_are_looked_at_before_anything_is_claimed_under_them(
    fleet: Fleet, engine: FakeEngine
) -> None:
    await fleet.configure(n=1)
    engine.scale = wrong_under(engine, "2")
    engine.script = lambda _: said([1], version=engine.weight_version)
    await publish(fleet, "/w/1")
    async with fleet.worker():
        await until(lambda: fleet.facts('"ready"'))
        await publish(fleet, "/w/2")
        await until(lambda: fleet.facts("don't follow the temperature"))
        await fleet.submit("g")
        sent = len(engine.requests)
        await publish(fleet, "/w/3")
        await fleet.completed(1)
    assert sent == 0


@pytest.mark.usefixtures("quick")
async def test_weights_that_the_trainer_loads_itself_are_looked_at_once_an_answer_names_them(
    fleet: Fleet, engine: FakeEngine
) -> None:
    await fleet.configure(n=1)
    engine.scale = lambda score, heat: score if engine.requests else score / heat
    engine.script = lambda _: said([1], version="5")
    await publish(fleet, "", mode="external")
    await fleet.submit("g")
    async with fleet.worker():
        await fleet.completed(1)
        await until(lambda: fleet.facts("don't follow the temperature"))


def test_what_else_keeps_a_worker_from_claiming_says_more() -> None:
    fitness = Fitness()
    fitness.begin("logprobs", "not checked yet")
    fitness.begin("weights_failed", "the engine did not survive it")
    fitness.end("starting")
    assert (fitness.state, fitness.reason) == ("weights_failed", "the engine did not survive it")
    fitness.end("weights_failed")
    assert (fitness.state, fitness.reason) == ("logprobs", "not checked yet")
    fitness.end("logprobs")
    assert (fitness.state, fitness.reason) == ("ready", "")


async def test_a_look_that_new_weights_overtook_counts_for_nothing(engine: FakeEngine) -> None:
    fitness, reasons = Fitness(), list[str]()
    fitness.end("starting")
    async with EngineClient(engine.url) as client:
        scale = Scale(client, fitness, 0.01)

        def overtaken(score: float, heat: float) -> float:
            if engine.looks > 2:
                return score / heat
            scale.ask()
            return score

        engine.scale = overtaken
        fitness.changed = lambda: reasons.append(fitness.reason)
        scale.ask()
        looking = asyncio.create_task(scale.run())
        await until(lambda: fitness.is_fit)
        scale.over.set()
        await looking
    assert engine.looks == 4
    assert not [reason for reason in reasons if "follow" in reason]


def test_right_log_probabilities_halve_their_distances_at_twice_the_temperature() -> None:
    assert judge(COLD, ({1: -0.8, 2: -1.3, 3: -1.8}, (1, -0.8))) == ""


def test_a_drawn_token_has_the_log_probability_that_it_has_among_the_likeliest() -> None:
    assert "two log-probabilities" in judge(COLD, ({1: -0.8, 2: -1.3, 3: -1.8}, (1, -1.6)))


def test_a_distribution_without_shape_tells_nothing_of_the_temperature() -> None:
    flat = (dict.fromkeys(range(20), -5.0), (3, -5.0))
    assert judge(flat, flat) == ""
