"""What /status says of a run: the gate and its reason, the window, queues, workers, trainers; and null for unknown."""

from typing import Any

import pytest

from rolloutfleet.broker import Beat
from tests.api.served import Served
from tests.fakes.broker import WORKER, Fleet


async def test_a_run_without_prompts_says_so_and_what_to_do(served: Served, fleet: Fleet, run: str):
    gate = (await served.run(run))["gate"]
    assert (gate["reason"], gate["is_open"]) == ("no_prompts", False)
    assert gate["advice"] == "submit more prompt groups, or sooner"


async def test_a_full_window_has_no_place_left(served: Served, fleet: Fleet, run: str):
    await fleet.submit("a", "b", "c")
    await fleet.hold(2)
    found = await served.run(run)
    assert found["gate"]["reason"] == "active_full"
    assert (found["window"]["active"], found["window"]["size"], found["window"]["place_left"]) == (2, 2, 0)
    await fleet.finish_all()


async def test_an_open_window_says_how_many_places_are_left(served: Served, fleet: Fleet, run: str):
    await fleet.submit("a", "b")
    await fleet.hold(1)
    found = await served.run(run)
    assert (found["gate"]["is_open"], found["window"]["place_left"]) == (True, 1)
    assert (found["window"]["source"], found["window"]["sample_concurrency"]) == ("fixed", 4)
    await fleet.finish_all()


async def test_a_window_of_live_slots_says_that_it_is_automatic(served: Served, fleet: Fleet, run: str):
    await fleet.configure(sample_concurrency="auto")
    await fleet.beat(slots=6)
    window = (await served.run(run))["window"]
    assert (window["source"], window["sample_concurrency"], window["size"]) == ("auto", 6, 3)


async def test_completed_groups_that_nobody_takes_close_the_gate_and_have_an_age(
    served: Served, fleet: Fleet, run: str
):
    await fleet.run_through("a", "b")
    found = await served.run(run)
    assert found["gate"]["reason"] == "completed_full"
    assert found["queues"]["waiting"]["groups"] == 2
    assert 0 <= found["queues"]["waiting"]["oldest_seconds"] < 30
    await fleet.take_and_ack()


async def test_the_oldest_prompt_has_an_age_and_an_empty_queue_has_none(served: Served, fleet: Fleet, run: str):
    await fleet.submit("a")
    queues = (await served.run(run))["queues"]
    assert 0 <= queues["prompts"]["oldest_seconds"] < 30
    assert queues["again"] == {"groups": 0, "oldest_seconds": None}
    await fleet.finish_all()


async def test_the_age_of_a_raw_entry_at_the_head_is_unknown(served: Served, fleet: Fleet, run: str):
    await fleet.push({"id": "raw", "prompt": "x"})
    assert (await served.run(run))["queues"]["prompts"] == {"groups": 1, "oldest_seconds": None}
    await fleet.finish_all()


async def test_a_dead_letter_has_an_age(served: Served, fleet: Fleet, run: str):
    await fleet.submit("a")
    (grant,) = await fleet.hold()
    await fleet.broker.release(grant.token, "reject", "no")
    dead = (await served.run(run))["queues"]["dead"]
    assert dead["groups"] == 1
    assert 0 <= dead["oldest_seconds"] < 30


async def test_a_worker_is_shown_as_it_tells_of_itself(served: Served, fleet: Fleet, run: str):
    facts = {"state": "engine_down", "reason": "503", "busy": 3, "held": 1, "weight_version": "7", "engine": "http://e"}
    await fleet.broker.heartbeat(Beat(WORKER, (), 8, facts))
    (worker,) = (await served.run(run))["workers"]
    told = {name: worker[name] for name in facts}
    assert told == facts
    assert (worker["pod"], worker["slots"]) == ("pod", 8)
    assert 0 <= worker["heartbeat_seconds"] < 30


async def test_what_a_worker_does_not_tell_is_null(served: Served, fleet: Fleet, run: str):
    await fleet.beat(slots=8)
    found = await served.run(run)
    (worker,) = found["workers"]
    assert (worker["state"], worker["busy"], worker["held"], worker["engine"]) == ("unknown", None, None, None)
    assert found["slots"]["busy"] is None


async def test_a_young_process_knows_no_rates(served: Served, fleet: Fleet, run: str):
    await fleet.run_through("a")
    found = await served.run(run)
    assert found["rates"]["minute"] == {"groups": None, "samples": None, "tokens": None}
    assert (found["gate"]["last_5_minutes"], found["slots"]["utilisation"]) == (None, None)
    await fleet.take_and_ack()


async def test_a_trainer_is_shown_with_what_it_holds(served: Served, fleet: Fleet, run: str):
    await fleet.run_through("a", "b")
    await fleet.take(consumer="rank-0")
    (trainer,) = (await served.run(run))["trainers"]
    assert (trainer["consumer"], trainer["taken"]) == ("rank-0", 2)
    assert 0 <= trainer["oldest_seconds"] < 30
    await fleet.broker.ack([entry.entry for entry in await fleet.take(position="0")])


