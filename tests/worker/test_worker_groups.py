"""A group's way through a worker: generated, stored, scored, completed."""

import asyncio
import json
from typing import Any

import pytest

from rolloutfleet.broker import Finished
from rolloutfleet.messages import Sample
from rolloutfleet.sampling import seed_of
from tests.fakes.engine import FakeEngine, said
from tests.worker.fleet import Fleet, sample, until


async def test_a_group_is_completed_with_the_rewards_of_its_n_samples(fleet: Fleet, engine: FakeEngine) -> None:
    await fleet.configure(n=3)
    engine.script = lambda _: said([1, 2], text="#### 4" if len(engine.requests) == 1 else "#### 5")
    await fleet.submit("g")
    async with fleet.worker():
        (entry,) = await fleet.completed(1)
    assert sorted(json.loads(entry.fields["rewards"])) == [0.0, 0.0, 1.0]
    assert json.loads(entry.fields["lengths"]) == [2, 2, 2]
    assert json.loads(entry.fields["versions"]) == [7, 7]


async def test_each_sample_is_a_request_of_its_own_with_an_rid_of_equal_length(
    fleet: Fleet, engine: FakeEngine
) -> None:
    await fleet.configure(n=4)
    await fleet.submit("g", sampling_params={"stop": ["\n"]})
    async with fleet.worker():
        await fleet.completed(1)
    rids = [request["rid"] for request in engine.requests]
    assert len(set(rids)) == 4
    assert {len(rid) for rid in rids} == {32}
    assert all(request["input_ids"] == [5, 6] and request["return_logprob"] is True for request in engine.requests)
    assert engine.requests[0]["sampling_params"] == {"temperature": 1.0, "stop": ["\n"], "max_new_tokens": 998}


async def test_one_seed_for_all_differs_between_samples_and_between_groups(fleet: Fleet, engine: FakeEngine) -> None:
    await fleet.configure(n=3)
    await fleet.submit("a", "b", sampling_params={"sampling_seed": 40})
    async with fleet.worker():
        await fleet.completed(2)
    seeds = {request["sampling_params"]["sampling_seed"] for request in engine.requests}
    assert seeds == {seed_of(40, group, index) for group in "ab" for index in range(3)}
    assert len(seeds) == 6


async def test_the_engine_never_serves_more_samples_than_the_pod_has_slots(fleet: Fleet, engine: FakeEngine) -> None:
    await fleet.configure(n=2)
    engine.script = slowly
    await fleet.submit(*(f"g{i}" for i in range(6)))
    async with fleet.worker(slots=3):
        await fleet.completed(6)
    assert engine.most_running == 3


async def slowly(_: dict[str, Any]) -> dict[str, Any]:
    await asyncio.sleep(0.02)
    return said([1])


async def test_one_worker_holds_no_more_groups_than_its_slots_have_room_for(fleet: Fleet, engine: FakeEngine) -> None:
    await fleet.configure(n=2)
    go = asyncio.Event()
    engine.script = lambda _: after(go)
    await fleet.submit(*(f"g{i}" for i in range(6)))
    async with fleet.worker(slots=4):
        await until(lambda: engine.running == 4)
        held = await fleet.active()
        go.set()
        await fleet.completed(6)
    assert held == 2


async def after(event: asyncio.Event, *ids: int) -> dict[str, Any]:
    await event.wait()
    return said(ids or (1,))


@pytest.mark.parametrize("refill", ["group", "sample"])
async def test_a_free_slot_takes_a_sample_of_the_next_group(fleet: Fleet, engine: FakeEngine, refill: str) -> None:
    await fleet.configure(n=2, refill=refill)
    go = asyncio.Event()
    engine.script = lambda _: after(go) if len(engine.requests) == 1 else said([1])
    await fleet.submit("long", "next", "last")
    async with fleet.worker(slots=2):
        done = await fleet.completed(2)
        go.set()
        await fleet.completed(1)
    assert "long" not in [entry.id for entry in done]


async def test_a_finished_sample_is_stored_before_its_siblings_finish(fleet: Fleet, engine: FakeEngine) -> None:
    await fleet.configure(n=2)
    go = asyncio.Event()
    engine.script = lambda _: after(go) if len(engine.requests) == 1 else said([1])
    await fleet.submit("g")
    async with fleet.worker():
        await until(lambda: fleet.stat("samples"))
        running = engine.running
        go.set()
        await fleet.completed(1)
    assert running == 1


async def test_samples_that_an_earlier_holder_stored_are_not_generated_again(fleet: Fleet, engine: FakeEngine) -> None:
    await fleet.configure(n=3)
    await fleet.submit("g")
    (grant,) = (await fleet.broker.claim("other/1", "other/1/0", 1)).grants
    await fleet.broker.put([Finished("g", grant.born, 1, sample(1).encode())])
    await fleet.broker.release(grant.token, "free")
    async with fleet.worker():
        (entry,) = await fleet.completed(1)
    assert len(engine.requests) == 2
    assert json.loads(entry.fields["versions"]) == [3, 7]


async def test_where_another_holder_was_first_its_sample_is_scored_and_ours_dropped(
    fleet: Fleet, engine: FakeEngine
) -> None:
    await fleet.configure(n=1)
    await fleet.submit("g")

    async def overtaken(_: dict[str, Any]) -> dict[str, Any]:
        (born,) = await fleet.broker.calls.read([["HGET", fleet.broker.keys.group("g"), "born"]])
        await fleet.broker.put([Finished("g", born.decode(), 0, sample(0, text="#### 5").encode())])
        return said([1, 2, 3], text="#### 4")

    engine.script = overtaken
    async with fleet.worker():
        (entry,) = await fleet.completed(1)
        await until(lambda: fleet.stat("samples_made_again"))
    assert json.loads(entry.fields["rewards"]) == [0.0]
    assert json.loads(entry.fields["lengths"]) == [2]


async def test_the_prompt_ids_are_stored_beside_the_samples(fleet: Fleet) -> None:
    await fleet.configure(n=2)
    await fleet.submit("g")
    async with fleet.worker():
        await until(lambda: fleet.stat("completed"))
        (born,) = await fleet.broker.calls.read([["HGET", fleet.broker.keys.group("g"), "born"]])
        samples, prompt = await fleet.broker.samples("g", born.decode())
        await fleet.completed(1)
    assert prompt == b"\5\0\0\0\6\0\0\0"
    assert [Sample.decode(samples[index]).index for index in (0, 1)] == [0, 1]


async def test_where_the_trainer_scores_groups_complete_without_rewards(fleet: Fleet) -> None:
    await fleet.configure(reward="trainer")
    await fleet.submit("g", label=None)
    async with fleet.worker(reward=""):
        (entry,) = await fleet.completed(1)
    assert entry.fields["rewards"] == b"null"


@pytest.mark.usefixtures("patient")
async def test_a_worker_that_waits_is_woken_by_a_submitted_group(fleet: Fleet) -> None:
    await fleet.configure()
    async with fleet.worker():
        await until(lambda: fleet.facts('"ready"'))
        await fleet.submit("g")
        await fleet.completed(1)
    assert await fleet.stat("completed") == 1


async def test_busy_time_and_tokens_reach_the_stats_of_the_run(fleet: Fleet, engine: FakeEngine) -> None:
    await fleet.configure()
    engine.script = slowly
    await fleet.submit("g")
    async with fleet.worker():
        await fleet.completed(1)
    assert await fleet.stat("tokens") == 2
    assert 0 < await fleet.stat("busy_ms") <= await fleet.stat("slot_ms")
