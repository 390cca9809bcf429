"""Prompt groups that can never work become dead letters with the reason, and the worker goes on."""

import json
from typing import Any

import pytest

from tests.fakes.engine import FakeEngine
from tests.worker.fleet import Fleet

BAD: list[tuple[bytes, str]] = [
    (b"not json", "not a JSON object"),
    (b"[1]", "not a JSON object"),
    (b'{"id": "g", "label": "4"}', "give exactly one of prompt, messages and input_ids"),
    (b'{"id": "g", "prompt": "", "label": "4"}', "prompt: String should have at least 1 character"),
    (b'{"id": "g", "prompt": "x", "n": 0}', "n must be an integer from 1 to 4096"),
    (b'{"id": "g", "prompt": "x", "sampling_params": {"tmp": 1}}', "unknown sampling parameters tmp"),
    (b'{"id": "g", "prompt": "\\ud800", "label": "4"}', "not a JSON object"),  # Lua's parser refuses lone surrogates
    (b'{"id": "g", "prompt": "\xff", "label": "4"}', "not JSON"),
    (b'{"id": "g", "prompt": "x", "metadata": NaN, "label": "4"}', "NaN is not JSON"),
    (
        b'{"id": "g", "input_ids": [5, 100], "label": "4"}',
        "input_ids: 100 is outside of the engine's vocabulary of 100",
    ),
    (b'{"id": "g", "input_ids": [5, -1], "label": "4"}', "input_ids: -1 is outside"),
    (b'{"id": "g", "input_ids": [5, 1.5], "label": "4"}', "input_ids"),
    (b'{"id": "g", "messages": [{"role": "user", "content": "x"}], "label": "4"}', "messages need a tokenizer"),
    (b'{"id": "g", "input_ids": [1], "sampling_params": {"max_new_tokens": 0}, "label": "4"}', "max_new_tokens is 0"),
    (b'{"id": "g", "input_ids": [1]}', "no label, and the reward compares with one"),
    (json.dumps({"id": "g", "input_ids": [1] * 1000, "label": "4"}).encode(), "do not fit into the engine's context"),
    (b'{"id": "g", "prompt": "' + b"x" * 5000 + b'"}', "longer than max_bytes = 4096"),
]


@pytest.mark.parametrize(("entry", "reason"), BAD, ids=[f"{at}-{reason}" for at, (_, reason) in enumerate(BAD)])
async def test_a_group_that_can_never_work_is_a_dead_letter_and_the_next_one_completes(
    fleet: Fleet, engine: FakeEngine, entry: bytes, reason: str
) -> None:
    engine.tokenizer_path = "/no/tokenizer"
    await fleet.configure(max_bytes=4096)
    await fleet.push(entry, b'{"id": "good", "input_ids": [1], "label": "4"}')
    async with fleet.worker():
        (good,) = await fleet.completed(1)
        (letter,) = await fleet.dead()
    assert good.id == "good"
    assert reason in letter["reason"]


async def test_a_submitted_group_that_is_longer_than_max_bytes_is_a_dead_letter_too(fleet: Fleet) -> None:
    await fleet.configure(max_bytes=4096)
    await fleet.submit("g", input_ids=None, prompt="x" * 5000)
    async with fleet.worker():
        (letter,) = await fleet.dead()
    assert "max_bytes is 4096" in letter["reason"]


async def test_an_explicit_budget_that_does_not_fit_is_refused(fleet: Fleet) -> None:
    await fleet.configure()
    await fleet.submit("g", sampling_params={"max_new_tokens": 999})
    async with fleet.worker():
        (letter,) = await fleet.dead()
    assert "a prompt of 2 tokens and max_new_tokens 999 do not fit" in letter["reason"]


async def test_a_default_budget_is_reduced_to_what_fits(fleet: Fleet, engine: FakeEngine) -> None:
    await fleet.configure(n=1)
    await fleet.submit("g", input_ids=[1] * 990)
    async with fleet.worker():
        await fleet.completed(1)
    assert engine.requests[0]["sampling_params"]["max_new_tokens"] == 10


async def test_a_duplicated_id_is_generated_once(fleet: Fleet, engine: FakeEngine) -> None:
    await fleet.configure(n=1)
    same = b'{"id": "g", "input_ids": [1], "label": "4"}'
    await fleet.push(same, same, b'{"id": "h", "input_ids": [2], "label": "4"}')
    async with fleet.worker():
        entries = await fleet.completed(2)
    assert sorted(entry.id for entry in entries) == ["g", "h"]
    assert len(engine.requests) == 2


async def test_a_raw_group_keeps_its_own_n_and_unknown_keys(fleet: Fleet, engine: FakeEngine) -> None:
    await fleet.configure(n=1)
    group: dict[str, Any] = {"id": "g", "input_ids": [1], "label": "4", "n": 3, "source": {"list": []}}
    await fleet.push(json.dumps(group).encode())
    async with fleet.worker():
        (entry,) = await fleet.completed(1)
    assert (entry.fields["n"], len(engine.requests)) == (b"3", 3)
