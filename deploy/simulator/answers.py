"""What a simulated answer says: readable text that ends in a number, right with a settable probability.

- Prompts differ in difficulty: of the samples of one prompt all are often right, or all wrong, as in real runs; the
  mean over prompts is the accuracy that was asked for.
- Whether the k-th sample of a prompt is right depends on nothing but seed, prompt and k.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from statistics import NormalDist
from typing import Any, cast

from deploy.simulator.lengths import deviate, uniform

_NORMAL = NormalDist()
# Spread of difficulty between prompts in probits: a good part of the groups of 8 is then all right or all wrong, as in
# the published history of a GRPO run.
_DIFFICULTY_SPREAD = 1.5
_FINAL_ANSWER = "#### "
_SENTENCES = (
    "Let me work through this step by step.",
    "First I write down what is given.",
    "Then I name what is asked for.",
    "The quantities have to be brought to one unit.",
    "Now I put the numbers together.",
    "Let me check that against the question.",
    "The parts add up as they should.",
    "One more look at the last step.",
)
_TOKENS_PER_SENTENCE = 10
_MOST_SENTENCES = 64


class Answers:
    """The right answers that a simulated engine knows, by the text of the prompt."""

    def __init__(self, known: Mapping[str, str], accuracy: float, seed: int) -> None:
        self._known = known
        self._accuracy = accuracy
        self._seed = seed

    @classmethod
    def read(cls, path: Path, prompt_key: str, label_key: str, accuracy: float, seed: int) -> "Answers":
        """From JSON lines. Raises ValueError that names the line which lacks a key or isn't an object."""
        known: dict[str, str] = {}
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    prompt, label = _read_row(line, prompt_key, label_key, f"{path}:{number}")
                    known[prompt] = label
        return cls(known, accuracy, seed)

    @property
    def knows_any(self) -> bool:
        return bool(self._known)

    def find(self, text: str) -> str | None:
        """The right answer to a prompt that is, or that holds as a paragraph, a known question."""
        answer = self._known.get(text.strip())
        if answer is not None or not self._known:
            return answer
        pieces = (*re.split(r"\n\s*\n", text), *text.split("\n"))
        return next((self._known[piece.strip()] for piece in pieces if piece.strip() in self._known), None)

    def is_right(self, prompt: bytes, sample: int) -> bool:
        return uniform(self._seed, b"right", prompt, b"%d" % sample) < self.chance(prompt)

    def chance(self, prompt: bytes) -> float:
        """The probability that a sample of this prompt is right: Phi of a normal, whose mean over prompts is the
        accuracy."""
        if self._accuracy in (0, 1):
            return self._accuracy
        centre = _NORMAL.inv_cdf(self._accuracy) * (1 + _DIFFICULTY_SPREAD**2) ** 0.5
        return _NORMAL.cdf(centre + _DIFFICULTY_SPREAD * deviate(self._seed, b"difficulty", prompt))

    def write(self, prompt: bytes, sample: int, right: str | None, length: int) -> str:
        """The text of an answer of `length` tokens; `right` is the right answer where it is known."""
        guess = str(int(uniform(self._seed, b"guess", prompt, b"%d" % sample) * 1000))
        if right is not None:
            guess = right if self.is_right(prompt, sample) else _another(guess, right)
        count = min(max(1, length // _TOKENS_PER_SENTENCE), _MOST_SENTENCES)
        thought = " ".join(_SENTENCES[at % len(_SENTENCES)] for at in range(count))
        return f"{thought}\n{_FINAL_ANSWER}{guess}"


def _another(guess: str, right: str) -> str:
    return guess if guess != right else f"{guess}1"


def _read_row(line: str, prompt_key: str, label_key: str, place: str) -> tuple[str, str]:
    try:
        row: Any = json.loads(line)
    except ValueError as error:
        raise ValueError(f"{place}: not JSON: {error}") from error
    if not isinstance(row, dict):
        raise ValueError(f"{place}: not a JSON object")
    fields = cast(dict[str, Any], row)
    if prompt_key not in fields or label_key not in fields:
        raise ValueError(f"{place}: lacks {prompt_key} or {label_key}")
    return str(fields[prompt_key]).strip(), final_answer(str(fields[label_key]))


def final_answer(label: str) -> str:
    """What stands after the last `####`, without commas between digits, or the whole label."""
    return re.sub(r"(?<=\d),(?=\d)", "", label.rpartition("####")[2].strip())
