"""values.yaml as its readers need it: each value's path, its default, and the sentence above it."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import yaml

CHART = Path(__file__).resolve().parents[2] / "helm"
_KEY = re.compile(r"( *)([A-Za-z][\w-]*):(.*)")


@dataclass(frozen=True, slots=True)
class Value:
    """A value that a user sets. `path` is dotted; `sentence` is the comment above it."""

    path: str
    default: Any
    sentence: str


def read_values() -> dict[str, Any]:
    return cast("dict[str, Any]", yaml.safe_load((CHART / "values.yaml").read_text()))


def described() -> list[Value]:
    """All values in the order of the file. Errors: ValueError for one without a sentence."""
    sentences = _sentences((CHART / "values.yaml").read_text())
    found = [Value(path, default, sentences.get(path, "")) for path, default in leaves(read_values(), sentences)]
    bare = [value.path for value in found if not value.sentence]
    if bare:
        raise ValueError(f"values without a sentence above them: {', '.join(bare)}")
    return found


def leaves(values: Mapping[str, Any], sentences: Mapping[str, str], above: str = "") -> Iterator[tuple[str, Any]]:
    """A map is a value of its own if it has a sentence, or nothing in it."""
    for name, value in values.items():
        path = f"{above}{name}"
        if isinstance(value, dict) and value and path not in sentences:
            yield from leaves(cast("dict[str, Any]", value), sentences, f"{path}.")
        else:
            yield path, value


def _sentences(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    above: list[tuple[int, str]] = []
    comment: list[str] = []
    for line in text.splitlines():
        if line.strip().startswith("#"):
            comment.append(line.strip().lstrip("# "))
            continue
        if key := _KEY.match(line):
            indent = len(key[1])
            above = [(depth, name) for depth, name in above if depth < indent]
            above.append((indent, key[2]))
            if comment:
                found[".".join(name for _, name in above)] = " ".join(comment)
        comment = []
    return found
