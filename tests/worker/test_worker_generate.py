"""Custom generate functions: several turns, tools between them, and whatever strangers do."""

import asyncio
import json
from collections import Counter
from typing import Any

import pytest

from rolloutfleet.messages import Sample
from tests.fakes.engine import FakeEngine, said
from tests.worker import hooks
from tests.worker.fleet import Fleet, until

HOOKS = "tests.worker.hooks"


@pytest.fixture(autouse=True)
def fresh_switches() -> None:
    hooks.switches.clear()


async def made(fleet: Fleet) -> Sample:
    """The only sample of group g, which is completed and then acked."""
    await until(lambda: fleet.stat("completed"))
    (born,) = await fleet.broker.calls.read([["HGET", fleet.broker.keys.group("g"), "born"]])
    samples, _ = await fleet.broker.samples("g", born.decode())
    return Sample.decode(samples[0])


async def test_turns_append_to_one_row_and_tool_tokens_are_masked(fleet: Fleet, engine: FakeEngine) -> None:
    await fleet.configure(n=1)
    answers = [said([1, 2], text="a"), said([3], text="b", version="8")]
    engine.script = lambda _: answers[len(engine.requests) - 1]
    await fleet.submit("g")
    async with fleet.worker(generate=f"{HOOKS}:two_turns"):
        sample = await made(fleet)
        (entry,) = await fleet.completed(1)
    (row,) = sample.rows
    assert (row.ids.tolist(), row.mask.tolist()) == ([1, 2, 50, 51, 3], [1, 1, 0, 0, 1])
    assert row.logprobs.tolist() == [-0.5, -0.5, 0.0, 0.0, -0.5]
    assert row.spans == ((7, 0, 4), (8, 4, 5))
    assert (sample.text, sample.metadata, entry.fields["rewards"]) == ("ab", {"first": [1, 2]}, b"[0.25]")


async def test_the_next_turn_sends_all_ids_and_a_budget_that_fits(fleet: Fleet, engine: FakeEngine) -> None:
    await fleet.configure(n=1)
    engine.script = lambda _: said([1, 2])
    await fleet.submit("g")
    async with fleet.worker(generate=f"{HOOKS}:two_turns"):
        await fleet.completed(1)
    first, second = engine.requests
    assert first["sampling_params"]["max_new_tokens"] == 4
    assert second["input_ids"] == [5, 6, 1, 2, 50, 51]
    assert second["sampling_params"]["max_new_tokens"] == 994


async def test_what_an_explicit_input_adds_is_masked(fleet: Fleet, engine: FakeEngine) -> None:
    await fleet.configure(n=1)
    engine.script = lambda _: said([1])
    await fleet.submit("g")
    async with fleet.worker(generate=f"{HOOKS}:whole_input"):
        (row,) = (await made(fleet)).rows
        await fleet.completed(1)
    assert (row.ids.tolist(), row.mask.tolist()) == ([1, 60, 1], [1, 0, 1])


async def test_a_rewritten_history_begins_another_row(fleet: Fleet, engine: FakeEngine) -> None:
    await fleet.configure(n=1)
    answers = [said([1, 2], text="a"), said([3], text="b", version="8")]
    engine.script = lambda _: answers[len(engine.requests) - 1]
    await fleet.submit("g")
    async with fleet.worker(generate=f"{HOOKS}:renders_again"):
        first, second = (await made(fleet)).rows
        await fleet.completed(1)
        await until(lambda: fleet.stat("rows_rewritten"))
    assert engine.requests[1]["input_ids"] == [5, 6, 99]
    assert (first.ids.tolist(), first.prompt, first.spans) == ([1, 2], None, ((7, 0, 2),))
    assert second.prompt is not None
    assert (second.ids.tolist(), second.prompt.tolist(), second.mask.tolist()) == ([3], [5, 6, 99], [1])
    assert await fleet.stat("rows_rewritten") == 1


async def test_the_groups_prompt_stays_what_was_rendered_though_a_row_has_its_own(
    fleet: Fleet, engine: FakeEngine
) -> None:
    await fleet.configure(n=1)
    await fleet.submit("g")
    async with fleet.worker(generate=f"{HOOKS}:own_prompt"):
        (row,) = (await made(fleet)).rows
        (born,) = await fleet.broker.calls.read([["HGET", fleet.broker.keys.group("g"), "born"]])
        _, prompt = await fleet.broker.samples("g", born.decode())
        await fleet.completed(1)
    assert prompt == b"\5\0\0\0\6\0\0\0"
    assert row.prompt is not None
    assert row.prompt.tolist() == engine.requests[0]["input_ids"] == [40, 41]


