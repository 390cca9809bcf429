"""heartbeat, release, reap, evict: how a lease lives and how it ends."""

import pytest

from rolloutfleet.broker import Release
from rolloutfleet.messages import Grant
from tests.fakes.broker import WORKER, Fleet

OTHER = "other/1"


async def held(fleet: Fleet, group_id: str = "a") -> Grant:
    await fleet.submit(group_id)
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


# Heartbeats


async def test_a_heartbeat_extends_what_its_worker_holds(fleet: Fleet):
    grant = await held(fleet)
    await fleet.expire(grant)
    assert await fleet.beat(grant.token) == ("ok", [])
    assert await fleet.deadline(grant) == await fleet.run_ms() + 60_000


async def test_a_heartbeat_names_the_leases_that_were_lost_and_leaves_the_next_holder_alone(fleet: Fleet):
    lost, now = await taken_over(fleet)
    before = await fleet.deadline(now)
    await fleet.do("ZINCRBY", fleet.key("leases"), -5000, now.id)
    assert await fleet.beat(lost.token) == ("ok", [lost.token])
    assert await fleet.deadline(now) == before - 5000


async def test_no_heartbeat_extends_a_lease_past_its_hard_deadline(fleet: Fleet):
    await fleet.configure(group_seconds=100)
    grant = await held(fleet)
    hard = await fleet.deadline(grant) + 40_000
    for _ in range(4):
        await fleet.pass_time(20_000)
        await fleet.beat(grant.token)
    assert await fleet.deadline(grant) == hard


async def test_a_group_past_its_hard_deadline_is_reaped_however_often_its_holder_calls(fleet: Fleet):
    await fleet.configure(group_seconds=100)
    grant = await held(fleet)
    await fleet.pass_time(100_000)
    await fleet.beat(grant.token)
    assert await fleet.broker.reap() == 1
    assert await fleet.beat(grant.token) == ("ok", [grant.token])


async def test_no_repeated_claim_extends_a_lease_past_its_hard_deadline(fleet: Fleet):
    await fleet.configure(group_seconds=30)
    await fleet.submit("a")
    (grant,) = (await fleet.broker.claim(WORKER, f"{WORKER}/1", 1)).grants
    hard = await fleet.deadline(grant)
    assert hard == await fleet.run_ms() + 30_000
    await fleet.pass_time(10_000)
    await fleet.broker.claim(WORKER, f"{WORKER}/1", 1)
    assert await fleet.deadline(grant) == hard


async def test_each_claim_has_a_hard_deadline_of_its_own(fleet: Fleet):
    await fleet.configure(group_seconds=100)
    grant = await held(fleet)
    await fleet.pass_time(90_000)
    await fleet.broker.release(grant.token, "free")
    (again,) = await fleet.hold()
    assert await fleet.deadline(again) == await fleet.run_ms() + 60_000


async def test_a_sweep_frees_the_grants_whose_reply_never_came(fleet: Fleet):
    grant = await held(fleet)
    assert await fleet.beat(settled=1000) == ("ok", [])
    assert await fleet.active() == 0
    assert (await fleet.group("a"))["attempts"] == b"0"
    assert (await fleet.hold())[0].id == grant.id


async def test_a_sweep_leaves_what_its_worker_lists(fleet: Fleet):
    grant = await held(fleet)
    await fleet.beat(grant.token, settled=1000)
    assert await fleet.active() == 1


async def test_a_sweep_leaves_claims_that_are_not_settled(fleet: Fleet):
    await fleet.submit("a")
    await fleet.broker.claim(WORKER, f"{WORKER}/10", 1)
    await fleet.beat(settled=10)
    assert await fleet.active() == 1
    await fleet.beat(settled=11)
    assert await fleet.active() == 0


async def test_a_sweep_leaves_other_workers_and_other_processes_alone(fleet: Fleet):
    await fleet.submit("a", "b")
    await fleet.hold(worker="pod/1001")
    await fleet.hold(worker=f"{WORKER}0")
    await fleet.beat(settled=1000)
    assert await fleet.active() == 2


async def test_only_a_sweep_frees_what_its_worker_does_not_list(fleet: Fleet):
    await held(fleet)
    await fleet.beat()
    assert await fleet.active() == 1


async def test_the_mark_of_a_worker_that_was_told_to_drain_yesterday_is_gone(fleet: Fleet):
    await fleet.do("ZADD", fleet.key("draining"), 1, "pod/yesterday")
    await fleet.broker.drain([WORKER])
    assert await fleet.do("ZRANGE", fleet.key("draining"), 0, -1) == [WORKER.encode()]


async def test_a_heartbeat_tells_a_worker_that_it_drains_and_extends_what_it_holds(fleet: Fleet):
    grant = await held(fleet)
    await fleet.broker.drain([WORKER])
    await fleet.expire(grant)
    assert await fleet.beat(grant.token) == ("draining", [])
    assert await fleet.broker.reap() == 0


