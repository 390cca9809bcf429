"""What tests measure: printed, and kept as JSON for people. Machines differ, so it is hardly judged."""

import json
import statistics
from collections.abc import Sequence
from pathlib import Path

OUT = Path(__file__).parents[2] / "out" / "cluster"


def note(name: str, seconds: Sequence[float]) -> None:
    found = {
        "median": statistics.median(seconds),
        "longest": max(seconds),
        "each": [round(each, 3) for each in seconds],
    }
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / f"{name}.json").write_text(json.dumps(found, indent=2) + "\n")
    print(f"{name}: median {found['median']:.2f} s, longest {found['longest']:.2f} s, of {len(seconds)}")
