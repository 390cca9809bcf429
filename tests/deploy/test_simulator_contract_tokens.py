"""The contract of an engine's tokenizer: what a worker asks of it to append a text, or to know what a cut answer says.

Runs against a simulator of this process, or against the server of ROLLOUTFLEET_CONTRACT_URL. Which ids a text has is
each tokenizer's own affair; that they are that text again, and which bodies are refused, is not.
"""

import os
from collections.abc import AsyncIterator
from typing import Any

import pytest

from deploy.simulator import Simulator, SimulatorSettings
from tests.engine.client import Client, Json, client_of

REAL_URL = os.environ.get("ROLLOUTFLEET_CONTRACT_URL")
TEXT = "What is 2 + 2? Zwölf, or 漢字."
TORN = "\ufffd"


@pytest.fixture
async def engine() -> AsyncIterator[Client]:
    if REAL_URL is None:
        async with Simulator(SimulatorSettings()) as simulator, client_of(simulator.url) as client:
            yield client
        return
    async with client_of(REAL_URL) as client:
        yield client


async def ids_of(engine: Client, text: str) -> list[int]:
    status, answer = await engine.post("/tokenize", {"prompt": text, "add_special_tokens": False})
    assert (status, answer["count"]) == (200, len(answer["tokens"]))
    return answer["tokens"]


async def text_of(engine: Client, tokens: Any, **more: Any) -> Any:
    status, answer = await engine.post("/detokenize", {"tokens": tokens, **more})
    assert status == 200, answer
    return answer["text"]


@pytest.mark.parametrize("skips", [True, False])
async def test_contract_the_ids_of_a_text_are_that_text_again(engine: Client, skips: bool) -> None:
    assert await text_of(engine, await ids_of(engine, TEXT), skip_special_tokens=skips) == TEXT


async def test_contract_the_ids_of_a_text_are_those_that_a_prompt_of_it_has(engine: Client) -> None:
    answer = await engine.generate(text=TEXT, return_prompt_token_ids=True)
    assert answer["prompt_token_ids"] == await ids_of(engine, TEXT)


async def test_contract_several_lists_of_ids_are_several_texts_in_their_order(engine: Client) -> None:
    one, other = await ids_of(engine, "One"), await ids_of(engine, "and two")
    assert await text_of(engine, [other, one, []]) == ["and two", "One", ""]


async def test_contract_no_text_has_no_ids_and_no_ids_no_text(engine: Client) -> None:
    assert await ids_of(engine, "") == []
    assert await text_of(engine, []) == ""


async def test_contract_a_character_that_is_cut_in_two_is_seen_at_the_end_of_its_text(engine: Client) -> None:
    text = await text_of(engine, (await ids_of(engine, "4 漢"))[:-1])
    assert text.startswith("4")
    assert text.endswith(TORN)


async def test_contract_several_texts_have_several_lists_of_ids(engine: Client) -> None:
    status, answer = await engine.post("/tokenize", {"prompt": ["One", "and two"], "add_special_tokens": False})
    lists = [await ids_of(engine, text) for text in ("One", "and two")]
    assert (status, answer["tokens"], answer["count"]) == (200, lists, [len(ids) for ids in lists])


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/tokenize", {}),
        ("/tokenize", {"prompt": 5}),
        ("/tokenize", {"prompt": "a", "add_special_tokens": "x"}),
        ("/detokenize", {}),
        ("/detokenize", {"tokens": 5}),
        ("/detokenize", {"tokens": ["a"]}),
        ("/detokenize", {"tokens": [5.5]}),
        ("/detokenize", {"tokens": [[5], 6]}),
    ],
)
async def test_contract_what_is_no_text_or_no_ids_is_refused(engine: Client, path: str, body: Json) -> None:
    status, answer = await engine.post(path, body)
    assert (status, answer["object"]) == (400, "error")


async def test_contract_a_negative_id_is_an_error_of_the_server_which_goes_on(engine: Client) -> None:
    status, answer = await engine.post("/detokenize", {"tokens": [[5], [-1]]})
    assert (status, answer["object"]) == (500, "error")
    assert await text_of(engine, await ids_of(engine, "One")) == "One"