async def test_a_heartbeat_tells_a_barred_worker_that_it_lost_everything(fleet: Fleet):
    grant = await held(fleet)
    await fleet.broker.evict(WORKER, counts=True)
    assert await fleet.beat(grant.token, slots=4) == ("gone", [grant.token])
    assert await fleet.hash(fleet.key("capacity")) == {}


async def test_a_heartbeat_without_a_run_says_so(fleet: Fleet):
    await fleet.do("DEL", fleet.key("config"))
    assert await fleet.beat() == ("no_run", [])


async def test_slots_of_all_live_workers_add_up(fleet: Fleet):
    await fleet.beat(slots=8)
    await fleet.beat(worker=OTHER, slots=4)
    await fleet.beat(slots=6)
    assert await fleet.do("HGET", fleet.key("state"), "slots") == b"10"


async def test_a_worker_that_does_not_call_any_more_takes_its_slots_along(fleet: Fleet):
    await fleet.beat(slots=8)
    await fleet.do("ZADD", fleet.key("workers"), 1, WORKER)
    await fleet.beat(worker=OTHER, slots=4)
    assert await fleet.do("HGET", fleet.key("state"), "slots") == b"4"
    assert set(await fleet.hash(fleet.key("capacity"))) == {OTHER, f"{OTHER}:facts"}
    assert await fleet.do("ZRANGE", fleet.key("workers"), 0, -1) == [OTHER.encode()]


async def test_an_evicted_worker_takes_its_slots_along_once(fleet: Fleet):
    await fleet.beat(slots=8)
    await fleet.beat(worker=OTHER, slots=4)
    await fleet.broker.evict(WORKER, counts=True)
    await fleet.broker.evict(WORKER, counts=True)
    assert await fleet.do("HGET", fleet.key("state"), "slots") == b"4"


# Release


async def test_a_free_release_is_first_in_line_and_not_counted(fleet: Fleet):
    grant = await held(fleet)
    assert await fleet.broker.release(grant.token, "free") == "ok"
    assert await fleet.do("ZSCORE", fleet.key("again"), "a") in (b"0", 0)
    assert (await fleet.group("a"))["attempts"] == b"0"
    assert (await fleet.active(), await fleet.outstanding()) == (0, 0)


async def test_a_failed_release_is_counted_and_waits_longer_each_time(fleet: Fleet):
    await fleet.configure(retry_seconds=10, retry_cap_seconds=40)
    await fleet.submit("a")
    for attempt, longest in ((1, 10_000), (2, 20_000), (3, 40_000), (4, 40_000)):
        (grant,) = await fleet.hold()
        assert grant.attempt == attempt
        assert await fleet.broker.release(grant.token, "fail", "engine") == "ok"
        due = float(await fleet.do("ZSCORE", fleet.key("again"), "a")) - await fleet.run_ms()
        assert longest / 2 <= due <= longest
        await fleet.fall_due()


async def test_a_group_that_failed_max_attempts_times_is_a_dead_letter(fleet: Fleet):
    await fleet.configure(max_attempts=2)
    await fleet.submit("a")
    (first,) = await fleet.hold()
    assert await fleet.broker.release(first.token, "fail", "engine: 400") == "ok"
    await fleet.fall_due()
    (second,) = await fleet.hold()
    assert await fleet.broker.release(second.token, "fail", "engine: 400") == "dead"
    (letter,) = await fleet.letters()
    assert (letter["id"], letter["reason"], letter["attempts"], letter["n"]) == (b"a", b"engine: 400", b"2", b"2")
    assert letter["text"] == second.text
    assert await fleet.group("a") == {}
    assert await fleet.submit("a") == ["done"]


async def test_an_attempt_that_stored_a_sample_is_not_counted(fleet: Fleet):
    await fleet.configure(max_attempts=1)
    grant = await held(fleet)
    await fleet.put(grant, 0)
    assert await fleet.broker.release(grant.token, "fail", "engine") == "ok"
    await fleet.fall_due()
    (again,) = await fleet.hold()
    assert again.attempt == 1
    assert await fleet.broker.release(again.token, "fail", "engine") == "dead"


async def test_a_rejected_group_is_dead_at_once_and_its_samples_are_freed(fleet: Fleet):
    grant = await held(fleet)
    await fleet.put(grant, 0)
    assert await fleet.broker.release(grant.token, "reject", "longer than the context") == "dead"
    assert (await fleet.letters())[0]["reason"] == b"longer than the context"
    assert await fleet.do("EXISTS", fleet.broker.keys.samples("a", grant.born)) == 0
    assert (await fleet.active(), await fleet.outstanding()) == (0, 0)


