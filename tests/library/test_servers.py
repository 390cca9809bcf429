"""The most telling facts on every server of the matrix: what they answer differs in small ways, what holds must not."""

import asyncio

from rolloutfleet.lua import scripts
from tests.fakes.broker import WORKER, Fleet


async def test_a_group_goes_through_all_steps(each_fleet: Fleet):
    fleet = each_fleet
    assert await fleet.submit("a", "b") == ["queued", "queued"]
    assert await fleet.submit("a") == ["known"]
    a, b = await fleet.hold(2)
    assert await fleet.beat(a.token, b.token, slots=4) == ("ok", [])
    assert await fleet.put(a, 0, 1) == ["stored", "stored"]
    assert await fleet.put(a, 1) == ["had"]
    assert await fleet.complete(a) == "ok"
    assert await fleet.broker.drop(b.token, "dull") == "ok"
    (entry,) = await fleet.take()
    assert await fleet.broker.touch("rank-0", [entry.entry]) == []
    assert await fleet.broker.recycle(entry.entry) == "ok"
    await fleet.finish(*await fleet.hold())
    assert await fleet.take_and_ack() == ["a"]
    assert await fleet.submit("a") == ["done"]
    assert await fleet.broker.evict(WORKER, counts=False) == 0


async def test_the_scripts_are_loaded_with_their_flags(each_fleet: Fleet):
    exist = await each_fleet.do("SCRIPT", "EXISTS", *[script.sha for script in scripts(flags=True).values()])
    assert all(exist)


async def test_the_window_is_exact_among_many_claimers(each_fleet: Fleet):
    await each_fleet.configure(sample_concurrency=20)
    await each_fleet.submit(*[f"g{number}" for number in range(30)])
    claims = await asyncio.gather(*(each_fleet.claim(worker=f"pod{number}/1") for number in range(60)))
    assert sum(len(claim.grants) for claim in claims) == 10
    await each_fleet.finish_all()


async def test_expired_leases_are_reaped_and_fail(each_fleet: Fleet):
    await each_fleet.configure(max_attempts=1)
    await each_fleet.submit("a")
    await each_fleet.expire(*await each_fleet.hold())
    assert await each_fleet.broker.reap() == 1
    assert (await each_fleet.letters())[0]["reason"] == b"lease expired"


async def test_an_absence_of_the_broker_expires_no_lease(each_fleet: Fleet):
    await each_fleet.submit("a")
    (grant,) = await each_fleet.hold()
    await each_fleet.away(3_600_000)
    assert await each_fleet.broker.reap() == 0
    await each_fleet.finish(grant)
    await each_fleet.take_and_ack()


async def test_bad_raw_entries_are_dead_letters(each_fleet: Fleet):
    deep = b'{"prompt": ' + b"[" * 2000 + b"]" * 2000 + b"}"
    await each_fleet.push(rb'{"prompt": "\ud800"}', deep, "[]", '{"n": 0}', '{"n": 1.5}', {"id": "x" * 257}, "{")
    await each_fleet.submit("next")
    assert [grant.id for grant in (await each_fleet.claim()).grants] == ["next"]
    assert len(await each_fleet.letters()) == 7
    await each_fleet.finish_all()


async def test_a_raw_entry_s_text_is_kept_byte_for_byte(each_fleet: Fleet):
    text = b' {"prompt": "\xc3\xa4", "metadata": {"list": [], "big": 12345678901234567890, "x": 1.10}}\n'
    await each_fleet.push(text)
    assert (await each_fleet.hold())[0].text == text
    await each_fleet.finish_all()


async def test_forgotten_scripts_are_loaded_again_in_the_middle_of_a_put(each_fleet: Fleet):
    await each_fleet.submit("a")
    (grant,) = await each_fleet.hold()
    await each_fleet.do("SCRIPT", "FLUSH")
    await each_fleet.put(grant, 0, 1)
    assert await each_fleet.outstanding() == 1
    assert await each_fleet.complete(grant) == "ok"
    await each_fleet.take_and_ack()


async def test_steps_that_end_work_succeed_and_submit_fails_when_memory_is_full(each_fleet: Fleet):
    await each_fleet.submit("a")
    (grant,) = await each_fleet.hold()
    await each_fleet.do("CONFIG", "SET", "maxmemory", "1")
    try:
        assert await each_fleet.put(grant, 0, 1) == ["stored", "stored"]
        assert await each_fleet.complete(grant) == "ok"
        assert await each_fleet.take_and_ack() == ["a"]
        submitting = asyncio.create_task(each_fleet.submit("b"))
        await asyncio.wait([submitting], timeout=0.1)
        assert not submitting.done()
    finally:
        await each_fleet.do("CONFIG", "SET", "maxmemory", "0")
    assert await submitting == ["queued"]
    await each_fleet.finish_all()


async def test_entries_of_deleted_consumers_are_adopted(each_fleet: Fleet):
    await each_fleet.run_through("a")
    await each_fleet.take(consumer="rank-1")
    await each_fleet.do("XGROUP", "DELCONSUMER", each_fleet.key("completed"), "trainer", "rank-1")
    assert await each_fleet.broker.adopt("rank-0") == 1
    (entry,) = await each_fleet.take(position="0-0")
    assert await each_fleet.broker.ack([entry.entry]) == ["ok"]


async def test_a_requeued_letter_goes_through(each_fleet: Fleet):
    await each_fleet.submit("a")
    (grant,) = await each_fleet.hold()
    await each_fleet.broker.release(grant.token, "reject", "bad")
    assert await each_fleet.broker.requeue_dead([(await each_fleet.letters())[0]["entry"].decode()]) == ["ok"]
    await each_fleet.finish(*await each_fleet.hold())
    assert await each_fleet.take_and_ack() == ["a"]
