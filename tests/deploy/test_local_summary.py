"""The arithmetic of the main job's summary, and how it is told."""

from dataclasses import replace
from typing import Any

import pytest

from deploy.local.seen import Seen
from deploy.local.summary import Extras, Facts, Summary, bound
from deploy.local.table import advice, table
from rolloutfleet.messages import CompletedGroup, PromptGroup, Row, Sample

FACTS = Facts(
    n=8,
    slots=64,
    engines=1,
    concurrency=64,
    overcommit=1000,
    refill="group",
    submitted=100,
    trained=97,
    doubled=0,
    unfinished=0,
    samples=776,
    tokens=77_600,  # 100 tokens a sample
    longest=19_400,  # 200 tokens the longest of a group
    makespan=10.0,
    busy=320.0,
    full_speed=50.0,
    counters={"dead": 2, "dropped": 1, "samples": 790, "most_active": 8, "most_waiting": 5},
    behind={"active_full": 9.0, "open": 1.0},
)


def changed(**changes: Any) -> Facts:
    return replace(FACTS, **changes)


def completed(group_id: str, lengths: list[int], claimed: int, done: int, **changes: Any) -> CompletedGroup:
    samples = tuple(Sample(i, "stop", (Row.make([1] * k, [-0.5] * k),)) for i, k in enumerate(lengths))
    prompt = PromptGroup(id=group_id, prompt="?")
    group = CompletedGroup(
        *("1-0", group_id, "b", prompt, samples, (1.0,) * len(samples), None, None, "w", 1, 0),
        submitted_ms=0,
        claimed_ms=claimed,
        completed_ms=done,
    )
    return replace(group, **changes)


def test_what_is_neither_trained_nor_given_up_nor_held_is_lost() -> None:
    assert Summary(FACTS).lost == 0
    assert Summary(changed(trained=95)).lost == 2
    assert Summary(changed(trained=90, unfinished=7)).lost == 0


def test_the_window_is_that_of_the_run() -> None:
    assert Summary(FACTS).window == 8
    assert Summary(changed(overcommit=1500)).window == 12
    assert Summary(changed(concurrency=10, n=4)).window == 3


def test_ideal_is_the_tokens_at_full_speed_over_all_slots() -> None:
    assert Summary(FACTS).ideal_seconds == pytest.approx(77_600 / 50 / 64)


def test_ideal_is_the_measured_slot_time_where_the_speed_is_unknown() -> None:
    summary = Summary(changed(full_speed=None))
    assert summary.ideal_seconds == pytest.approx(320 / 64)
    assert summary.to_json()["ideal_from"] == "busy slot time"


def test_utilisation_is_the_busy_share_of_all_slots_over_the_makespan() -> None:
    assert Summary(FACTS).utilisation == pytest.approx(0.5)
    assert Summary(changed(makespan=0.0)).utilisation is None


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, 0.5),
        ({"overcommit": 1500}, 0.75),
        ({"overcommit": 3000}, 1.0),
        ({"concurrency": 32}, 0.25),
        ({"refill": "sample"}, 1 - 7 / 128),
        ({"refill": "sample", "concurrency": 128}, 1.0),
        ({"refill": "sample", "engines": 2}, 1 - 2 * 5.25**2 / 14 / 64),
        ({"samples": 0, "tokens": 0, "longest": 0}, None),
    ],
)
def test_the_bound_follows_from_the_window_and_the_lengths(changes: dict[str, Any], expected: float | None) -> None:
    facts = changed(**changes)
    assert bound(facts, facts.refill) == (None if expected is None else pytest.approx(expected))


def test_seen_counts_groups_by_id_and_lengths_by_sample() -> None:
    seen = Seen()
    seen.train([completed("a", [10, 30], 1000, 4000), completed("b", [5, 5], 2000, 9000)])
    seen.train([completed("a", [10, 30], 5000, 6000, entry="2-0", born="c")])
    assert (seen.groups, len(seen.times), seen.doubled) == (3, 2, 1)
    assert (seen.samples, seen.tokens, seen.longest) == (6, 90, 65)
    assert (seen.rewards, seen.scored) == (6.0, 6)


def test_makespan_goes_from_the_first_claim_to_the_last_completion() -> None:
    seen = Seen()
    assert seen.makespan_seconds() == 0.0
    seen.train([completed("b", [5], 2000, 9000), completed("a", [5], 1000, 4000)])
    assert seen.makespan_seconds() == 8.0
    assert seen.makespan_seconds(stopped_ms=12_000) == 11.0


def test_a_claim_of_an_earlier_job_counts_from_the_beginning_of_this_one() -> None:
    seen = Seen(began_ms=3000)
    seen.train([completed("a", [5], 1000, 4000)])
    assert seen.makespan_seconds() == 1.0


def test_age_is_the_number_of_steps_that_ended_since_the_claim() -> None:
    seen = Seen()
    for end in (1000, 2000, 3000):
        seen.end_step(end)
    seen.train([completed("a", [5], 500, 3500), completed("b", [5], 1500, 3500), completed("c", [5], 3200, 3500)])
    assert seen.steps_behind == [3, 2, 0]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "--refill sample can keep 95% busy"),
        ({"behind": {"completed_full": 6.0, "active_full": 4.0}}, "The trainer was the bottleneck"),
        ({"behind": {"no_prompts": 9.0}}, "ran out of prompts"),
        ({"busy": 620.0}, "The engines were the bottleneck"),
        ({"busy": 100.0}, "the run was short"),
        ({"refill": "sample", "busy": 520.0}, "More engines"),
        ({"refill": "sample", "concurrency": 32, "busy": 250.0}, "a larger --sample-concurrency"),
        ({"concurrency": 32, "busy": 150.0}, "it holds 32 samples, and there are 64 slots"),
        ({"behind": {"open": 9.0}}, "Nothing held the fleet back"),
        ({"trained": 0, "behind": {}}, "Nothing was completed"),
    ],
)
def test_the_last_sentence_names_the_bottleneck_and_the_mend(changes: dict[str, Any], words: str) -> None:
    assert words in advice(Summary(changed(**changes)))


def test_what_was_killed_explains_idle_slots() -> None:
    killed = Summary(changed(busy=100.0), Extras(worker_kills=3))
    assert "no group was lost" in advice(killed)
    assert "Groups were lost" in advice(Summary(changed(busy=100.0, trained=90), Extras(worker_kills=3)))


def test_the_table_fits_into_80_columns() -> None:
    extras = Extras("r", 31.2, 9, 0.5, 1.25, 4, 3, 1, 2, 0, {"x" * 200: 2})
    lines = table(Summary(FACTS, extras))
    assert max(map(len, lines)) <= 80
    assert any("97 completed, 2 dead, 0 lost, 0 doubled" in line for line in lines)


def test_json_has_the_promised_keys() -> None:
    promised = (
        "submitted completed dead lost doubled window most_active most_waiting makespan_seconds ideal_seconds "
        "utilisation utilisation_bound seconds_behind samples_made samples_made_again retries worker_kills staleness"
    )
    assert set(promised.split()) <= Summary(FACTS).to_json().keys()
