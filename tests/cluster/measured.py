"""What tests measure: printed, and kept as JSON for people. Machines differ, so it is hardly judged."""

import json
import statistics
from collections.abc import Sequence
from pathlib import Path

OUT = Path(__file__).parents[2] / "out" / "cluster"


def note(name: str, each: Sequence[float], unit: str = "s") -> None:
    found = {
        "median": statistics.median(each),
        "most": max(each),
        "each": [round(one, 3) for one in each],
    }
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / f"{name}.json").write_text(json.dumps(found, indent=2) + "\n")
    print(f"{name}: median {found['median']:.2f} {unit}, most {found['most']:.2f} {unit}, of {len(each)}")
