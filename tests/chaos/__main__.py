"""`python -m tests.chaos`: a chaos run, a table at its end. Exit code 1 if anything was lost, doubled or left."""

import argparse
import asyncio
import json
import sys
from collections import Counter
from dataclasses import fields
from pathlib import Path

from tests.chaos.run import run_chaos
from tests.chaos.settings import LONG, ChaosSettings
from tests.chaos.verdict import Verdict


def main() -> int:
    settings = _read()
    verdict, tails = asyncio.run(run_chaos(settings))
    if settings.json:
        settings.json.write_text(json.dumps(verdict.to_json(), indent=2))
    print(tails + "\n".join(_table(verdict)))
    return 0 if verdict.holds else 1


def _read() -> ChaosSettings:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    for field in fields(ChaosSettings):
        default: object = getattr(LONG, field.name)
        kind: type[object] = Path if field.name == "json" else type(default)
        parser.add_argument(f"--{field.name.replace('_', '-')}", type=kind, default=default, help=f"default {default}")
    return ChaosSettings(**vars(parser.parse_args()))


def _table(verdict: Verdict) -> list[str]:
    shown = verdict.to_json()
    rows = [f"{name:20} {shown[name]}" for name in shown if name != "done_to"]
    done = Counter(what.split(" worker-")[0].split(" engine-")[0] for what in verdict.done_to)
    return [*rows, *(f"{count:>4} x {what}" for what, count in sorted(done.items()))]


if __name__ == "__main__":
    sys.exit(main())
