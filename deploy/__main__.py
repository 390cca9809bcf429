"""`python -m deploy COMMAND [OPTION ...]`. Each command imports what it needs only when it is asked for."""

import importlib
import sys
from collections.abc import Sequence

PEOPLE = "deploy.commands.cli"
COMMANDS = {
    "local": ("deploy.local.cli", "the whole fleet on this machine: broker, engines, workers and a trainer"),
    "simulator": ("deploy.simulator.cli", "one simulated SGLang engine"),
    "operator": ("deploy.operator.cli", "in a cluster: evicts, drains, scales, restarts, and says what is wrong"),
    "status": (PEOPLE, "in a cluster: the pools, and why each pod is as it is"),
    "scale": (PEOPLE, "in a cluster: another number of workers, drain-first"),
    "drain": (PEOPLE, "in a cluster: a worker finishes what it holds and claims no more"),
    "undrain": (PEOPLE, "in a cluster: takes that back"),
    "restart": (PEOPLE, "in a cluster: replaces the pods, drain-first and a few at a time"),
    "logs": (PEOPLE, "in a cluster: the log of a worker or its engine"),
    "doctor": (PEOPLE, "in a cluster: what is wrong, and what to do"),
}


def main(argv: Sequence[str]) -> int:
    """Exit code of the command; 2 where there is none of that name."""
    if not argv or argv[0] in ("-h", "--help"):
        print(_usage())
        return 0 if argv else 2
    if argv[0] not in COMMANDS:
        print(f"deploy: there is no command {argv[0]!r}: use {' or '.join(COMMANDS)}", file=sys.stderr)
        return 2
    name = COMMANDS[argv[0]][0]
    module = importlib.import_module(name)
    return module.main(argv if name == PEOPLE else argv[1:])


def _usage() -> str:
    lines = [f"  {name:12} {text}" for name, (_, text) in COMMANDS.items()]
    return "\n".join(["usage: python -m deploy COMMAND [OPTION ...]", "", *lines])


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:  # while a command was being imported
        sys.exit(130)
