"""Prompts: chat messages through the model's template, checks of ids and budgets."""

import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rolloutfleet.errors import InvalidGroup
from rolloutfleet.messages import PromptGroup
from tests.fakes.engine import FakeEngine
from tests.fakes.hub import hub
from tests.worker.fleet import Fleet, until
from tests.worker.test_worker_process import environment, process
from worker.model import read_end_ids
from worker.tokens import Limits, Prompts, Sampling, Tokenizer, check_ids, fit

TEMPLATE = (
    "{% for m in messages %}{% if not m['content'] %}{{ raise_exception('an empty turn') }}{% endif %}"
    "{{ m['role'] }} {{ m['content'] }} {% endfor %}"
    "{% if tools %}tools {{ tools | length }} {% endif %}"
    "{% if add_generation_prompt %}assistant{% endif %}"
)
WORDS = ("[UNK]", "user", "assistant", "two", "and", "tools", "1")


@pytest.fixture
def tokenizer_path(tmp_path: Path) -> str:
    """A tokenizer of seven words with a chat template."""
    model = {"type": "WordLevel", "vocab": {word: at for at, word in enumerate(WORDS)}, "unk_token": "[UNK]"}
    tokenizer: dict[str, Any] = {
        "version": "1.0",
        "model": model,
        "pre_tokenizer": {"type": "Whitespace"},
        "added_tokens": [],
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": TEMPLATE, "unk_token": "[UNK]"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    return str(tmp_path)


def prompts(path: str = "", context: int | None = 100, vocabulary: int | None = 50) -> Prompts:
    return Prompts(Tokenizer(path), Limits(context, vocabulary), Sampling(20, 1.0))


async def test_messages_become_ids_through_the_models_own_template(tokenizer_path: str) -> None:
    group = PromptGroup.make({"messages": [{"role": "user", "content": "two and two"}]})
    prompt = await prompts(tokenizer_path).make(group)
    assert prompt.ids == (1, 3, 4, 3, 2)


async def test_tools_go_through_the_template_too(tokenizer_path: str) -> None:
    tool: dict[str, Any] = {
        "type": "function",
        "function": {"name": "run", "parameters": {"type": "object", "properties": {}}},
    }
    group = PromptGroup.make({"messages": [{"role": "user", "content": "two"}], "tools": [tool]})
    prompt = await prompts(tokenizer_path).make(group)
    assert prompt.ids == (1, 3, 5, 6, 2)


async def test_messages_that_the_template_refuses_are_an_invalid_group(tokenizer_path: str) -> None:
    group = PromptGroup.make({"messages": [{"role": "user", "content": ""}]})
    with pytest.raises(InvalidGroup, match=r"messages: the chat template of .* refuses them: an empty turn"):
        await prompts(tokenizer_path).make(group)


async def test_text_goes_to_the_engine_as_it_is() -> None:
    prompt = await prompts().make(PromptGroup.make({"prompt": "two and two"}))
    assert (prompt.ids, prompt.text) == (None, "two and two")


async def test_text_that_could_be_too_long_is_counted_where_there_is_a_tokenizer(tokenizer_path: str) -> None:
    made = prompts(tokenizer_path, context=12)
    await made.tokenizer.fingerprint()  # as a worker does that starts
    prompt = await made.make(PromptGroup.make({"prompt": "two and two"}))
    assert (prompt.ids, prompt.budget) == ((3, 4, 3), 9)


@pytest.mark.parametrize(
    ("length", "budget", "explicit", "context", "fits"),
    [(10, 20, True, 30, 20), (10, 20, False, 25, 15), (10, 20, True, None, 20), (24, 20, False, 25, 1)],
)
def test_a_budget_that_fits(length: int, budget: int, explicit: bool, context: int | None, fits: int) -> None:
    assert fit(length, budget, explicit, context) == fits


@pytest.mark.parametrize(("length", "explicit"), [(11, True), (25, False), (26, False)])
def test_a_budget_that_does_not_fit_is_an_invalid_group(length: int, explicit: bool) -> None:
    with pytest.raises(InvalidGroup, match="do not fit into the engine's context of 25"):
        fit(length, 20, explicit, 25)


@pytest.mark.parametrize("ids", [[-1], [50], [1, 2**31], [2**40]])
def test_an_id_outside_of_the_vocabulary_is_an_invalid_group(ids: list[int]) -> None:
    with pytest.raises(InvalidGroup, match="outside of the engine's vocabulary of 50"):
        check_ids(ids, 50)


async def test_a_worker_with_another_fingerprint_than_the_runs_does_not_claim(
    fleet: Fleet, engine: FakeEngine, tokenizer_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("worker.watches.CONFIG_SECONDS", 0.1)
    engine.tokenizer_path = tokenizer_path
    ours = await Tokenizer(tokenizer_path).fingerprint()
    await fleet.configure(n=1, fingerprint="0123456789abcdef")
    await fleet.submit("g", input_ids=None, messages=[{"role": "user", "content": "two"}])
    async with fleet.worker():
        await until(lambda: fleet.facts('"fingerprint"'))
        claimed = await fleet.stat("claimed")
        await fleet.configure(fingerprint=ours)
        (entry,) = await fleet.completed(1)
    assert (claimed, entry.fields["fingerprint"]) == (0, ours.encode())
    assert engine.requests[0]["input_ids"] == [1, 3, 2]


async def test_the_entry_says_the_fingerprint_though_the_run_asks_for_none(
    fleet: Fleet, engine: FakeEngine, tokenizer_path: str
) -> None:
    engine.tokenizer_path = tokenizer_path
    await fleet.configure(n=1)
    await fleet.submit("g")
    async with fleet.worker():
        (entry,) = await fleet.completed(1)
    assert entry.fields["fingerprint"].decode() == await Tokenizer(tokenizer_path).fingerprint()


async def test_a_tokenizer_that_can_t_be_read_keeps_no_worker_from_prompts_that_need_none(
    fleet: Fleet, engine: FakeEngine, tmp_path: Path
) -> None:
    engine.tokenizer_path = str(tmp_path)
    (tmp_path / "tokenizer.json").write_text('{"model": 1}')
    await fleet.configure(n=1)
    await fleet.submit("g")
    async with fleet.worker():
        (entry,) = await fleet.completed(1)
    assert entry.fields["fingerprint"] == b""


async def test_a_tokenizer_with_a_hubs_name_is_downloaded_once_and_then_read_from_the_cache(
    fleet: Fleet, engine: FakeEngine, tokenizer_path: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    engine.tokenizer_path = "owner/name"
    await fleet.configure(n=1)
    found: list[str] = []
    async with hub(Path(tokenizer_path)) as address:
        env = environment(fleet) | {"HF_ENDPOINT": address, "HF_HOME": str(tmp_path_factory.mktemp("home"))}
        found += await fingerprint_of_one(fleet, env, "downloaded")
    found += await fingerprint_of_one(fleet, env, "cached")
    assert found == [await Tokenizer(tokenizer_path).fingerprint()] * 2


async def fingerprint_of_one(fleet: Fleet, env: Mapping[str, str], group_id: str) -> list[str]:
    """Of the entry that a worker process with this environment makes of a group of plain text."""
    await fleet.submit(group_id, input_ids=None, prompt="two and two")
    async with process(env):
        entries = await fleet.completed(1)
    return [entry.fields["fingerprint"].decode() for entry in entries]


async def test_a_hub_that_does_not_answer_keeps_no_worker_from_prompts_that_need_no_tokenizer(
    fleet: Fleet, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered = threading.Event()

    def read(_: Tokenizer) -> None:
        answered.wait()

    monkeypatch.setattr("worker.watches.TOKENIZER_SECONDS", 0.1)
    monkeypatch.setattr(Tokenizer, "_read", read)
    engine.tokenizer_path = "owner/name"
    await fleet.configure(n=1)
    await fleet.submit("g")
    async with fleet.worker():
        (entry,) = await fleet.completed(1)
        answered.set()
    assert entry.fields["fingerprint"] == b""


async def test_the_fingerprint_tells_end_ids_apart(tokenizer_path: str) -> None:
    before = await Tokenizer(tokenizer_path).fingerprint()
    (Path(tokenizer_path) / "generation_config.json").write_text('{"eos_token_id": [6, 5]}')
    assert await Tokenizer(tokenizer_path).fingerprint() != before


@pytest.mark.parametrize(
    ("said", "ids"), [('{"eos_token_id": [6, 5]}', [5, 6]), ('{"eos_token_id": 4}', [4]), ("{}", []), ("[]", [])]
)
def test_end_ids_are_those_of_the_models_generation_config(tmp_path: Path, said: str, ids: list[int]) -> None:
    (tmp_path / "generation_config.json").write_text(said)
    assert read_end_ids(str(tmp_path)) == ids
