"""keep: what an unfinished sample has is stored for the next holder, and gone as soon as nobody needs it."""

from rolloutfleet.broker import Begun
from rolloutfleet.messages import Grant
from rolloutfleet.repair import purge, repair
from tests.fakes.broker import Fleet

OTHER = "other/1"


async def held(fleet: Fleet, n: int = 2) -> Grant:
    await fleet.submit("a", n=n)
    (grant,) = await fleet.hold()
    return grant


async def keep(fleet: Fleet, grant: Grant, *indices: int, data: bytes = b"begun") -> list[str]:
    return list(await fleet.broker.keep([Begun(grant.token, index, data) for index in indices]))


async def partials(fleet: Fleet, grant: Grant) -> dict[int, bytes]:
    return await fleet.broker.partials(grant.id, grant.born)


async def test_the_next_holder_is_told_which_samples_are_begun(fleet: Fleet):
    grant = await held(fleet)
    assert await keep(fleet, grant, 1) == ["kept"]
    await fleet.broker.release(grant.token, "free")
    (now,) = await fleet.hold(worker=OTHER)
    assert (now.begun, now.stored) == ({1}, set())
    assert await partials(fleet, now) == {1: b"begun"}
    await fleet.finish(now)


async def test_what_is_begun_is_no_finished_sample(fleet: Fleet):
    grant = await held(fleet)
    await keep(fleet, grant, 0, 1)
    assert await fleet.outstanding() == 2
    assert await fleet.complete(grant) == "missing"
    await fleet.finish(grant)


async def test_later_tokens_replace_earlier_ones(fleet: Fleet):
    grant = await held(fleet)
    await keep(fleet, grant, 0, data=b"one")
    await keep(fleet, grant, 0, data=b"one two")
    assert await partials(fleet, grant) == {0: b"one two"}
    await fleet.finish(grant)


async def test_what_is_too_large_is_refused_and_what_was_there_stays(fleet: Fleet):
    await fleet.configure(partial_bytes=4)
    grant = await held(fleet)
    sent = [Begun(grant.token, 0, b"four"), Begun(grant.token, 1, b"four"), Begun(grant.token, 1, b"fifth")]
    assert await fleet.broker.keep(sent) == ["kept", "kept", "large"]
    assert await partials(fleet, grant) == {0: b"four", 1: b"four"}
    await fleet.finish(grant)


async def test_a_run_of_before_that_setting_keeps_what_is_begun(fleet: Fleet):
    grant = await held(fleet)
    await fleet.do("HDEL", fleet.key("config"), "partial_bytes")
    assert await keep(fleet, grant, 0) == ["kept"]
    await fleet.finish(grant)


async def test_who_lost_the_lease_replaces_nothing(fleet: Fleet):
    grant = await held(fleet)
    await fleet.broker.release(grant.token, "free")
    (now,) = await fleet.hold(worker=OTHER)
    await keep(fleet, now, 0, data=b"now")
    assert await keep(fleet, grant, 0, data=b"before") == ["lost"]
    assert await partials(fleet, now) == {0: b"now"}
    await fleet.finish(now)


async def test_a_finished_sample_takes_the_place_of_its_beginning(fleet: Fleet):
    grant = await held(fleet)
    await keep(fleet, grant, 0, 1)
    await fleet.put(grant, 0)
    assert await partials(fleet, grant) == {1: b"begun"}
    await fleet.finish(grant)


async def test_a_beginning_that_comes_after_its_sample_is_left_out(fleet: Fleet):
    grant = await held(fleet)
    await fleet.put(grant, 0)
    assert await keep(fleet, grant, 0) == ["kept"]
    assert await partials(fleet, grant) == {}
    await fleet.finish(grant)


async def test_an_index_that_the_group_does_not_have_is_left_out(fleet: Fleet):
    grant = await held(fleet, n=1)
    assert await keep(fleet, grant, 1) == ["kept"]
    assert await partials(fleet, grant) == {}
    await fleet.finish(grant)


async def test_a_completed_group_has_no_beginnings(fleet: Fleet):
    grant = await held(fleet, n=1)
    await keep(fleet, grant, 0)
    # The holder before died in the middle of a put: the sample is there, and no step dropped its beginning.
    await fleet.do("HSET", fleet.broker.keys.samples("a", grant.born), 0, b"sample")
    assert await fleet.complete(grant) == "ok"
    assert await partials(fleet, grant) == {}


async def test_a_group_that_is_over_has_no_beginnings(fleet: Fleet):
    grant = await held(fleet)
    await keep(fleet, grant, 0)
    await fleet.broker.release(grant.token, "reject", "never")
    assert await partials(fleet, grant) == {}


async def test_beginnings_of_groups_that_are_gone_are_freed_by_repair(fleet: Fleet):
    await fleet.do("HSET", fleet.broker.keys.partial("nobody", "1-1-1"), 0, b"begun")
    assert (await repair(fleet.broker)).samples == 1
    assert (await repair(fleet.broker)).samples == 0


async def test_a_deleted_run_has_no_beginnings(fleet: Fleet):
    grant = await held(fleet)
    await keep(fleet, grant, 0)
    await purge(fleet.broker)
    assert await fleet.names() == set()


async def test_many_beginnings_of_several_groups_go_together(fleet: Fleet):
    await fleet.submit("a", "b")
    first, second = await fleet.hold(2)
    nobodys = Begun("no/1/0", 0, b"")
    words = await fleet.broker.keep([Begun(first.token, 0, b"x"), Begun(second.token, 1, b"y"), nobodys])
    assert words == ["kept", "kept", "lost"]
    assert (await partials(fleet, first), await partials(fleet, second)) == ({0: b"x"}, {1: b"y"})
    await fleet.finish(first, second)


async def test_beginnings_are_not_stored_in_a_full_memory_and_nothing_is_lost_by_that(real_fleet: Fleet):
    grant = await held(real_fleet)
    await real_fleet.do("CONFIG", "SET", "maxmemory", 1)
    try:
        assert await keep(real_fleet, grant, 0) == []
    finally:
        await real_fleet.do("CONFIG", "SET", "maxmemory", 0)
    assert await partials(real_fleet, grant) == {}
    await real_fleet.finish_all()
