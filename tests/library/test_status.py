"""Why does the fleet idle: each reason has a state that shows it, and what is not known is not 0."""

import json

import pytest
import redis.asyncio

from rolloutfleet import Trainer
from rolloutfleet.broker import Beat
from rolloutfleet.errors import RunMissing
from rolloutfleet.status import known_runs, read_status
from rolloutfleet.window import Reason
from tests.fakes.broker import WORKER, Fleet

W = 2  # of the fleet's fixtures


async def test_a_run_without_prompts_says_so(fleet: Fleet):
    status = await read_status(fleet.broker)
    assert (status.reason, status.sentence) == (Reason.NO_PROMPTS, "no prompt group waits")


async def test_prompts_and_no_worker_is_said_though_the_window_is_open(fleet: Fleet):
    await fleet.submit("a")
    status = await read_status(fleet.broker)
    assert (status.reason, status.sentence) == (Reason.OPEN, "no worker is alive")
    await fleet.finish_all()


async def test_prompts_and_a_worker_is_open(fleet: Fleet):
    await fleet.submit("a")
    await fleet.beat(slots=8)
    status = await read_status(fleet.broker)
    assert (status.reason, status.sentence) == (Reason.OPEN, "the window is open")
    await fleet.finish_all()


async def test_a_full_window_is_active_full(fleet: Fleet):
    await fleet.submit("a", "b", "c")
    await fleet.hold(W)
    status = await read_status(fleet.broker)
    assert (status.reason, status.window.active, status.window.size) == (Reason.ACTIVE_FULL, W, W)
    await finish(fleet)


async def finish(fleet: Fleet) -> None:
    """The leases are given back by eviction, and everything ends."""
    await fleet.broker.evict(WORKER, counts=False)
    await fleet.fall_due()
    while grants := (await fleet.claim(64, worker="other/1")).grants:
        await fleet.finish(*grants)
        await fleet.take_and_ack()


async def test_completed_groups_that_nobody_takes_are_completed_full(fleet: Fleet):
    await fleet.run_through("a", "b")
    await fleet.submit("c")
    status = await read_status(fleet.broker)
    assert (status.reason, status.window.waiting) == (Reason.COMPLETED_FULL, W)
    assert "the trainer is the bottleneck" in status.sentence
    await fleet.take_and_ack()
    await fleet.finish_all()


async def test_groups_that_a_trainer_holds_do_not_wait(fleet: Fleet):
    await fleet.run_through("a", "b")
    await fleet.take()
    status = await read_status(fleet.broker)
    assert (status.taken, status.window.waiting) == (2, 0)
    await fleet.broker.ack([entry.entry for entry in await fleet.take(position="0")])


async def test_a_paused_run_is_paused(fleet: Fleet):
    await fleet.submit("a")
    await fleet.broker.pause()
    assert (await read_status(fleet.broker)).reason is Reason.PAUSED
    await fleet.broker.resume()
    await fleet.finish_all()


async def test_a_run_of_automatic_size_without_workers_has_no_capacity(fleet: Fleet):
    await fleet.configure(sample_concurrency="auto")
    await fleet.submit("a")
    assert (await read_status(fleet.broker)).reason is Reason.NO_CAPACITY
    await fleet.beat(slots=8)
    status = await read_status(fleet.broker)
    assert (status.reason, status.window.size) == (Reason.OPEN, 4)
    await fleet.finish_all()


async def test_workers_without_a_free_place_of_their_own_are_busy(fleet: Fleet):
    await fleet.submit("a", "b")
    await fleet.beat(slots=2)
    await fleet.hold(1)
    await fleet.claim(0)
    status = await read_status(fleet.broker)
    assert (status.reason, status.sentence) == (Reason.BUSY, "every worker's own places are full")
    await finish(fleet)


async def test_in_sample_refill_the_gate_counts_what_is_outstanding(fleet: Fleet):
    await fleet.configure(refill="sample")
    await fleet.submit("a", "b", "c")
    held = await fleet.hold(2)
    await fleet.put(held[0], 0)
    await fleet.put(held[1], 0)
    window = (await read_status(fleet.broker)).window
    assert (window.active, window.outstanding, window.used) == (2, 2, 1)
    await finish(fleet)


async def test_groups_that_wait_for_another_try_are_queued(fleet: Fleet):
    await fleet.submit("a", "b")
    (grant,) = await fleet.hold()
    await fleet.broker.release(grant.token, "fail", "the reward failed")
    status = await read_status(fleet.broker)
    assert (status.prompts, status.again, status.queued) == (1, 1, 2)
    await fleet.finish_all()


