"""`python -m deploy status | scale | drain | undrain | restart | logs | doctor`: against the current kubeconfig.

Exit code 0 done; 1 the command says what failed or what is wrong; 2 for a wrong option.
"""

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable, Sequence

from deploy.commands import actions
from deploy.commands.release import NoSuchRelease, PeoplesCluster, Release, find_name, read_release, selector_of
from deploy.operator.cluster import ClusterError, KubernetesCluster, from_kubeconfig
from deploy.operator.evict import CONTAINER
from deploy.operator.reasons import ENGINE
from rolloutfleet.errors import RolloutFleetError

type Command = Callable[[PeoplesCluster, Release, argparse.Namespace], Awaitable[actions.Answer]]
type Connect = Callable[[argparse.Namespace, str], tuple[PeoplesCluster, str]]


def connect(options: argparse.Namespace, selector: str) -> tuple[PeoplesCluster, str]:
    """(the cluster of the kubeconfig, the namespace). Errors: ClusterUnavailable."""
    client, namespace = from_kubeconfig(options.context)
    chosen = options.namespace or namespace
    return KubernetesCluster(client, chosen, selector, lambda verb, resource, outcome: None), chosen


def main(argv: Sequence[str], connect: Connect = connect) -> int:
    options = make_parser().parse_args(argv)
    try:
        answer = asyncio.run(_run(options, connect))
    except (ClusterError, NoSuchRelease, actions.Impossible, RolloutFleetError) as error:
        print(f"deploy {options.name}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    for note in answer.notes:
        print(f"note: {note}", file=sys.stderr)
    print(json.dumps(answer.data, indent=2) if options.json else "\n".join(answer.lines))
    return 0 if answer.is_well else 1


async def _run(options: argparse.Namespace, connect: Connect) -> actions.Answer:
    cluster, namespace = connect(options, "")
    name = await find_name(cluster, namespace, options.release)
    cluster, _ = connect(options, selector_of(name))
    return await options.command(cluster, await read_release(cluster, namespace, name, options.redis_url), options)


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m deploy", description="A fleet in a cluster.", allow_abbrev=False)
    commands = parser.add_subparsers(required=True, metavar="COMMAND", dest="name")

    def add(name: str, does: str, command: Command, *, changes: bool = False) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=does, description=does, allow_abbrev=False)
        _add_place(made)
        if changes:
            made.add_argument("--dry-run", action="store_true", help="only say what would happen, and to which pods")
        made.set_defaults(command=command)
        return made

    add("status", "the pools, and each pod with the reason that is to be said of it", _status)
    scale = add("scale", "another number of workers, drain-first (scaling.owner: fixed)", _scale, changes=True)
    scale.add_argument("number", type=_count, metavar="N")
    scale.add_argument("--pool", help="the Deployment, where there are several")
    for name, does, undo in (("drain", "a worker finishes what it holds", False), ("undrain", "takes that back", True)):
        one = add(name, does, _drain, changes=True)
        one.add_argument("pod", metavar="POD")
        one.set_defaults(undo=undo)
    again = add("restart", "replaces every pod, drain-first and a few at a time", _restart, changes=True)
    again.add_argument("--pool", help="only this Deployment")
    logs = add("logs", "the log of a worker, or of its engine", _logs)
    logs.add_argument("pod", metavar="POD")
    logs.add_argument("--engine", action="store_true", help="of the engine beside it")
    logs.add_argument("--previous", action="store_true", help="of the process before the last restart")
    logs.add_argument("--lines", type=_count, default=200, help="the last so many (default: 200)")
    add("doctor", "what is wrong with the release, and what to do", _doctor)
    return parser


def _add_place(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--namespace", "-n", help="default: that of the kubeconfig's context")
    parser.add_argument("--release", help="default: the only one in the namespace")
    parser.add_argument("--context", help="of the kubeconfig; default: the current one")
    parser.add_argument("--redis-url", default=os.environ.get("REDIS_URL"), help="what the workers hold (REDIS_URL)")
    parser.add_argument("--json", action="store_true", help="print data")


async def _status(cluster: PeoplesCluster, release: Release, options: argparse.Namespace) -> actions.Answer:
    return actions.status(release)


async def _scale(cluster: PeoplesCluster, release: Release, options: argparse.Namespace) -> actions.Answer:
    return await actions.scale(cluster, release, options.number, options.pool, options.dry_run)


async def _drain(cluster: PeoplesCluster, release: Release, options: argparse.Namespace) -> actions.Answer:
    return await actions.drain(cluster, release, options.pod, options.dry_run, options.undo)


async def _restart(cluster: PeoplesCluster, release: Release, options: argparse.Namespace) -> actions.Answer:
    return await actions.restart(cluster, release, options.pool, options.dry_run)


async def _logs(cluster: PeoplesCluster, release: Release, options: argparse.Namespace) -> actions.Answer:
    pod = release.pod(options.pod)
    text = await cluster.pod_logs(pod.name, ENGINE if options.engine else CONTAINER, options.lines, options.previous)
    return actions.Answer(text.splitlines(), {"pod": pod.name, "lines": text.splitlines()})


async def _doctor(cluster: PeoplesCluster, release: Release, options: argparse.Namespace) -> actions.Answer:
    return await actions.doctor(cluster, release)


def _count(text: str) -> int:
    if not text.isdecimal() or len(text) > 5:
        raise argparse.ArgumentTypeError(f"{text!r} is no count: give a whole number")
    return int(text)