async def test_a_trainer_that_holds_nothing_has_no_oldest(served: Served, fleet: Fleet, run: str):
    await fleet.run_through("a")
    await fleet.take_and_ack()
    (trainer,) = (await served.run(run))["trainers"]
    assert (trainer["taken"], trainer["oldest_seconds"]) == (0, None)


async def test_without_a_published_version_staleness_is_unknown(served: Served, fleet: Fleet, run: str):
    await fleet.run_through("a")
    found = await served.run(run)
    assert (found["staleness"], found["weight_version"]) == (None, None)
    await fleet.take_and_ack()


async def test_staleness_is_counted_from_the_oldest_version_of_each_group(served: Served, fleet: Fleet, run: str):
    await fleet.do("HSET", fleet.key("policy"), "version", 3, "label", "step 8")
    await complete_with_versions(fleet, a="[1,3]", b="[3,3]", c="[-1,-1]")
    found = await served.run(run)
    await fleet.broker.ack([entry.entry for entry in await fleet.take(position="0")])
    assert found["staleness"] == {"groups": 3, "unknown": 1, "histogram": {"0": 1, "2": 1}, "mean": 1.0}
    assert (found["weight_version"], found["weight_label"]) == (3, "step 8")


async def test_weights_are_shown_with_who_serves_them_and_what_they_cost(served: Served, fleet: Fleet, run: str):
    await fleet.publish("/w/1", label="step 8", mode="drain")
    for number, (version, state) in enumerate((("1", "ready"), ("0", "weights_failed"), ("1", "ready"))):
        await fleet.broker.heartbeat(Beat(f"pod-{number}/1", (), 8, {"state": state, "weight_version": version}))
    await fleet.do("HSET", fleet.key("stats"), "slot_ms", 1000, "updating_ms", 4)
    found = await served.run(run)
    assert found["weights"] == {"mode": "drain", "workers_current": 2, "workers_failed": 1, "stood": 0.004}
    assert (found["weight_version"], found["weight_label"]) == (1, "step 8")


async def test_without_a_publication_there_are_no_weights_to_show(served: Served, run: str):
    assert (await served.run(run))["weights"] is None


async def complete_with_versions(fleet: Fleet, **versions: str) -> None:
    for group_id, text in versions.items():
        await fleet.submit(group_id)
        (grant,) = await fleet.hold()
        await fleet.put(grant, *grant.missing)
        await fleet.broker.complete(grant, {"rewards": "null", "versions": text, "worker": WORKER})
        await fleet.take()


async def test_all_runs_are_in_the_snapshot(served: Served, fleet: Fleet, run: str):
    found = await served.get("/status")
    assert run in [one["name"] for one in found["runs"]]
    assert found["redis"]["state"] == "ok"
    assert found["server"]["name"] == "valkey"


async def test_status_of_one_run_holds_only_that(served: Served, fleet: Fleet, run: str):
    assert [one["name"] for one in (await served.get("/status", run=run))["runs"]] == [run]


async def test_a_wrong_name_is_404_with_the_known_ones(served: Served, fleet: Fleet, run: str):
    answer = await served.http.get("/status/nothing-of-this-name")
    said = answer.json()
    assert answer.status_code == 404
    assert run in said["runs"]
    assert "there is no run 'nothing-of-this-name'" in said["detail"]


@pytest.mark.parametrize("path", ["workers", "groups", "dead", "history", "groups/a"])
async def test_each_page_of_a_wrong_name_is_404(served: Served, path: str):
    answer = await served.http.get(f"/status/nothing-of-this-name/{path}")
    assert answer.status_code == 404


async def test_a_name_that_can_be_none_is_refused(served: Served):
    answer = await served.http.get("/status/{x}")
    assert answer.status_code == 422


async def test_a_run_that_is_deleted_is_forgotten(served: Served, fleet: Fleet, run: str):
    await fleet.delete()
    await served.service.sampler.look()
    answer = await served.http.get(f"/status/{run}")
    assert answer.status_code == 404


async def test_a_run_whose_config_is_broken_is_said_to_be(served: Served, fleet: Fleet, run: str):
    await fleet.do("HSET", fleet.key("config"), "n", "many")
    found = await served.run(run)
    assert "can't be read" in found["problem"]


async def test_the_table_of_workers_is_data(served: Served, fleet: Fleet, run: str):
    await fleet.beat(slots=8)
    await served.run(run)
    found = await served.get(f"/status/{run}/workers")
    assert [worker["name"] for worker in found["workers"]] == [WORKER]


async def test_the_history_is_columns_of_equal_length(served: Served, fleet: Fleet, run: str):
    await served.run(run)
    found: dict[str, Any] = await served.get(f"/status/{run}/history", step_seconds=1)
    columns = found.keys() - {"run", "step_seconds"}
    assert {len(found[name]) for name in columns} == {len(found["at_ms"])}
    assert found["at_ms"] != []
