"""A worker claims nothing while its engine reports log-probabilities of another scale."""

import math
from collections.abc import Callable

import pytest

from tests.fakes.engine import FakeEngine
from tests.worker.fleet import Fleet, until
from worker.scale import judge

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


def test_right_log_probabilities_halve_their_distances_at_twice_the_temperature() -> None:
    assert judge(COLD, ({1: -0.8, 2: -1.3, 3: -1.8}, (1, -0.8))) == ""


def test_a_drawn_token_has_the_log_probability_that_it_has_among_the_likeliest() -> None:
    assert "two log-probabilities" in judge(COLD, ({1: -0.8, 2: -1.3, 3: -1.8}, (1, -1.6)))


def test_a_distribution_without_shape_tells_nothing_of_the_temperature() -> None:
    flat = (dict.fromkeys(range(20), -5.0), (3, -5.0))
    assert judge(flat, flat) == ""
