"""What Prometheus is told: no number for what is unknown, bounded labels, old data only by its age."""

import time

from prometheus_client.parser import text_string_to_metric_families

from api.metrics import OLDEST_SECONDS, REASONS
from rolloutfleet.broker import Beat
from rolloutfleet.metrics import Described, RunCounters, RunGauges
from tests.api.served import Served
from tests.fakes.broker import Fleet

type Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


async def scrape(served: Served) -> Samples:
    answer = await served.http.get("/metrics")
    assert answer.status_code == 200
    families = text_string_to_metric_families(answer.text)
    return {(one.name, frozenset(one.labels.items())): one.value for family in families for one in family.samples}


def named(samples: Samples, name: str, **labels: str) -> float | None:
    return samples.get((name, frozenset(labels.items())))


async def test_the_gate_is_one_for_the_reason_that_holds_and_zero_for_the_others(
    served: Served, fleet: Fleet, run: str
):
    await served.run(run)
    samples = await scrape(served)
    holds = {reason: named(samples, "rolloutfleet_gate", run=run, reason=str(reason)) for reason in REASONS}
    assert holds == {reason: float(reason == "no_prompts") for reason in REASONS}


async def test_counters_are_what_the_steps_counted(served: Served, fleet: Fleet, run: str):
    await fleet.run_through("a", "b")
    await served.run(run)
    samples = await scrape(served)
    assert named(samples, "rolloutfleet_groups_completed_total", run=run) == 2
    assert named(samples, "rolloutfleet_samples_total", run=run) == 4
    await fleet.take_and_ack()


async def test_groups_are_counted_by_how_far_behind_their_trainer_they_were(served: Served, fleet: Fleet, run: str):
    await fleet.configure(max_staleness=2, stale="drop")
    await fleet.run_through("a", "b")
    first, second = [entry.entry for entry in await fleet.take()]
    await fleet.broker.judge(1, [first])
    await fleet.broker.judge(4, [second])
    await fleet.broker.ack([first])
    await served.run(run)
    samples = await scrape(served)
    assert named(samples, "rolloutfleet_groups_trained_total", run=run, behind="1") == 1
    assert named(samples, "rolloutfleet_groups_refused_stale_total", run=run, behind="4") == 1


async def test_what_is_not_known_is_not_exported(served: Served, fleet: Fleet, run: str):
    await served.run(run)
    samples = await scrape(served)
    for name in ("weight_version", "staleness_versions", "slot_utilisation", "tokens_total", "trainer_oldest_seconds"):
        assert named(samples, f"rolloutfleet_{name}", run=run) is None


async def test_a_state_that_a_worker_makes_up_is_no_new_label(served: Served, fleet: Fleet, run: str):
    await fleet.broker.heartbeat(Beat("pod/1", (), 8, {"state": "on holiday"}))
    await served.run(run)
    samples = await scrape(served)
    assert named(samples, "rolloutfleet_workers", run=run, state="unknown") == 1
    assert named(samples, "rolloutfleet_workers", run=run, state="on holiday") is None


async def test_labels_are_run_reason_and_state_only(served: Served, fleet: Fleet, run: str):
    await fleet.run_through("a")
    await fleet.beat(slots=8)
    await served.run(run)
    samples = await scrape(served)
    assert {name for _, labels in samples for name, _ in labels} == {"run", "reason", "state"}
    await fleet.take_and_ack()


async def test_a_run_that_was_not_read_for_long_has_only_its_age(served: Served, fleet: Fleet, run: str):
    await served.run(run)
    book = served.service.sampler.books[run]
    book.at = time.monotonic() - OLDEST_SECONDS - 5
    served.service.publisher.snapshot = served.service.publisher.make()
    found = {name for name, labels in await scrape(served) if ("run", run) in labels}
    assert found == {"rolloutfleet_snapshot_age_seconds"}


async def test_redis_is_up_while_it_answers(served: Served):
    assert named(await scrape(served), "rolloutfleet_redis_up") == 1


async def test_every_metric_of_the_page_of_metrics_is_exported(served: Served, fleet: Fleet, run: str):
    await served.run(run)
    text = (await served.http.get("/metrics")).text
    gauges = [value.name for value in vars(RunGauges).values() if isinstance(value, Described)]
    counters = [value.name for value in vars(RunCounters).values() if isinstance(value, Described)]
    counters += [described.name for _, described in RunCounters.by_stat]
    missing = [name for name in [*gauges, *(f"{name}_total" for name in counters)] if f"# TYPE {name} " not in text]
    assert missing == []
