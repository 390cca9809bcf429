"""What a measurement found, as rows of one table and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

_SIGNS = {"least": ">=", "most": "<="}


@dataclass(frozen=True, slots=True)
class Target:
    """A bound on a number; `near` allows `limit` +- `within`."""

    kind: Literal["least", "most", "near"]
    limit: float
    within: float = 0.0

    def holds(self, measured: float) -> bool:
        if self.kind == "near":
            return abs(measured - self.limit) <= self.within
        return measured >= self.limit if self.kind == "least" else measured <= self.limit

    def __str__(self) -> str:
        if self.kind == "near":
            return f"{self.limit:.3f} +- {self.within:g}"
        return f"{_SIGNS[self.kind]} {number(self.limit)}"


def at_least(limit: float) -> Target:
    return Target("least", limit)


def at_most(limit: float) -> Target:
    return Target("most", limit)


def near(limit: float, within: float) -> Target:
    return Target("near", limit, within)


@dataclass(frozen=True, slots=True)
class Row:
    """One number. Without a target it is there to read the others by."""

    what: str
    measured: float
    unit: str = ""
    target: Target | None = None

    @property
    def verdict(self) -> str:
        if self.target is None:
            return ""
        return "yes" if self.target.holds(self.measured) else "no"

    def cells(self) -> tuple[str, str, str, str]:
        measured = f"{number(self.measured)} {self.unit}".rstrip()
        return self.what, measured, str(self.target or ""), self.verdict

    def to_json(self) -> dict[str, Any]:
        target = None if self.target is None else str(self.target)
        holds = None if self.target is None else self.target.holds(self.measured)
        return {"what": self.what, "measured": self.measured, "unit": self.unit, "target": target, "holds": holds}


@dataclass(frozen=True, slots=True)
class Table:
    """The rows of one measurement, and the sentences that one needs to read them."""

    bench: str
    rows: Sequence[Row]
    facts: Sequence[str] = field(default_factory=tuple)

    def text(self) -> str:
        lines = [("what", "measured", "target", "holds"), *(row.cells() for row in self.rows)]
        widths = [max(len(line[column]) for line in lines) for column in range(4)]
        rule = "  ".join("-" * width for width in widths)
        body = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines]
        return "\n".join([self.bench, body[0], rule, *body[1:], *(f"* {fact}" for fact in self.facts)])

    def to_json(self) -> dict[str, Any]:
        return {"bench": self.bench, "rows": [row.to_json() for row in self.rows], "facts": list(self.facts)}


def number(value: float) -> str:
    """Four digits that matter."""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}" if abs(value) >= 1 else f"{value:.3f}"


def write_json(path: Path, tables: Sequence[Table]) -> None:
    path.write_text(json.dumps([table.to_json() for table in tables], indent=2) + "\n")
