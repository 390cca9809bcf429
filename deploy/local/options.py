"""The options of the main job: one for each field of LocalSettings, and the faults of the simulated engines."""

import argparse
import os
from collections.abc import Sequence
from types import NoneType
from typing import Any, get_args

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from deploy.local.settings import LocalSettings
from deploy.simulator.faults import RATE, RATE_NAMES

FAULTS = {
    **{name: f"share of requests: {name.removesuffix(RATE).replace('_', ' ')}" for name in RATE_NAMES},
    "slow_factor": "divides the decode speed",
    "die_after": "each engine is killed at its k-th request",
}

_FORMS = {
    "engine": "an address like http://127.0.0.1:30000",
    "redis_url": "an address like redis://127.0.0.1:6379",
    "run": "letters, digits, dots, underscores and hyphens",
}


class WrongOption(ValueError):
    """An option can't be used; the message is one sentence with its name and the mend."""


def read_settings(argv: Sequence[str]) -> LocalSettings:
    """Errors: WrongOption. Exits with 2 for an option that doesn't exist, with 0 for --help."""
    given = vars(parser().parse_args(argv))
    faults = {name: given.pop(name) for name in FAULTS if name in given}
    if "redis_url" not in given and os.environ.get("REDIS_URL"):
        given["redis_url"] = os.environ["REDIS_URL"]
    try:
        return LocalSettings(**given, faults=faults)
    except ValidationError as error:
        raise WrongOption(explain(error)) from error


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m deploy local",
        usage="%(prog)s [OPTION ...]",
        description="A whole fleet on this machine: broker, engines, workers, and a trainer that consumes.",
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
    )
    for name, field in LocalSettings.model_fields.items():
        if name != "faults":
            _add(parser, name, field)
    group = parser.add_argument_group("faults of the simulated engines")
    for name, text in FAULTS.items():
        group.add_argument(_option(name), metavar=_metavar(name), help=text)
    return parser


def explain(error: ValidationError) -> str:
    """What is wrong first, in one sentence with the option's name."""
    problem = error.errors(include_url=False)[0]
    message = _mend(problem["type"], problem["msg"], str(problem["loc"][0]) if problem["loc"] else "")
    if not problem["loc"]:  # a check across options, which names them itself
        return message
    name, *inside = problem["loc"]
    if name == "faults":
        return f"{_option(str(inside[0]))}: {message}" if inside else _named_fault(message)
    value = "" if name == "redis_url" else f" (it is {problem['input']!r})"  # an address may carry a password
    return f"{_option(str(name))}: {message}{value}"


def _mend(kind: str, message: str, name: str) -> str:
    if kind == "string_pattern_mismatch":
        return f"must be {_FORMS[name]}"
    wanted = message.removeprefix("Value error, ").replace("Input should be", "must be").partition(", unable to")[0]
    return f'{wanted}, or "auto"' if name == "sample_concurrency" else wanted


def _named_fault(message: str) -> str:
    name, _, rest = message.partition(" ")
    return f"{_option(name)} {rest}" if name in FAULTS else message


def _add(parser: argparse.ArgumentParser, name: str, field: FieldInfo) -> None:
    option, text = _option(name), (field.description or "").replace("%", "%%")
    if field.annotation is bool:
        parser.add_argument(option, action="store_true", help=text)
        return
    is_list = field.default == () and NoneType not in get_args(field.annotation)
    shown = text if field.default in (None, ()) else f"{text} (default: {_default(field)})"
    parser.add_argument(option, action="append" if is_list else "store", metavar=_metavar(name), help=shown)


def _default(field: FieldInfo) -> Any:
    value = field.default
    return f"{value:g}" if isinstance(value, float) else getattr(value, "name", value)


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


def _metavar(name: str) -> str:
    return name.rpartition("_")[2].upper()
