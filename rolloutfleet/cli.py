"""The command line `rolloutfleet`: submit and consume files, look at a run, pause it, bring dead letters back.

Each command needs a Redis URL and a run, by option or from REDIS_URL and ROLLOUTFLEET_RUN. Exit codes: 0 done, 1 the
command says what failed, 2 wrong usage or setting, 130 Ctrl-C.
"""

import argparse
import asyncio
import re
import sys
from collections.abc import Sequence

from pydantic import ValidationError
from redis.exceptions import RedisError

from rolloutfleet import commands
from rolloutfleet.errors import RolloutFleetError
from rolloutfleet.settings import BrokerSettings, RunConfig, explain


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command."""
    parser = make_parser()
    options = parser.parse_args(argv)
    try:
        settings = _settings(options)
        return asyncio.run(options.command(settings, options))
    except ValidationError as error:
        return _say(explain(error), 2)
    except commands.UsageError as error:
        return _say(str(error), 2)
    except (RolloutFleetError, RedisError, OSError, ValueError) as error:
        return _say(str(error), 1)
    except KeyboardInterrupt:
        return 130


def make_parser() -> argparse.ArgumentParser:
    """All commands and their options."""
    parser = argparse.ArgumentParser(prog="rolloutfleet", description="Feed, watch and steer a run.")
    _add_place(parser, None)
    add = _with_place(parser.add_subparsers(required=True, metavar="COMMAND").add_parser)
    _add_flow(add)
    _add_looks(add)
    _add_dead(add)
    return parser


def _add_place(parser: argparse.ArgumentParser, default: str | None) -> None:
    parser.add_argument("--redis-url", default=default, help="Redis or Valkey (REDIS_URL)")
    parser.add_argument("--run", default=default, help="name of the run (ROLLOUTFLEET_RUN)")


def _with_place(add: "commands.AddParser") -> "commands.AddParser":
    """Takes the options that all commands share after the command as well as before it."""

    def add_command(name: str, *, help: str) -> argparse.ArgumentParser:
        parser = add(name, help=help)
        _add_place(parser, argparse.SUPPRESS)
        return parser

    return add_command


def _add_flow(add: "commands.AddParser") -> None:
    submit = add("submit", help="put the prompt groups of a JSONL file in line")
    submit.add_argument("file", help="one JSON object a line; - reads standard input")
    submit.add_argument("--max-queued", type=_count, help="wait while so many groups are queued")
    submit.set_defaults(command=commands.submit)
    consume = add("consume", help="take completed groups and write them as JSONL")
    consume.add_argument("--output", default="-", help="file to append to (default: standard output)")
    consume.add_argument("--groups", type=_count, help="end after so many (default: go on until Ctrl-C)")
    consume.add_argument("--seconds", type=float, help="end when none came for so long")
    consume.add_argument("--consumer", default="consume", help="name of this consumer")
    consume.set_defaults(command=commands.consume)
    configure = add("configure", help="make a run, or change its settings")
    for name, field in RunConfig.model_fields.items():
        configure.add_argument(f"--{name.replace('_', '-')}", help=(field.description or "").replace("%", "%%"))
    configure.add_argument("--only-missing", action="store_true", help="change nothing that the run has already")
    configure.set_defaults(command=commands.configure)


def _add_looks(add: "commands.AddParser") -> None:
    for name, does, command in (
        ("status", "the window, the gate and its reason, the queues, the workers", commands.status),
        ("doctor", "look for what will go wrong: server, persistence, window, engines", commands.doctor),
    ):
        parser = add(name, help=does)
        parser.add_argument("--json", action="store_true", help="print data")
        parser.set_defaults(command=command)
        if name == "doctor":
            parser.add_argument("--batch", type=_count, help="groups that the trainer takes before it acks")
    top = add("top", help="status, live")
    top.add_argument("--every", type=float, default=1, help="seconds between looks")
    top.add_argument("--stuck-seconds", type=float, default=600, help="without a completion for so long, say why")
    top.set_defaults(command=commands.top)
    add("pause", help="claim nothing any more").set_defaults(command=commands.pause)
    add("resume", help="claim again").set_defaults(command=commands.resume)
    add("repair", help="rebuild what is derived, after the broker lost data").set_defaults(command=commands.repair_run)
    purge = add("purge", help="delete the run with all that is in it")
    purge.add_argument("--yes", action="store_true", help="do not ask")
    purge.set_defaults(command=commands.purge_run)


def _add_dead(add: "commands.AddParser") -> None:
    dead = add("dead", help="dead letters: groups that were given up")
    what = _with_place(dead.add_subparsers(required=True, metavar="WHAT").add_parser)
    listing = what("list", help="the newest, with their reasons")
    listing.add_argument("--most", type=_count, default=50)
    listing.add_argument("--json", action="store_true", help="print data")
    listing.set_defaults(command=commands.dead_list)
    show = what("show", help="one letter, whole")
    show.add_argument("entry", type=_entry, help="its entry, as in the list")
    show.add_argument("--json", action="store_true", help="print data")
    show.set_defaults(command=commands.dead_show)
    requeue = what("requeue", help="give letters another life")
    requeue.add_argument("entry", type=_entry, nargs="*", help="entries, as in the list")
    requeue.add_argument("--all", action="store_true", help="all of them")
    requeue.add_argument("--json", action="store_true", help="print data")
    requeue.set_defaults(command=commands.dead_requeue)


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no count: give a whole number of at least 1")
    return int(text)


def _entry(text: str) -> str:
    if not re.fullmatch(r"\d+-\d+", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no entry: `rolloutfleet dead list` shows them")
    return text


def _settings(options: argparse.Namespace) -> BrokerSettings:
    given = {"redis_url": options.redis_url, "run": options.run}
    return BrokerSettings(**{name: value for name, value in given.items() if value is not None})


def _say(sentence: str, code: int) -> int:
    print(f"rolloutfleet: {sentence}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
