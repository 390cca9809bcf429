"""`python -m deploy simulator`: one simulated engine as a process.

Prints one JSON line {"url", "port"} when it serves. SIGTERM drains, a second one or SIGINT ends at once, and a
deadly request kills the process as kill -9 would.
"""

import argparse
import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, cast

from deploy.simulator.faults import RATE, RATE_NAMES, Faults
from deploy.simulator.server import Simulator
from deploy.simulator.settings import SimulatorSettings

_TEXTS = {
    "host": "address to listen on",
    "port": "port to listen on; 0: a free one",
    "api_key": "clients must send `Authorization: Bearer KEY`",
    "model_path": "name of the model that it reports",
    "tokenizer_path": "path of the tokenizer that it reports; default: it has none",
    "weight_version": "version of the weights at start",
    "any_weights": "take weight updates from paths that don't exist",
    "context_length": "most tokens of prompt and answer together",
    "vocabulary": "number of token ids; an id outside kills the engine",
    "stop_token": "id of the token that ends an answer",
    "slots": "most requests that run at once",
    "max_queued_requests": "most requests that wait; default: any number",
    "speed": "tokens per second of a lone request",
    "half": "number of running requests at which each is half as fast; 0: constant speed",
    "seed": "of lengths, tokens, answers and faults",
    "mu": "mean of the log of the lengths, instead of --mean-tokens",
    "mean_tokens": "mean length before the cut at max_new_tokens",
    "sigma": "standard deviation of the log of the lengths",
    "between": "share of the lengths' variance between prompts",
    "lengths": "CSV with a column output_len (and count) to draw lengths from",
    "answers": "JSON lines with questions and answers",
    "prompt_key": "key of the question in --answers",
    "label_key": "key of the answer in --answers; what follows #### counts",
    "accuracy": "share of right answers, over all prompts",
    "health_seconds": "time that a good /health takes",
    "health_timeout_seconds": "time after which /health gives up",
    "drain_check_seconds": "how often a draining engine looks whether it is idle",
}
_TYPES: dict[str, type] = {
    **dict.fromkeys(
        ("port", "context_length", "vocabulary", "stop_token", "slots", "max_queued_requests", "seed"), int
    ),
    **dict.fromkeys(("host", "api_key", "model_path", "tokenizer_path", "weight_version"), str),
    **dict.fromkeys(("prompt_key", "label_key"), str),
    **dict.fromkeys(("lengths", "answers"), Path),
}


def main(argv: Sequence[str]) -> int:
    """Exit code 0 after a drain or SIGINT, 2 for a wrong setting."""
    options = vars(make_parser().parse_args(argv))
    try:
        settings = read_settings(options)
        return asyncio.run(_serve(settings))
    except (ValueError, OSError) as error:
        print(f"deploy simulator: {error}", file=sys.stderr)
        return 2


def read_settings(options: dict[str, Any]) -> SimulatorSettings:
    """Raises ValueError that names the setting."""
    faults = {name: options.pop(name) for name in (*RATE_NAMES, "slow_factor", "stalled", "die_after")}
    return SimulatorSettings(**options, faults=Faults().changed(faults))


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m deploy simulator", description="One simulated SGLang engine.")
    add = parser.add_argument
    for setting in fields(SimulatorSettings):
        if setting.name in _TEXTS:
            _add(add, setting.name, cast(object, setting.default), _TEXTS[setting.name])
    group = parser.add_argument_group("faults", "settable at run time by POST /simulator/faults")
    for name in RATE_NAMES:
        _add(group.add_argument, name, 0.0, f"share of requests: {name.removesuffix(RATE).replace('_', ' ')}")
    _add(group.add_argument, "slow_factor", 1.0, "divides the decode speed")
    _add(group.add_argument, "stalled", False, "makes no token at all")
    group.add_argument("--die-after", type=int, help="killed at its k-th request")
    return parser


def _add(add: Callable[..., argparse.Action], name: str, default: object, text: str) -> None:
    option = "--" + name.replace("_", "-")
    if default is False:
        add(option, action="store_true", help=text)
        return
    shown = text if default is None else f"{text} (default: %(default)s)"
    add(option, type=_TYPES.get(name, float), default=default, help=shown)


async def _serve(settings: SimulatorSettings) -> int:
    simulator = Simulator(settings, died=_kill_self)
    loop = asyncio.get_running_loop()
    asked, at_once = asyncio.Event(), asyncio.Event()
    loop.add_signal_handler(signal.SIGINT, at_once.set)
    loop.add_signal_handler(signal.SIGTERM, lambda: at_once.set() if asked.is_set() else asked.set())
    async with simulator:
        print(json.dumps({"url": simulator.url, "port": simulator.port}), flush=True)
        async with asyncio.TaskGroup() as group:
            waiter = group.create_task(_drain_when(asked, simulator))
            group.create_task(_cancel_when(at_once, waiter))
            waiter.add_done_callback(lambda _: at_once.set())
    return 0


async def _drain_when(asked: asyncio.Event, simulator: Simulator) -> None:
    await asked.wait()
    await simulator.drain()


async def _cancel_when(at_once: asyncio.Event, waiter: asyncio.Task[None]) -> None:
    await at_once.wait()
    waiter.cancel()


def _kill_self() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
