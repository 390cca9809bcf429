"""What the steps of repair check before they mend, beyond what test_repair.py shows of the whole."""

from rolloutfleet.repair import Repaired, repair
from tests.fakes.broker import Fleet


async def test_a_group_in_trained_is_not_made_again(fleet: Fleet):
    await fleet.submit("a")
    await fleet.do("LPOP", fleet.key("prompts"))
    await fleet.do("ZADD", fleet.key("trained"), 1, "a")
    assert await repair(fleet.broker) == Repaired(groups=0, leases=0, samples=0, entries=0)


async def test_samples_of_a_group_in_trained_are_freed(fleet: Fleet):
    (grant,) = await fleet.run_through("a")
    await fleet.do("ZADD", fleet.key("trained"), 1, "a")
    assert (await repair(fleet.broker)).samples == 1
    assert (await fleet.broker.samples("a", grant.born))[0] == {}


async def test_a_mend_looks_once_more_whether_the_group_waits(fleet: Fleet):
    await fleet.submit("a")
    assert await fleet.broker.calls.step("repair_groups", "mend", "a") == []
    assert await fleet.waits("again") == []


async def test_a_group_that_was_found_again_wakes(fleet: Fleet):
    await fleet.submit("a")
    await fleet.do("LPOP", fleet.key("prompts"))
    await fleet.sleep()
    assert await fleet.broker.calls.step("repair_groups", "mend", "a") == [b"a"]
    assert await fleet.is_woken()
    assert [grant.id for grant in await fleet.hold()] == ["a"]


async def test_places_that_were_found_free_wake(fleet: Fleet):
    await fleet.do("ZADD", fleet.key("leases"), 10**15, "nobody")
    await fleet.sleep()
    assert await fleet.broker.calls.step("repair_leases") == 1
    assert await fleet.is_woken()
