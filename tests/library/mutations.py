"""Broken copies of the scripts' checks, and the tests that must notice: mutations.txt has the table.

Invariants: a mutation's text occurs exactly once in its script, so that the table can't outlive the scripts; what a
mutation breaks is named by one test of a run on fakeredis.
"""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from rolloutfleet import lua

TABLE = Path(__file__).with_name("mutations.txt")


@dataclass(frozen=True, slots=True)
class Mutation:
    """`script`: a path under scripts/, without its ending. `caught_by`: `module.test` or `module.test[argument]`."""

    script: str
    breaks: str
    text: str
    replacement: str
    caught_by: str

    @property
    def name(self) -> str:
        return f"{self.script}: {self.breaks}"

    @property
    def path(self) -> str:
        return f"{self.script}.lua"

    def source(self, path: str) -> str:
        """The text of a script or part, with this one check broken."""
        whole = original(path)
        return whole.replace(self.text, self.replacement) if path == self.path else whole


original = lua.source


def read_table() -> list[Mutation]:
    lines = [line for line in TABLE.read_text().splitlines() if not line.startswith("#")]
    blocks = "\n".join(lines).strip().split("\n\n")
    return [read_block(block.splitlines()) for block in blocks]


def read_block(lines: list[str]) -> Mutation:
    script, _, breaks = lines[0].partition(": ")

    def marked(mark: str) -> str:
        return "\n".join(line[2:] for line in lines[1:] if line.startswith(mark))

    return Mutation(script, breaks, marked("-"), marked("+"), marked("!"))


@contextmanager
def broken(mutation: Mutation, patch: pytest.MonkeyPatch) -> Generator[None]:
    """The library loads the broken copy."""
    with patch.context() as within:
        within.setattr(lua, "source", mutation.source)
        lua.scripts.cache_clear()
        try:
            yield
        finally:
            lua.scripts.cache_clear()