async def test_a_text_becomes_ids_by_the_engines_tokenizer(fleet: Fleet, engine: FakeEngine) -> None:
    engine.texts = {50: "4", 51: "2"}
    await fleet.configure(n=1)
    await fleet.submit("g")
    async with fleet.worker(generate=f"{HOOKS}:encodes_42"):
        (row,) = (await made(fleet)).rows
        await fleet.completed(1)
    assert row.ids.tolist() == [1, 2, 3, 50, 51, 1, 2, 3]


async def test_without_any_tokenizer_encode_says_what_to_set(fleet: Fleet) -> None:
    await fleet.configure(n=1, max_attempts=1)
    await fleet.submit("g")
    async with fleet.worker(generate=f"{HOOKS}:encodes_42"):
        (letter,) = await fleet.dead()
    assert "set tokenizer to a folder with one" in letter["reason"]


async def test_all_requests_of_a_sample_have_one_routing_key_and_no_two_samples_the_same(
    fleet: Fleet, engine: FakeEngine
) -> None:
    await fleet.configure(n=2)
    await fleet.submit("g")
    async with fleet.worker(generate=f"{HOOKS}:two_turns"):
        await fleet.completed(1)
    counts = Counter(engine.routing_keys)
    assert sorted(counts.values()) == [2, 2]


async def test_a_second_turn_after_a_text_prompt_goes_on_from_the_ids_that_the_engine_told(
    fleet: Fleet, engine: FakeEngine
) -> None:
    await fleet.configure(n=1)
    engine.script = lambda _: said([1], prompt_token_ids=[40])
    await fleet.submit("g", prompt="two?", input_ids=None)
    async with fleet.worker(generate=f"{HOOKS}:two_turns"):
        await fleet.completed(1)
    assert engine.requests[1]["input_ids"] == [40, 1, 50, 51]


async def test_a_second_turn_is_never_made_from_the_text_alone(fleet: Fleet) -> None:
    await fleet.configure(n=1, max_attempts=1)
    await fleet.submit("g", prompt="two?", input_ids=None)
    async with fleet.worker(generate=f"{HOOKS}:two_turns"):
        (letter,) = await fleet.dead()
    assert "the engine does not tell the ids of a text prompt" in letter["reason"]


async def test_between_turns_no_slot_is_held(fleet: Fleet) -> None:
    await fleet.configure(n=2)
    hooks.switches["go"] = asyncio.Event()
    await fleet.submit("g")
    async with fleet.worker(generate=f"{HOOKS}:waits_between_turns", slots=1):
        await until(lambda: hooks.switches.get("between") == 2)
        hooks.switches["go"].set()
        (entry,) = await fleet.completed(1)
    assert json.loads(entry.fields["lengths"]) == [7, 7]


@pytest.mark.parametrize(
    ("hook", "reason"),
    [
        ("makes_nothing", "sample 0: generate ended without a turn of the model"),
        ("odd_metadata", "sample 0: what generate made does not encode"),
        ("generate_raises", f"sample 0: generate {HOOKS}:generate_raises raised SystemExit: 3"),
    ],
)
async def test_a_generate_that_goes_wrong_fails_its_group_with_the_reason(fleet: Fleet, hook: str, reason: str) -> None:
    await fleet.configure(n=1, max_attempts=1)
    hooks.switches["raise"] = SystemExit(3)
    await fleet.submit("g")
    async with fleet.worker(generate=f"{HOOKS}:{hook}"):
        (letter,) = await fleet.dead()
    assert letter["reason"].startswith(reason)


async def test_a_failure_that_generate_swallows_is_still_a_failure(fleet: Fleet, engine: FakeEngine) -> None:
    await fleet.configure(n=1)
    engine.script = lambda _: 400
    await fleet.submit("g")
    async with fleet.worker(generate=f"{HOOKS}:swallows_failures"):
        (letter,) = await fleet.dead()
    assert hooks.switches["swallowed"]
    assert letter["reason"].startswith("the engine refuses the request (400)")


async def test_a_slot_is_free_again_after_a_generate_that_failed(fleet: Fleet, engine: FakeEngine) -> None:
    await fleet.configure(n=1, max_attempts=1)

    async def script(request: dict[str, Any]) -> Any:
        return said([1])

    engine.script = script
    hooks.switches["raise"] = asyncio.CancelledError()
    await fleet.submit("g", "h", "i")
    async with fleet.worker(generate=f"{HOOKS}:generate_raises", slots=1):
        letters = await fleet.dead(3)
    assert {letter["id"] for letter in letters} == {"g", "h", "i"}