async def test_groups_that_all_wait_for_their_next_try_are_not_there_to_be_claimed(fleet: Fleet):
    await fleet.submit("a")
    (grant,) = await fleet.hold()
    await fleet.broker.release(grant.token, "fail", "the reward failed")
    status = await read_status(fleet.broker)
    assert (status.reason, status.is_claimable) == (Reason.NO_PROMPTS, False)
    assert "given back, for a later attempt" in status.sentence
    assert status.again_seconds is not None
    assert 0 < status.again_seconds <= 1
    await fleet.fall_due()
    assert (await read_status(fleet.broker)).is_claimable
    await fleet.finish_all()


async def test_a_gate_that_was_never_asked_is_unknown_and_not_zero(fleet: Fleet):
    status = await read_status(fleet.broker)
    assert (status.gate, status.gate_seconds, status.to_json()["gate_seconds"]) == ("unknown", None, None)


async def test_the_time_behind_each_reason_is_told_in_seconds(fleet: Fleet):
    await fleet.claim()
    await fleet.do("HINCRBY", fleet.key("state"), "gate_at", -4000)
    await fleet.claim()
    seconds = (await read_status(fleet.broker)).seconds_behind
    assert seconds.keys() == {"no_prompts"}
    assert 4 <= seconds["no_prompts"] < 5


async def test_a_gate_says_since_when_it_stands(fleet: Fleet):
    await fleet.claim()
    await fleet.do("HINCRBY", fleet.key("state"), "gate_since", -60_000)
    seconds = (await read_status(fleet.broker)).gate_seconds
    assert seconds is not None
    assert 60 <= seconds < 61


async def test_a_live_worker_shows_its_slots_its_lease_and_its_facts(fleet: Fleet):
    await fleet.broker.heartbeat(Beat(WORKER, (), 32, {"state": "ready", "busy": 5}))
    await fleet.broker.drain([WORKER])
    (worker,) = (await read_status(fleet.broker)).workers
    assert (worker.name, worker.slots, worker.draining, worker.facts["busy"]) == (WORKER, 32, True, 5)
    assert 59 < worker.lease_seconds <= 60


async def test_counters_that_were_never_counted_are_zero(fleet: Fleet):
    await fleet.run_through("a")
    status = await read_status(fleet.broker)
    assert (status.stat("completed"), status.stat("dead")) == (1, 0)
    await fleet.take_and_ack()


async def test_a_status_is_plain_json(fleet: Fleet):
    await fleet.broker.heartbeat(Beat(WORKER, (), 32, {"state": "ready"}))
    await fleet.claim()
    found = json.loads(json.dumps((await read_status(fleet.broker)).to_json()))
    assert (found["reason"], found["window"], found["workers"][0]["state"]) == ("no_prompts", W, "ready")
    assert found["config"]["sample_concurrency"] == 4


async def test_dead_letters_are_counted(fleet: Fleet):
    await fleet.submit("a")
    (grant,) = await fleet.hold()
    await fleet.broker.release(grant.token, "reject", "too long")
    assert (await read_status(fleet.broker)).dead == 1


async def test_a_run_whose_stream_was_deleted_has_nothing_taken(fleet: Fleet):
    await fleet.do("DEL", fleet.key("completed"))
    status = await read_status(fleet.broker)
    assert (status.taken, status.window.waiting) == (0, 0)


async def test_a_run_that_is_not_there_is_told_which_runs_are(fleet: Fleet, run: str):
    stranger = Fleet(type(fleet.broker)(fleet.client, "mistyped"))
    with pytest.raises(RunMissing, match=rf"no run 'mistyped' \(runs here: {run}\)"):
        await read_status(stranger.broker)


async def test_runs_are_known_by_name_in_order(fleet: Fleet, run: str):
    await Fleet.make(fleet.client, "another")
    assert await known_runs(fleet.broker) == sorted(["another", run])


async def test_a_server_without_runs_says_so(fleet: Fleet):
    await fleet.do("FLUSHALL")
    with pytest.raises(RunMissing, match="runs here: none"):
        await read_status(fleet.broker)


async def test_workers_of_which_nobody_has_heard_for_a_lease_are_not_alive(fleet: Fleet):
    await fleet.submit("a")
    await fleet.beat(slots=8)
    await fleet.pass_time(61_000)
    status = await read_status(fleet.broker)
    assert (status.workers, status.sentence) == ([], "no worker is alive")
    await fleet.finish_all()


async def test_a_trainer_sees_the_run_it_is_connected_to(real_fleet: Fleet, redis_url: str, run: str):
    await real_fleet.run_through("a")
    async with Trainer.connect(redis_url, run) as trainer:
        held = await trainer.take(1)
        status = await trainer.status()
        assert (status.run, status.taken, status.window.size) == (run, 1, W)
        await trainer.ack(held)


async def test_status_is_read_on_each_server_of_the_matrix(each_client: redis.asyncio.Redis, run: str):
    fleet = await Fleet.make(each_client, run)
    await fleet.run_through("a")
    status = await read_status(fleet.broker)
    assert (status.window.waiting, status.reason) == (1, Reason.NO_PROMPTS)
    await fleet.take_and_ack()
