"""Reads a JSONL of questions into prompt groups.

Invariants: a bad line is told with its number and reason, and stops nothing; the id of a group is its epoch and line,
so that submitting a file again into the same run repeats nothing.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from rolloutfleet.errors import InvalidGroup
from rolloutfleet.messages import PromptGroup
from rolloutfleet.settings import RunConfig

PROMPT_KEYS = ("question", "prompt", "problem", "messages")
LABEL_KEYS = ("answer", "label", "ground_truth", "reward_model.ground_truth", "expected_answer")
MAX_BYTES = RunConfig().max_bytes  # what a worker would refuse is told here, with its line

type Messages = list[dict[str, Any]]


class PromptsUnusable(ValueError):
    """The file can't be read, or no line of it can be used; the message names the option and the mend."""


@dataclass(frozen=True, slots=True)
class BadLine:
    line: int
    reason: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Question:
    """One line of the file. `prompt` is text or chat messages; `label` None: no answer is known."""

    line: int
    prompt: str | Messages
    label: Any = None

    @property
    def text(self) -> str:
        """The prompt as plain text: what messages say, a paragraph each."""
        if isinstance(self.prompt, str):
            return self.prompt
        return "\n\n".join(_said(message.get("content")) for message in self.prompt)


@dataclass(frozen=True, slots=True)
class PromptFile:
    """What was read. `label_key` None: the lines have no answers, so samples can't be scored."""

    questions: Sequence[Question]
    bad: Sequence[BadLine]
    prompt_key: str
    label_key: str | None

    def groups(self, count: int, *, params: Mapping[str, Any], as_text: bool) -> Iterator[PromptGroup]:
        """`count` prompt groups, going round as often as it takes. `as_text`: messages are sent as plain text."""
        for number in range(count):
            epoch, at = divmod(number, len(self.questions))
            question = self.questions[at]
            prompt = question.text if as_text else question.prompt
            fields = {"prompt": prompt} if isinstance(prompt, str) else {"messages": prompt}
            metadata = {"epoch": epoch + 1, "line": question.line}
            yield PromptGroup.make(
                {"id": f"epoch-{epoch + 1}-line-{question.line}", **fields, "label": question.label}
                | {"sampling_params": dict(params), "metadata": metadata}
            )

    def write_answers(self, path: Path) -> None:
        """JSON lines {"question", "answer"} for simulated engines, which look a prompt's text up in them."""
        with path.open("w", encoding="utf-8") as file:
            for question in self.questions:
                if isinstance(question.label, str):
                    file.write(json.dumps({"question": question.text, "answer": question.label}) + "\n")


def read_prompts(
    path: Path, prompt_key: str | None = None, label_key: str | None = None, most: int | None = None
) -> PromptFile:
    """Reads at most `most` good lines. Keys may be dotted; by default the first line tells them.

    Errors: PromptsUnusable.
    """
    try:
        with path.open("rb") as file:
            return _Reader(prompt_key, label_key).read(file, path, most)
    except OSError as error:
        raise PromptsUnusable(f"--prompts: can't read {path}: {error.strerror}") from error


class _Reader:
    """Reads one file. The keys that weren't given are found in the first line that is an object."""

    def __init__(self, prompt_key: str | None, label_key: str | None) -> None:
        self._prompt_key = prompt_key
        self._label_key = label_key
        self._has_keys = False

    def read(self, file: Iterator[bytes], path: Path, most: int | None) -> PromptFile:
        questions: list[Question] = []
        bad: list[BadLine] = []
        for number, line in enumerate(file, 1):
            if most is not None and len(questions) >= most:
                break
            if not line.strip():
                continue
            try:
                questions.append(self._question(number, line))
            except (InvalidGroup, RecursionError, ValueError) as error:
                bad.append(BadLine(number, _short(error)))
        if not questions:
            raise PromptsUnusable(_unusable(path, bad))
        return PromptFile(questions, bad, self._prompt_key or "", self._label_key)

    def _question(self, number: int, line: bytes) -> Question:
        if len(line) > MAX_BYTES:
            raise ValueError(f"{len(line)} bytes, at most {MAX_BYTES} are taken")
        row = _object(line)
        self._find_keys(row)
        prompt = _prompt(_find(row, self._prompt_key or ""), self._prompt_key or "")
        label = None if self._label_key is None else _label(_find(row, self._label_key), self._label_key)
        question = Question(number, prompt, label)
        field = "prompt" if isinstance(prompt, str) else "messages"
        PromptGroup.make({"id": "x", field: prompt, "label": label})
        return question

    def _find_keys(self, row: Mapping[str, Any]) -> None:
        if self._has_keys:
            return
        if self._prompt_key is None:
            self._prompt_key = next((key for key in PROMPT_KEYS if _find(row, key) is not None), None)
            if self._prompt_key is None:
                known = ", ".join(PROMPT_KEYS)
                raise ValueError(f"has none of {known}: name the key with --prompt-key (there is {', '.join(row)})")
        if self._label_key is None:
            self._label_key = next((key for key in LABEL_KEYS if _find(row, key) is not None), None)
        self._has_keys = True


def final_answer(label: str) -> str:
    """What stands after the last `####` (GSM8K), without commas between digits; otherwise the whole label."""
    return re.sub(r"(?<=\d),(?=\d{3})", "", label.rpartition("####")[2].strip())


def _object(line: bytes) -> dict[str, Any]:
    try:
        row: Any = json.loads(line)
    except UnicodeDecodeError as error:
        raise ValueError("not UTF-8") from error
    except ValueError as error:
        raise ValueError(f"not JSON: {error}") from error
    if not isinstance(row, dict):
        raise ValueError(f"not a JSON object but {type(row).__name__}")
    return cast(dict[str, Any], row)


def _find(row: Mapping[str, Any], key: str) -> Any:
    """The value at a key, or at a dotted path; None where there is none."""
    if key in row:
        return row[key]
    found: Any = row
    for part in key.split("."):
        if not isinstance(found, dict):
            return None
        found = cast(dict[str, Any], found).get(part)
    return found


def _prompt(value: Any, key: str) -> str | Messages:
    if value is None:
        raise ValueError(f"lacks {key}")
    if isinstance(value, str) and value.lstrip().startswith("[{") and key.endswith("messages"):
        value = json.loads(value)  # some data sets hold the list as a string
    if isinstance(value, str):
        if not value.strip():
            raise ValueError(f"{key} is empty")
        return value
    if not isinstance(value, list):
        raise ValueError(f"{key} is {type(value).__name__}: it must be text, or a list of messages")
    messages = cast(list[Any], value)
    if not messages or not all(isinstance(message, dict) for message in messages):
        raise ValueError(f"{key} must be a list of messages, each an object with role and content")
    return cast(Messages, messages)


def _label(value: Any, key: str) -> Any:
    if value is None or value == "":
        raise ValueError(f"lacks {key}")
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    return final_answer(value) if isinstance(value, str) else value


def _said(content: Any) -> str:
    if isinstance(content, list):  # parts of a multimodal message
        parts = [cast(dict[str, Any], part) for part in cast(list[Any], content) if isinstance(part, dict)]
        return " ".join(str(part.get("text", "")) for part in parts)
    return "" if content is None else str(content)


def _short(error: Exception) -> str:
    return (str(error) or type(error).__name__)[:200]


def _unusable(path: Path, bad: Sequence[BadLine]) -> str:
    if not bad:
        return f"--prompts: {path} is empty: give a file with one JSON object a line"
    return f"--prompts: none of the {len(bad)} lines of {path} can be used; {bad[0]}"
