"""put, complete, drop: samples are kept as they finish; a group is completed once, by its holder, with all of them."""

import pytest
from redis.exceptions import ResponseError

from rolloutfleet.broker import Finished
from rolloutfleet.messages import Grant
from tests.fakes.broker import WORKER, Fleet, sample

OTHER = "other/1"


async def held(fleet: Fleet, group_id: str = "a", n: int | None = None) -> Grant:
    await fleet.submit(group_id, n=n)
    (grant,) = await fleet.hold()
    return grant


async def taken_over(fleet: Fleet) -> tuple[Grant, Grant]:
    """A lease that was lost, and the one that another worker has now."""
    lost = await held(fleet)
    await fleet.expire(lost)
    await fleet.broker.reap()
    await fleet.fall_due()
    (now,) = await fleet.hold(worker=OTHER)
    return lost, now


async def recycled(fleet: Fleet) -> tuple[Grant, Grant]:
    """A lease of the incarnation before a recycle, and the lease of the new one."""
    (before,) = await fleet.run_through("a")
    (entry,) = await fleet.take()
    assert await fleet.broker.recycle(entry.entry) == "ok"
    (now,) = await fleet.hold(worker=OTHER)
    return before, now


async def stored(fleet: Fleet, grant: Grant) -> dict[int, bytes]:
    return (await fleet.broker.samples(grant.id, grant.born))[0]


# put


async def test_a_finished_sample_is_stored_with_the_prompt_ids(fleet: Fleet):
    grant = await held(fleet)
    assert await fleet.put(grant, 1) == ["stored"]
    samples, prompt = await fleet.broker.samples("a", grant.born)
    assert (samples, prompt) == ({1: sample(1).encode()}, b"\x01\0\0\0")


async def test_many_samples_are_put_in_one_call(fleet: Fleet):
    await fleet.configure(sample_concurrency=10)
    first = await held(fleet, "a", n=3)
    second = await held(fleet, "b", n=1)
    finished = [Finished(grant.id, grant.born, i, b"x") for grant in (first, second) for i in range(grant.n)]
    assert await fleet.broker.put(finished) == ["stored"] * 4
    assert len(await stored(fleet, first)) == 3


async def test_a_sample_that_the_server_refuses_is_not_said_to_be_stored(real_fleet: Fleet):
    grant = await held(real_fleet, n=1)
    samples = real_fleet.broker.keys.samples(grant.id, grant.born)
    await real_fleet.do("SET", samples, "no hash")

    with pytest.raises(ResponseError, match="WRONGTYPE"):
        await real_fleet.put(grant, 0)

    await real_fleet.do("DEL", samples)
    await real_fleet.finish_all()


async def test_no_samples_are_no_call(fleet: Fleet):
    assert await fleet.broker.put([]) == []


async def test_what_is_outstanding_is_counted_from_what_is_stored(fleet: Fleet):
    await fleet.configure(sample_concurrency=10)
    grant = await held(fleet, n=4)
    await fleet.put(grant, 0)
    assert await fleet.outstanding() == 3
    await fleet.put(grant, 0)
    assert await fleet.outstanding() == 3
    await fleet.put(grant, 1, 2)
    assert await fleet.outstanding() == 1


async def test_a_lease_counts_at_least_one_sample_until_its_group_is_completed(fleet: Fleet):
    grant = await held(fleet)
    await fleet.put(grant, 0, 1)
    assert await fleet.outstanding() == 1
    await fleet.complete(grant)
    assert await fleet.outstanding() == 0


async def test_the_prompt_ids_are_no_sample(fleet: Fleet):
    grant = await held(fleet, n=1)
    await fleet.do("HSET", fleet.broker.keys.samples("a", grant.born), "prompt", b"\1\0\0\0")
    assert await fleet.complete(grant) == "missing"
    await fleet.put(grant, 0)
    assert await fleet.complete(grant) == "ok"


async def test_the_first_sample_of_an_index_stays_and_the_second_is_told(fleet: Fleet):
    lost, now = await taken_over(fleet)
    assert await fleet.put(lost, 0, data=b"first") == ["stored"]
    assert await fleet.put(now, 0, data=b"second") == ["had"]
    assert await stored(fleet, now) == {0: b"first"}


async def test_a_sample_of_a_lost_lease_is_welcome(fleet: Fleet):
    lost, now = await taken_over(fleet)
    assert await fleet.put(lost, 0) == ["stored"]
    assert await fleet.outstanding() == 1
    await fleet.put(now, 1)
    assert await fleet.complete(now) == "ok"