async def died(fleet: Fleet, kind: Release, *stored: int) -> tuple[Grant, str]:
    """Claims the group that was given back, and releases it again after so many samples."""
    (grant,) = await fleet.hold()
    await fleet.put(grant, *stored)
    return grant, await fleet.broker.release(grant.token, kind, "the engine died: no answer")


async def test_a_group_that_was_alone_with_every_engine_that_died_is_a_dead_letter(fleet: Fleet):
    await fleet.configure(max_attempts=3)
    await fleet.submit("a")
    assert [(await died(fleet, "died_alone"))[1] for _ in range(3)] == ["ok", "ok", "dead"]
    assert (await fleet.letters())[0]["reason"] == b"the engine died: no answer"


async def test_a_group_that_was_only_beside_when_engines_died_goes_on_for_ever(fleet: Fleet):
    await fleet.configure(max_attempts=2)
    await fleet.submit("a")
    found = [await died(fleet, "died") for _ in range(5)]
    assert [(grant.deaths, grant.attempt, word) for grant, word in found] == [
        (0, 1, "ok"), (1, 1, "ok"), (2, 1, "ok"), (2, 1, "ok"), (2, 1, "ok"),
    ]  # fmt: skip


async def test_deaths_beside_others_count_until_the_group_runs_alone(fleet: Fleet):
    await fleet.configure(max_attempts=4)
    await fleet.submit("a")
    kinds: list[Release] = ["died", "died", "died", "died_alone", "died_alone"]
    assert [(await died(fleet, kind))[1] for kind in kinds] == ["ok", "ok", "ok", "ok", "dead"]


async def test_an_engine_that_died_after_a_sample_of_the_group_is_not_counted(fleet: Fleet):
    await fleet.configure(max_attempts=1)
    await fleet.submit("a")
    assert (await died(fleet, "died_alone", 0))[1] == "ok"
    (grant,) = await fleet.hold()
    assert (grant.deaths, grant.missing) == (0, [1])


async def test_a_recycled_group_has_killed_no_engine(fleet: Fleet):
    await fleet.submit("a")
    await died(fleet, "died_alone")
    await fleet.finish(*await fleet.hold())
    (entry,) = await fleet.take()
    await fleet.broker.recycle(entry.entry)
    (grant,) = await fleet.hold()
    assert grant.deaths == 0


@pytest.mark.parametrize("kind", ["free", "fail", "reject", "died", "died_alone"])
async def test_a_lost_lease_releases_nothing(fleet: Fleet, kind: str):
    lost, now = await taken_over(fleet)
    assert await fleet.broker.release(lost.token, kind) == "lost"  # pyright: ignore[reportArgumentType]
    assert (await fleet.group("a"))["token"].decode() == now.token
    assert await fleet.letters() == []


async def test_a_release_that_is_sent_twice_is_lost_the_second_time(fleet: Fleet):
    grant = await held(fleet)
    await fleet.broker.release(grant.token, "fail")
    assert await fleet.broker.release(grant.token, "fail") == "lost"
    assert (await fleet.group("a"))["attempts"] == b"1"


# Reaping, and the run's clock


async def test_a_live_lease_is_not_reaped(fleet: Fleet):
    await held(fleet)
    assert await fleet.broker.reap() == 0


async def test_an_expired_lease_is_reaped_as_a_failure(fleet: Fleet):
    await fleet.configure(max_attempts=1)
    await fleet.expire(await held(fleet))
    assert await fleet.broker.reap() == 1
    assert (await fleet.letters())[0]["reason"] == b"lease expired"


async def test_a_reap_is_bounded_and_says_how_many(fleet: Fleet):
    await fleet.configure(sample_concurrency=10)
    await fleet.submit(*"abcde")
    await fleet.expire(*await fleet.hold(5))
    assert [await fleet.broker.reap(2) for _ in range(4)] == [2, 2, 1, 0]


async def test_the_run_s_clock_goes_with_the_server_s_while_callers_are_there(fleet: Fleet):
    grant = await held(fleet)
    for _ in range(3):
        await fleet.away(25_000)
        await fleet.claim(0)
    assert await fleet.active() == 0
    assert await fleet.stat("reaped") == 1
    assert (await fleet.beat(grant.token))[1] == [grant.token]


async def test_a_broker_that_was_away_an_hour_expires_no_lease(fleet: Fleet):
    grant = await held(fleet)
    await fleet.away(3_600_000)
    assert await fleet.broker.reap() == 0
    left = await fleet.deadline(grant) - await fleet.run_ms()
    assert 29_000 <= left <= 30_000


async def test_a_clock_that_jumps_back_changes_no_deadline(fleet: Fleet):
    grant = await held(fleet)
    await fleet.away(-3_600_000)
    await fleet.broker.reap()
    left = await fleet.deadline(grant) - await fleet.run_ms()
    assert 59_000 <= left <= 60_000


