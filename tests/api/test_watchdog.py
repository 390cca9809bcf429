"""The watchdog over a real run: what it says of one in which nothing ends."""

from rolloutfleet.broker import Beat
from tests.api.served import serving
from tests.fakes.broker import WORKER, Fleet
from tests.fakes.worker import until


async def test_a_run_in_which_nothing_ends_is_stuck_and_names_the_group(redis_url: str, fleet: Fleet, run: str):
    await fleet.submit("slow", "b", "c")
    await fleet.hold()
    await fleet.broker.heartbeat(Beat(WORKER, (), 8, {"state": "ready", "busy": 2}))
    async with serving(redis_url, stuck_seconds=0.2) as served:

        async def is_stuck() -> bool:
            return (await served.run(run))["gate"]["reason"] == "stuck"

        await until(is_stuck, "the watchdog speaks")
        found = await served.run(run)
    assert (found["stuck"]["cause"], found["stuck"]["group"]) == ("slow_group", "slow")
    assert (found["gate"]["sentence"], found["gate"]["at_gate"]) == (found["stuck"]["sentence"], "open")
    await fleet.finish_all()