async def test_a_sample_is_welcome_while_nobody_holds_its_group(fleet: Fleet):
    grant = await held(fleet)
    await fleet.broker.release(grant.token, "free")
    assert await fleet.put(grant, 0) == ["stored"]
    assert await fleet.outstanding() == 0
    (again,) = await fleet.hold()
    assert again.missing == [1]
    assert await fleet.outstanding() == 1


async def test_a_sample_whose_lease_the_broker_forgot_is_kept(fleet: Fleet):
    await fleet.submit("a")
    # The claim was in the last second before the broker crashed; its holder goes on and stores what it has.
    born = (await fleet.group("a"))["born"].decode()
    assert await fleet.broker.put([Finished("a", born, 0, sample(0).encode())]) == ["stored"]
    (grant,) = await fleet.hold()
    assert (grant.missing, await fleet.outstanding()) == ([1], 1)
    await fleet.finish(grant)


async def test_a_sample_of_a_group_that_is_over_is_gone_and_nothing_of_it_is_kept(fleet: Fleet):
    (grant,) = await fleet.run_through("a")
    await fleet.take_and_ack()
    assert await fleet.put(grant, 0) == ["gone"]
    assert await fleet.do("EXISTS", fleet.broker.keys.samples("a", grant.born)) == 0


async def test_a_sample_of_an_incarnation_before_a_recycle_is_gone(fleet: Fleet):
    before, now = await recycled(fleet)
    assert await fleet.put(before, 0, data=b"old") == ["gone"]
    assert await fleet.do("EXISTS", fleet.broker.keys.samples("a", before.born)) == 0
    assert await stored(fleet, now) == {}


async def test_a_late_sample_of_a_completed_group_harms_nothing(fleet: Fleet):
    (grant,) = await fleet.run_through("a")
    assert await fleet.put(grant, 0, data=b"late") == ["had"]
    assert await stored(fleet, grant) == {0: sample(0).encode(), 1: sample(1).encode()}


async def test_a_sample_kept_in_trained_is_no_reason_to_store_another(fleet: Fleet):
    grant = await held(fleet)
    await fleet.do("ZADD", fleet.key("trained"), 1, "a")
    assert await fleet.put(grant, 0) == ["gone"]
    assert await stored(fleet, grant) == {}
    await fleet.do("DEL", fleet.key("trained"))


async def test_samples_are_counted_once(fleet: Fleet):
    grant = await held(fleet)
    await fleet.put(grant, 0)
    await fleet.put(grant, 0, 1)
    assert await fleet.stat("samples") == 2


async def test_scripts_that_the_server_forgot_are_loaded_inside_a_put(fleet: Fleet):
    grant = await held(fleet)
    await fleet.do("SCRIPT", "FLUSH")
    await fleet.put(grant, 0, 1)
    assert await fleet.outstanding() == 1
    assert await fleet.complete(grant) == "ok"


async def test_after_forgotten_scripts_no_sample_of_another_counts_as_stored(fleet: Fleet):
    """The HSETNX of a MULTI whose script was missing stay done: the second try must not take theirs for its own."""
    lost, now = await taken_over(fleet)
    await fleet.put(lost, 0, data=b"first")
    await fleet.do("SCRIPT", "FLUSH")
    words = await fleet.put(now, 0, 1, data=b"second")
    assert words[0] == "had"
    assert await stored(fleet, now) == {0: b"first", 1: b"second"}


async def test_the_step_for_full_memory_stores_the_first_sample_only(fleet: Fleet):
    grant = await held(fleet)
    words = [await fleet.broker.calls.step("put", "a", grant.born, 0, data) for data in (b"first", b"second")]
    assert words == [b"stored", b"had"]
    assert await stored(fleet, grant) == {0: b"first"}


# complete


async def test_a_completed_group_is_in_the_stream_with_what_it_was_scored(fleet: Fleet):
    grant = await held(fleet)
    await fleet.put(grant, 0, 1)
    assert await fleet.complete(grant, [0.5, 1]) == "ok"
    (entry,) = await fleet.take()
    assert (entry.id, entry.born, entry.fields["n"]) == ("a", grant.born, b"2")
    assert (entry.fields["rewards"], entry.fields["attempts"], entry.fields["recycled"]) == (b"[0.5, 1]", b"1", b"0")
    assert entry.fields["worker"] == WORKER.encode()
    times = [int(entry.fields[name]) for name in ("submitted", "claimed", "completed")]
    assert times == sorted(times)


async def test_completing_ends_the_lease(fleet: Fleet):
    await fleet.run_through("a")
    assert (await fleet.active(), await fleet.outstanding()) == (0, 0)
    assert await fleet.do("EXISTS", fleet.key("grants")) == 0
    assert "token" not in await fleet.group("a")