async def test_a_delay_outlasts_a_broker_that_was_away(fleet: Fleet):
    await fleet.configure(retry_seconds=50)
    grant = await held(fleet)
    await fleet.broker.release(grant.token, "fail")
    await fleet.away(3_600_000)
    assert (await fleet.claim()).reason in ("no_prompts", "open")
    due = float(await fleet.do("ZSCORE", fleet.key("again"), "a") or 0) - await fleet.run_ms()
    assert due <= 25_000


async def test_a_lease_runs_out_by_itself(real_fleet: Fleet):
    await real_fleet.configure(lease_seconds=0.1)
    await held(real_fleet)
    while not await real_fleet.broker.reap():
        pass
    assert await real_fleet.active() == 0
    await real_fleet.finish_all()


# Eviction


async def test_an_evicted_worker_s_leases_are_free_at_once(fleet: Fleet):
    await fleet.submit("a", "b")
    await fleet.hold(1)
    (kept,) = await fleet.hold(worker=OTHER)
    assert await fleet.broker.evict(WORKER, counts=True) == 1
    assert await fleet.do("ZRANGE", fleet.key("leases"), 0, -1) == [kept.id.encode()]
    assert (await fleet.group("a"))["attempts"] == b"1"


async def test_a_worker_that_the_cluster_took_costs_its_groups_no_attempt(fleet: Fleet):
    await held(fleet)
    await fleet.broker.evict(WORKER, counts=False)
    assert (await fleet.group("a"))["attempts"] == b"0"
    assert (await fleet.hold(worker=OTHER))[0].attempt == 1


async def test_eviction_is_for_one_process_only(fleet: Fleet):
    await fleet.submit("a")
    await fleet.hold(worker=f"{WORKER}1")
    assert await fleet.broker.evict(WORKER, counts=True) == 0
    assert await fleet.active() == 1


async def test_an_evicted_worker_s_group_goes_to_the_dead_after_max_attempts(fleet: Fleet):
    await fleet.configure(max_attempts=1)
    await held(fleet)
    await fleet.broker.evict(WORKER, counts=True, reason="the pod is gone")
    assert (await fleet.letters())[0]["reason"] == b"the pod is gone"


async def test_earlier_processes_of_a_pod_are_evicted_and_no_others(fleet: Fleet):
    await fleet.configure(sample_concurrency=20)
    await fleet.submit(*"abcd")
    for worker in ("pod/1", "pod/2", "pod/9", "podium/1"):
        await fleet.hold(worker=worker)
    await fleet.beat(worker="pod/3", slots=2)
    assert await fleet.broker.evict_earlier("pod", "pod/9") == ["pod/1", "pod/2", "pod/3"]
    assert await fleet.active() == 2
    assert await fleet.stat("evicted") == 3


async def test_a_worker_that_said_goodbye_is_not_counted_as_evicted(fleet: Fleet):
    await fleet.beat(slots=2)
    await fleet.beat(slots=0)
    await fleet.broker.evict(WORKER, counts=False)
    assert await fleet.stat("evicted") == 0


async def test_the_memory_of_the_barred_lasts_a_day(fleet: Fleet):
    await fleet.broker.evict("pod/1", counts=True)
    await fleet.do("ZINCRBY", fleet.key("barred"), -86_400_001, "pod/1")
    await fleet.broker.evict("pod/2", counts=True)
    assert await fleet.do("ZRANGE", fleet.key("barred"), 0, -1) == [b"pod/2"]


async def test_steps_without_a_run_free_nothing(fleet: Fleet):
    await fleet.do("DEL", fleet.key("config"))
    assert await fleet.broker.reap() == 0
    assert await fleet.broker.evict(WORKER, counts=True) == 0


async def test_a_failed_attempt_leaves_its_time_and_a_free_release_does_not(fleet: Fleet):
    await fleet.submit("a")
    for kind in ("fail", "free"):
        (grant,) = await fleet.hold()
        await fleet.broker.release(grant.token, kind, "engine: 500")
        await fleet.fall_due()
    (line,) = (await fleet.group("a"))["failed"].decode().splitlines()
    at_ms, _, reason = line.partition(" ")
    assert (len(at_ms), reason) == (13, "engine: 500")


async def test_why_the_last_attempt_failed_is_known_until_the_next_one_fails(fleet: Fleet):
    await fleet.submit("a")
    steps: tuple[tuple[Release, str, bytes], ...] = (
        ("fail", "one", b"one"),
        ("free", "", b"one"),
        ("died", "the engine died", b"one"),
        ("fail", "two", b"two"),
    )
    for kind, reason, known in steps:
        (grant,) = await fleet.hold()
        await fleet.broker.release(grant.token, kind, reason)
        await fleet.fall_due()
        assert (await fleet.group("a"))["reason"] == known
