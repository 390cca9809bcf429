"""`python -m bench [NAME ...] [--quick] [--json FILE]`: runs measurements, prints their tables, exits with 0."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from bench import chart, codec, makespan, partials, queue, roundtrips, slots, throughput, viewers, wake
from bench.place import Place
from bench.rows import Table, write_json
from deploy.embedded import EmbeddedServer

type Measure = Callable[[Place], Awaitable[Table]]

MEASURES: Mapping[str, Measure] = {
    "slots": slots.measure,
    "makespan": makespan.measure,
    "throughput": throughput.measure,
    "roundtrips": roundtrips.measure,
    "wake": wake.measure,
    "codec": codec.measure,
    "partials": partials.measure,
    "queue": queue.measure,
    "viewers": viewers.measure,
    "chart": chart.measure,
}


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    tables: list[Table] = []
    for name in options.names or MEASURES:
        start = time.monotonic()
        with EmbeddedServer() as server:
            table = asyncio.run(_measure(MEASURES[name], Place(server.url, options.quick)))
        tables.append(table)
        print(f"{table.text()}\n* {time.monotonic() - start:.0f} s\n", flush=True)
        if options.json:
            write_json(options.json, tables)  # after each, so that an interrupt loses none
    return 0


async def _measure(measure: Measure, place: Place) -> Table:
    return await measure(place)


def _known(name: str) -> str:
    if name not in MEASURES:
        raise argparse.ArgumentTypeError(f"there is no measurement {name!r}: choose from {', '.join(MEASURES)}")
    return name


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measures what the project promises.")
    parser.add_argument("names", metavar="NAME", nargs="*", type=_known, help=", ".join(MEASURES))
    parser.add_argument("--quick", action="store_true", help="a few seconds each: shows that it runs, measures little")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all rows there")
    return parser


if __name__ == "__main__":
    sys.exit(main())