async def test_a_group_that_lacks_samples_is_not_completed(fleet: Fleet):
    grant = await held(fleet)
    await fleet.put(grant, 1)
    assert await fleet.complete(grant) == "missing"
    assert (await fleet.active(), await fleet.completed()) == (1, 0)


async def test_a_lost_lease_completes_nothing(fleet: Fleet):
    lost, now = await taken_over(fleet)
    await fleet.put(lost, 0, 1)
    assert await fleet.complete(lost) == "lost"
    assert await fleet.completed() == 0
    assert await fleet.complete(now) == "ok"


async def test_a_lease_that_nobody_took_over_completes_nothing_either(fleet: Fleet):
    grant = await held(fleet)
    await fleet.put(grant, 0, 1)
    await fleet.broker.release(grant.token, "free")
    assert await fleet.complete(grant) == "lost"
    assert (await fleet.completed(), await fleet.waits("again")) == (0, [b"a"])


async def test_completing_twice_is_one_entry_and_the_same_answer(fleet: Fleet):
    (grant,) = await fleet.run_through("a")
    assert await fleet.complete(grant) == "ok"
    assert await fleet.completed() == 1


async def test_a_holder_from_before_is_told_that_another_completed(fleet: Fleet):
    lost, now = await taken_over(fleet)
    await fleet.finish(now)
    assert await fleet.complete(lost) == "lost"
    assert await fleet.completed() == 1


async def test_a_group_that_is_over_is_gone_for_its_holder(fleet: Fleet):
    (grant,) = await fleet.run_through("a")
    await fleet.take_and_ack()
    assert await fleet.complete(grant) == "gone"
    assert await fleet.completed() == 0


async def test_a_holder_from_before_a_recycle_completes_nothing(fleet: Fleet):
    before, now = await recycled(fleet)
    await fleet.put(now, 0, 1)
    assert await fleet.complete(before) == "gone"
    assert (await fleet.completed(), await fleet.active()) == (0, 1)


async def test_a_token_used_again_after_the_run_was_made_anew_completes_nothing_of_yesterday(fleet: Fleet):
    await fleet.submit("a")
    (yesterday,) = (await fleet.broker.claim(WORKER, f"{WORKER}/1", 1)).grants
    await fleet.delete()
    await fleet.configure(sample_concurrency=4, n=2)
    await fleet.submit("a")
    (today,) = (await fleet.broker.claim(WORKER, f"{WORKER}/1", 1)).grants
    await fleet.put(today, 0, 1)
    assert await fleet.complete(yesterday) == "gone"
    assert await fleet.complete(today) == "ok"


async def test_the_next_holder_completes_from_stored_samples_alone(fleet: Fleet):
    lost, now = await taken_over(fleet)
    await fleet.put(lost, 0, 1)
    await fleet.broker.release(now.token, "free")
    (again,) = await fleet.hold(worker=OTHER)
    assert again.missing == []
    assert await fleet.complete(again) == "ok"


async def test_the_most_waiting_groups_are_remembered(fleet: Fleet):
    await fleet.run_through("a", "b")
    await fleet.take_and_ack()
    await fleet.run_through("c")
    assert await fleet.stat("most_waiting") == 2


# drop


async def test_a_dropped_group_is_over_and_its_place_is_free(fleet: Fleet):
    grant = await held(fleet)
    await fleet.put(grant, 0, 1)
    assert await fleet.broker.drop(grant.token, "all rewards equal") == "ok"
    assert (await fleet.active(), await fleet.outstanding(), await fleet.completed()) == (0, 0, 0)
    assert await fleet.do("EXISTS", fleet.broker.keys.samples("a", grant.born)) == 0
    assert await fleet.submit("a") == ["done"]
    assert (await fleet.stat("dropped"), await fleet.stat("dropped:all rewards equal")) == (1, 1)


async def test_a_lost_lease_drops_nothing(fleet: Fleet):
    lost, now = await taken_over(fleet)
    assert await fleet.broker.drop(lost.token, "dull") == "lost"
    assert (await fleet.group("a"))["token"].decode() == now.token


async def test_dropping_twice_is_lost_the_second_time(fleet: Fleet):
    grant = await held(fleet)
    await fleet.broker.drop(grant.token, "dull")
    assert await fleet.broker.drop(grant.token, "dull") == "lost"
    assert await fleet.stat("dropped") == 1


async def test_reasons_with_numbers_in_them_do_not_fill_the_counters(fleet: Fleet):
    await fleet.do("HSET", fleet.key("stats"), *[part for i in range(300) for part in (f"dropped:{i}", 1)])
    grant = await held(fleet)
    await fleet.broker.drop(grant.token, "std 0.123")
    assert (await fleet.stat("dropped:std 0.123"), await fleet.stat("dropped:other")) == (0, 1)
