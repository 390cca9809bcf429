"""`python -m tests.model [--minutes N] [scopes...] [--mutations] [--json FILE]`: explore, and print a Markdown table.

Exits with 1 if an invariant is broken, or a mutation is missed.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from tests.model.explore import Outcome, explore
from tests.model.guards import GUARDS
from tests.model.mutations import MUTATIONS
from tests.model.scopes import SCOPES, described

Row = dict[str, Any]


def main() -> int:
    options = parse()
    end = time.monotonic() + 60 * options.minutes
    report = {"scopes": explore_scopes(options.scopes or list(SCOPES), end)}
    if options.mutations:
        report["mutations"] = try_mutations()
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    is_clean = not any(row["broken"] for row in report["scopes"])
    is_caught = all(row["is_caught"] for row in report.get("mutations", []))
    return 0 if is_clean and is_caught else 1


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.model", description="Explore the broker's protocol.")
    parser.add_argument("scopes", nargs="*", metavar="scope", help=f"one of: {', '.join(SCOPES)} (default: all)")
    parser.add_argument("--minutes", type=float, default=8, help="bound on the exploration altogether (default: 8)")
    parser.add_argument("--mutations", action="store_true", help="take each guard away, too, and say what breaks")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write both tables as JSON")
    options = parser.parse_args()
    if unknown := [name for name in options.scopes if name not in SCOPES]:
        parser.error(f"no such scope: {', '.join(unknown)}")
    return options


def explore_scopes(names: list[str], end: float) -> list[Row]:
    """What a scope leaves of its share of the time is shared by those after it."""
    print("| scope | states | moves | seconds | exhausted | broken |\n|---|--:|--:|--:|---|---|")
    rows: list[Row] = []
    for number, name in enumerate(names):
        share = max(0.0, end - time.monotonic()) / (len(names) - number)
        outcome = explore(SCOPES[name], seconds=share)
        rows.append(scope_row(name, outcome))
        print_row(rows[-1])
        print_traces(outcome)
    return rows


def scope_row(name: str, outcome: Outcome) -> Row:
    return {
        "scope": name,
        "states": outcome.states,
        "moves": outcome.moves,
        "seconds": round(outcome.seconds, 1),
        "exhausted": "yes" if outcome.is_exhausted else "no",
        "broken": ", ".join(outcome.broken),
    }


def print_row(row: Row) -> None:
    print("| " + " | ".join(str(value) for value in row.values()) + " |", flush=True)


def print_traces(outcome: Outcome) -> None:
    for broken, labels in outcome.broken.items():
        print(f"\n{broken}:", *labels, sep="\n    ", flush=True)


def try_mutations() -> list[Row]:
    print("\n| guard removed | what it says | breaks | scope | states | moves |\n|---|---|---|---|--:|--:|")
    rows: list[Row] = []
    for mutation in MUTATIONS:
        outcome = explore(mutation.scope, off=(mutation.off,), seconds=60, stop_at=mutation.breaks)
        trace = outcome.broken.get(mutation.breaks, [])
        shown = {
            "guard": mutation.off,
            "says": GUARDS[mutation.off],
            "breaks": mutation.breaks if mutation.breaks in outcome.broken else "MISSED",
            "scope": described(mutation.scope),
            "states": outcome.states,
            "length": len(trace),
        }
        print_row(shown)
        rows.append({**shown, "is_caught": mutation.breaks in outcome.broken, "trace": trace})
    return rows


if __name__ == "__main__":
    sys.exit(main())
