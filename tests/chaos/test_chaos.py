"""A short chaos run; `make chaos` is the long one."""

import pytest

from tests.chaos.run import run_chaos
from tests.chaos.settings import ChaosSettings


@pytest.mark.chaos
@pytest.mark.timeout(240)
@pytest.mark.parametrize("refill", ["group", "sample"])
async def test_a_fleet_that_is_killed_frozen_and_cut_off_loses_and_doubles_nothing(refill: str) -> None:
    settings = ChaosSettings(refill="sample" if refill == "sample" else "group", minutes=3)
    verdict, tails = await run_chaos(settings)
    assert verdict.holds, f"{verdict}\n{tails}"
    assert verdict.dead == settings.poison, verdict.dead_reasons
