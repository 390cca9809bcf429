"""What an engine may answer, and what is unsound. No server."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rolloutfleet.messages import UNKNOWN_VERSION
from tests.fakes.engine import said
from worker.answers import Asked, Fault, Piece, check_answer, version_number

type Answer = dict[str, Any]


RID = "rid-1"


def check(answer: Answer, vocab_size: int | None = 100, has_text: bool = True) -> Piece | Fault:
    answer = {**answer, "meta_info": {"id": RID, **answer["meta_info"]}} if has_meta(answer) else answer
    return check_answer(json.dumps(answer).encode(), Asked(RID, vocab_size, has_text))


def has_meta(answer: Answer) -> bool:
    return isinstance(answer.get("meta_info"), dict)


def piece(answer: Answer) -> Piece:
    checked = check(answer)
    assert isinstance(checked, Piece), checked
    return checked


def test_a_sound_answer_becomes_a_piece_whose_parts_agree() -> None:
    found = piece(said([4, 5, 6], text="hi", logprob=-1.5))
    assert found.ids.tolist() == [4, 5, 6]
    assert found.logprobs.tolist() == [-1.5, -1.5, -1.5]
    assert (found.spans, found.finish, found.text) == (((7, 0, 3),), "stop", "hi")


def test_an_answer_that_spans_versions_keeps_them_and_joins_equal_neighbours() -> None:
    answer = said([1, 2, 3, 4])
    answer["meta_info"]["weight_versions"] = [
        {"version": "7", "start": 0, "end": 1},
        {"version": "7", "start": 1, "end": 2},
        {"version": "8", "start": 2, "end": 2},
        {"version": "9", "start": 2, "end": 4},
    ]
    assert piece(answer).spans == ((7, 0, 2), (9, 2, 4))


def test_without_spans_the_one_version_holds_for_all_tokens() -> None:
    answer = said([1, 2])
    del answer["meta_info"]["weight_versions"]
    assert piece(answer).spans == ((7, 0, 2),)


@pytest.mark.parametrize(
    ("said_version", "number"), [("12", 12), (3, 3), ("default", UNKNOWN_VERSION), ("²", -1), ("9" * 5000, -1)]
)
def test_a_version_that_is_no_number_is_unknown(said_version: object, number: int) -> None:
    assert version_number(said_version) == number


def test_an_abort_without_tokens_is_an_empty_piece() -> None:
    found = piece({"text": "", "output_ids": [], "meta_info": {"finish_reason": {"type": "abort", "message": "x"}}})
    assert (len(found.ids), found.finish) == (0, "abort")


def test_prompt_ids_are_taken_where_the_engine_tells_them() -> None:
    assert piece(said([1], prompt_token_ids=[8, 9])).prompt_ids == (8, 9)


def test_an_engine_without_a_tokenizer_answers_without_text() -> None:
    answer = said([1])
    del answer["text"]
    found = check(answer, has_text=False)
    assert isinstance(found, Piece)
    assert found.text == ""


def without(name: str, where: str = "meta_info") -> Callable[[Answer], object]:
    def change(answer: Answer) -> None:
        del (answer[where] if where else answer)[name]

    return change


def with_meta(**changes: Any) -> Callable[[Answer], object]:
    return lambda answer: answer["meta_info"].update(changes)


def with_top(**changes: Any) -> Callable[[Answer], object]:
    return lambda answer: answer.update(changes)


UNSOUND: list[tuple[Callable[[Answer], object], str]] = [
    (without("meta_info", ""), "no meta_info"),
    (without("output_ids", ""), "no output_ids"),
    (without("text", ""), "no text"),
    (with_top(text=["hi"]), "text is no str"),
    (with_meta(id=None), "no id"),
    (with_meta(id="rid-2"), "the answer to another request"),
    (with_meta(id=1), "id is no str"),
    (with_top(prompt_token_ids=[5, 100]), "a token id is outside of the vocabulary of 100"),
    (with_top(prompt_token_ids=[5, "6"]), "prompt_token_ids are no integers"),
    (with_top(prompt_token_ids="5 6"), "prompt_token_ids is no list"),
    (without("finish_reason"), "no finish_reason"),
    (without("output_token_logprobs"), "no output_token_logprobs"),
    (with_top(output_ids=[]), "no tokens"),
    (with_top(output_ids="1 2"), "output_ids is no list"),
    (with_top(output_ids=[1.0, 2.0]), "output_ids are no integers"),
    (with_top(output_ids=[1, -2]), "a token id is outside of the vocabulary of 100"),
    (with_top(output_ids=[1, 100]), "a token id is outside of the vocabulary of 100"),
    (with_top(meta_info=[]), "meta_info is no dict"),
    (with_meta(finish_reason={"type": "bewildered"}), "unknown finish reason 'bewildered'"),
    (with_meta(finish_reason={"type": ["stop"]}), "unknown finish reason \"['stop']\""),
    (with_meta(finish_reason=None), "no finish_reason"),
    (with_meta(output_token_logprobs=[[-0.5, 1, None]]), "fewer log-probabilities than tokens"),
    (with_meta(output_token_logprobs=[[-0.5, 1, None]] * 3), "more log-probabilities than tokens"),
    (with_meta(output_token_logprobs=[[-0.5, 2, None], [-0.5, 1, None]]), "not those of the tokens"),
    (with_meta(output_token_logprobs=[[-0.5, 1], [float("nan"), 2]]), "a log-probability is not finite"),
    (with_meta(output_token_logprobs=[[-0.5, 1], [-1e300, 2]]), "a log-probability is not finite"),
    (with_meta(output_token_logprobs=[[-0.5, 1], [-(10**400), 2]]), "a log-probability is not finite"),
    (with_meta(output_token_logprobs=[[-0.5, 1], [None, 2]]), "a log-probability is no number"),
    (with_meta(output_token_logprobs=[[-0.5, 1], ["-1", 2]]), "a log-probability is no number"),
    (with_meta(output_token_logprobs=[[-0.5, 1], [True, 2]]), "a log-probability is no number"),
    (with_meta(output_token_logprobs=[-0.5, -0.5]), "are no pairs"),
    (with_meta(output_token_logprobs=[[], []]), "are no pairs"),
    (with_meta(weight_versions=[{"version": "7", "start": 0, "end": 1}]), "do not cover the tokens"),
    (with_meta(weight_versions=[{"version": "7", "start": 1, "end": 2}]), "do not cover the tokens"),
    (with_meta(weight_versions=[{"version": "7", "start": 0.0, "end": 2}]), "do not cover the tokens"),
    (with_meta(weight_versions=[]), "do not cover the tokens"),
    (with_meta(weight_versions={"7": 2}), "weight_versions is no list"),
    (with_meta(weight_versions=[{"start": 0, "end": 2}]), "weight_versions are no spans"),
    (with_meta(weight_versions=["7"]), "weight_versions are no spans"),
]


@pytest.mark.parametrize(("change", "name"), UNSOUND, ids=[f"{at}-{name}" for at, (_, name) in enumerate(UNSOUND)])
def test_an_unsound_answer_is_a_fault_with_its_name(change: Callable[[Answer], object], name: str) -> None:
    answer = said([1, 2])
    change(answer)
    found = check(answer)
    assert isinstance(found, Fault)
    assert name in found.words


@pytest.mark.parametrize("body", [b"", b"<html>", b"\xff\xfe", b"[" * 100_000])
def test_what_is_no_json_is_a_fault(body: bytes) -> None:
    assert check_answer(body, Asked(RID)) == Fault("not_json", "not JSON")


def test_an_answer_that_is_cut_off_is_a_fault() -> None:
    body = json.dumps(said([1])).encode()
    assert check_answer(body[:-9], Asked(RID)) == Fault("cut_off", "JSON that is cut off")


def test_what_is_no_object_is_a_fault() -> None:
    assert check_answer(b"[1]", Asked(RID)) == Fault("wrong_type", "not a JSON object but list")


def test_a_long_answer_keeps_every_number() -> None:
    ids = list(range(100)) * 320
    logprobs = np.linspace(-20, 0, len(ids), dtype="<f4")
    answer = said(ids)
    answer["meta_info"]["output_token_logprobs"] = [[float(x), t, None] for x, t in zip(logprobs, ids, strict=True)]
    found = piece(answer)
    assert found.ids.tolist() == ids
    assert (found.logprobs == logprobs).all()
