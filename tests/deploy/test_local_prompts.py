"""Reading a JSONL of questions: keys, labels, messages, bad lines, repeated lines."""

import json
from pathlib import Path
from typing import Any

import pytest

from deploy.local import prompts
from deploy.local.prompts import PromptsUnusable, final_answer, read_prompts

GSM8K: dict[str, Any] = {"question": "How much?", "answer": "2 + 998 = <<2+998=1000>>1,000 dollars.\n#### 1,000"}
VERL: dict[str, Any] = {
    "prompt": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "How much?"}],
    "reward_model": {"ground_truth": "\\frac{3}{7}", "style": "rule"},
}


def write(folder: Path, *rows: dict[str, Any] | str) -> Path:
    path = folder / "prompts.jsonl"
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def test_a_line_of_gsm8k_gives_the_question_and_the_number_after_the_hashes(tmp_path: Path) -> None:
    read = read_prompts(write(tmp_path, GSM8K))
    assert (read.prompt_key, read.label_key) == ("question", "answer")
    assert (read.questions[0].prompt, read.questions[0].label) == ("How much?", "1000")


@pytest.mark.parametrize(
    ("row", "keys", "label"),
    [
        ({"problem": "p", "ground_truth": "5"}, ("problem", "ground_truth"), "5"),
        ({"prompt": "p", "label": 7}, ("prompt", "label"), "7"),
        ({"prompt": "p", "label": 0.5}, ("prompt", "label"), "0.5"),
        ({"prompt": "p", "label": ["a", "b"]}, ("prompt", "label"), ["a", "b"]),
        (VERL, ("prompt", "reward_model.ground_truth"), "\\frac{3}{7}"),
        ({"question": "p"}, ("question", None), None),
    ],
)
def test_keys_are_found_in_the_first_line(
    row: dict[str, Any], keys: tuple[str, str | None], label: Any, tmp_path: Path
) -> None:
    read = read_prompts(write(tmp_path, row))
    assert (read.prompt_key, read.label_key, read.questions[0].label) == (*keys, label)


def test_given_keys_win_and_may_be_dotted(tmp_path: Path) -> None:
    row = {"question": "no", "answer": "no", "deep": {"text": "yes", "solution": {"final": "12"}}}
    read = read_prompts(write(tmp_path, row), "deep.text", "deep.solution.final")
    assert (read.questions[0].prompt, read.questions[0].label) == ("yes", "12")


def test_a_key_with_a_dot_in_its_name_is_found(tmp_path: Path) -> None:
    assert read_prompts(write(tmp_path, {"a.b": "yes"}), "a.b").questions[0].prompt == "yes"


@pytest.mark.parametrize(
    ("label", "answer"),
    [
        ("#### 18", "18"),
        ("a #### b #### 1,234,567", "1234567"),
        ("(1,2)", "(1,2)"),
        ("  x ", "x"),
        ("1,000.5", "1000.5"),
    ],
)
def test_the_final_answer_follows_the_last_hashes_without_commas(label: str, answer: str) -> None:
    assert final_answer(label) == answer


def test_a_list_is_messages_and_can_be_sent_as_plain_text(tmp_path: Path) -> None:
    read = read_prompts(write(tmp_path, VERL))
    (chat,) = read.groups(1, params={}, as_text=False)
    (text,) = read.groups(1, params={}, as_text=True)
    assert (chat.messages, chat.prompt) == (VERL["prompt"], None)
    assert (text.messages, text.prompt) == (None, "Be brief.\n\nHow much?")


def test_messages_that_are_held_as_a_string_are_messages(tmp_path: Path) -> None:
    read = read_prompts(write(tmp_path, {"messages": json.dumps(VERL["prompt"])}))
    assert read.questions[0].prompt == VERL["prompt"]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "not JSON"),
        ("[1]", "not a JSON object but list"),
        ('{"answer": "1"}', "lacks question"),
        ('{"question": "q"}', "lacks answer"),
        ('{"question": " ", "answer": "1"}', "question is empty"),
        ('{"question": 5, "answer": "1"}', "question is int"),
        ('{"question": [], "answer": "1"}', "list of messages"),
        ('{"question": ["a"], "answer": "1"}', "list of messages"),
        ('{"question": "\\ud800", "answer": "1"}', "lone surrogates"),
        ('{"question": "q", "answer": ' + "[" * 100_000, "recursion"),
    ],
)
def test_a_bad_line_is_told_with_its_number_and_the_others_go_on(line: str, reason: str, tmp_path: Path) -> None:
    read = read_prompts(write(tmp_path, GSM8K, "", line, GSM8K))
    assert [question.line for question in read.questions] == [1, 4]
    (bad,) = read.bad
    assert bad.line == 3
    assert reason in bad.reason


def test_bytes_that_are_no_utf8_are_a_bad_line(tmp_path: Path) -> None:
    path = write(tmp_path, GSM8K)
    path.write_bytes(path.read_bytes() + b'\n{"question": "\xff", "answer": "1"}\n')
    assert [bad.line for bad in read_prompts(path).bad] == [2]


def test_a_line_that_is_too_long_is_not_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompts, "MAX_BYTES", 200)
    read = read_prompts(write(tmp_path, GSM8K, '{"question": "' + "x" * 300))
    assert "at most 200" in read.bad[0].reason


def test_reading_stops_when_there_are_enough(tmp_path: Path) -> None:
    assert len(read_prompts(write(tmp_path, GSM8K, GSM8K, "{"), most=2).questions) == 2


@pytest.mark.parametrize(
    ("rows", "key", "sentence"),
    [
        ([], None, "is empty"),
        (["{"], None, "none of the 1 lines"),
        ([{"text": "q"}], None, "name the key with --prompt-key (there is text)"),
        ([GSM8K], "nothing", "lacks nothing"),
    ],
)
def test_a_file_without_a_usable_line_names_the_option(
    rows: list[dict[str, Any] | str], key: str | None, sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(PromptsUnusable, match=r"^--prompts: ") as raised:
        read_prompts(write(tmp_path, *rows), key)
    assert sentence in str(raised.value)


def test_a_file_that_is_not_there_names_the_option(tmp_path: Path) -> None:
    with pytest.raises(PromptsUnusable, match=r"--prompts: can't read .*nothing: No such file"):
        read_prompts(tmp_path / "nothing")


def test_groups_go_round_and_their_ids_tell_epoch_and_line(tmp_path: Path) -> None:
    read = read_prompts(write(tmp_path, GSM8K, "", GSM8K))
    groups = list(read.groups(5, params={"max_new_tokens": 9}, as_text=False))
    assert [group.id for group in groups][1:4] == ["epoch-1-line-3", "epoch-2-line-1", "epoch-2-line-3"]
    assert groups[4].metadata == {"epoch": 3, "line": 1}
    assert (groups[0].label, groups[0].sampling_params) == ("1000", {"max_new_tokens": 9})


def test_answers_for_simulated_engines_are_found_by_the_text_that_is_sent(tmp_path: Path) -> None:
    read_prompts(write(tmp_path, VERL)).write_answers(tmp_path / "answers.jsonl")
    row = json.loads((tmp_path / "answers.jsonl").read_text())
    assert row == {"question": "Be brief.\n\nHow much?", "answer": "\\frac{3}{7}"}
