"""What a simulated answer says, and that its numbers can be checked."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import fmean
from typing import Any

import aiohttp
import pytest

from deploy.simulator import Simulator, SimulatorSettings
from deploy.simulator.answers import Answers, final_answer
from deploy.simulator.tokens import TokenModel, ids_to_text, text_to_ids

QUESTION = "Ann has 3 apples and buys 4 more. How many has she?"


@asynccontextmanager
async def engine_with(**settings: Any) -> AsyncGenerator[tuple[Simulator, aiohttp.ClientSession]]:
    defaults: dict[str, Any] = {"speed": 50_000, "half": 0, "mean_tokens": 30, "sigma": 0.1}
    async with (
        Simulator(SimulatorSettings(**defaults | settings)) as engine,
        aiohttp.ClientSession(engine.url) as session,
    ):
        yield engine, session


async def ask(session: aiohttp.ClientSession, **body: Any) -> dict[str, Any]:
    body.setdefault("sampling_params", {"max_new_tokens": 200})
    async with session.post("/generate", json=body) as answer:
        assert answer.status == 200
        return await answer.json()


@pytest.fixture
def answers_file(tmp_path: Path) -> Path:
    path = tmp_path / "answers.jsonl"
    path.write_text(f'{{"question": "{QUESTION}", "answer": "3 + 4 = 7\\n#### 7"}}\n')
    return path


@pytest.mark.parametrize(("accuracy", "ends_in_7"), [(1.0, True), (0.0, False)])
async def test_an_answer_is_right_as_often_as_asked_for(answers_file: Path, accuracy: float, ends_in_7: bool) -> None:
    async with engine_with(answers=answers_file, accuracy=accuracy) as (_, session):
        texts = [(await ask(session, text=QUESTION))["text"] for _ in range(10)]
    assert {text.endswith("#### 7") for text in texts} == {ends_in_7}


async def test_a_known_question_is_found_within_a_longer_prompt(answers_file: Path) -> None:
    async with engine_with(answers=answers_file, accuracy=1.0) as (_, session):
        answer = await ask(session, text=f"Think first.\n\n{QUESTION}\n\nEnd with ####.")
    assert answer["text"].endswith("#### 7")


async def test_a_known_question_is_found_in_the_ids_of_its_text_and_a_partial_answer(answers_file: Path) -> None:
    async with engine_with(answers=answers_file, accuracy=1.0) as (engine, session):
        first = await ask(session, text=QUESTION, return_prompt_token_ids=True)
        again = await ask(session, input_ids=first["prompt_token_ids"] + first["output_ids"][:5])
    assert engine.service.requests == 2
    assert again["text"].endswith("#### 7")


async def test_without_the_answer_it_ends_in_some_number() -> None:
    async with engine_with() as (_, session):
        answer = await ask(session, text="Who knows?")
    assert answer["text"].rpartition("#### ")[2].isdigit()


async def test_an_answer_that_is_cut_off_has_no_final_answer() -> None:
    async with engine_with() as (_, session):
        answer = await ask(session, text="Who knows?", sampling_params={"max_new_tokens": 5})
    assert answer["meta_info"]["finish_reason"] == {"type": "length", "length": 5}
    assert "####" not in answer["text"]


async def test_the_same_samples_come_again_from_another_engine_of_the_same_seed() -> None:
    rounds: list[list[dict[str, Any]]] = []
    for _ in range(2):
        async with engine_with(seed=4, sigma=1.0, mean_tokens=80) as (_, session):
            rounds.append([await ask(session, input_ids=[1, 2, prompt]) for prompt in (3, 4) for _ in range(4)])
    first, second = ([answer["output_ids"] for answer in answers] for answers in rounds)
    assert first == second
    assert len({tuple(ids) for ids in first}) == 8


async def test_a_sampling_seed_names_its_sample() -> None:
    sampling = {"max_new_tokens": 200, "sampling_seed": 11}
    async with engine_with(sigma=1.0) as (_, session):
        answers = [await ask(session, input_ids=[1, 2], sampling_params=sampling) for _ in range(2)]
    assert answers[0]["output_ids"] == answers[1]["output_ids"]


async def test_each_log_probability_follows_from_token_place_version_and_seed() -> None:
    async with engine_with(seed=9) as (_, session):
        answer = await ask(session, input_ids=[1, 2], return_logprob=True)
    model = TokenModel(9, SimulatorSettings().vocabulary, SimulatorSettings().stop_token)
    expected = [model.logprob(token, place, "default") for place, token in enumerate(answer["output_ids"])]
    assert [entry[0] for entry in answer["meta_info"]["output_token_logprobs"]] == expected
    assert all(-50 < value < 0 for value in expected)


async def test_token_texts_come_with_the_log_probabilities_when_asked_for() -> None:
    async with engine_with() as (_, session):
        answer = await ask(session, input_ids=[1, 2], return_logprob=True, return_text_in_logprobs=True)
    assert all(isinstance(entry[2], str) for entry in answer["meta_info"]["output_token_logprobs"])


def test_a_log_probability_depends_on_each_of_its_arguments() -> None:
    model = TokenModel(1, 1000, 7)
    values = [model.logprob(*at) for at in ((3, 0, "a"), (4, 0, "a"), (3, 1, "a"), (3, 0, "b"))]
    assert len({*values, TokenModel(2, 1000, 7).logprob(3, 0, "a")}) == 5


def test_ids_of_an_answer_are_in_the_vocabulary_and_avoid_stop_tokens() -> None:
    model = TokenModel(1, 300, 7)
    ids = model.sequence(0.99, 200_000, {7, 8, 9})
    assert len(ids) == 200_000
    assert set(ids) <= set(range(300)) - {7, 8, 9}


@pytest.mark.parametrize("text", ["", "a", "ab", "größer als 3 €?", "lone \ud800 surrogate"])
def test_text_becomes_ids_and_text_again(text: str) -> None:
    ids = text_to_ids(text, 151_936)
    assert ids_to_text([*ids, 100_000]).encode("utf-8", "replace") == text.encode("utf-8", "surrogatepass").decode(
        "utf-8", "replace"
    ).encode("utf-8")


def test_mean_accuracy_over_prompts_is_the_one_asked_for_and_prompts_differ() -> None:
    answers = Answers({}, accuracy=0.4, seed=3)
    chances = [answers.chance(b"%d" % prompt) for prompt in range(3000)]
    assert fmean(chances) == pytest.approx(0.4, abs=0.02)
    assert fmean(chance**8 + (1 - chance) ** 8 for chance in chances) > 0.25


def test_a_final_answer_is_what_follows_the_mark_without_commas() -> None:
    assert [final_answer(label) for label in ("x\n#### 1,234", "42", " 7 ")] == ["1234", "42", "7"]


@pytest.mark.parametrize("line", ["[1]", '{"question": "x"}', "{"])
def test_a_wrong_line_of_answers_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "answers.jsonl"
    path.write_text(f'{{"question": "a", "answer": "1"}}\n{line}\n')
    with pytest.raises(ValueError, match=r"answers\.jsonl:2"):
        Answers.read(path, "question", "answer", 0.5, 0)
