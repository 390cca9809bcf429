"""Process 1 of the cluster: starts everything, reaps what ends, and with its own end everything in the cluster ends.

`python -m tests.cluster.inside FOLDER NODES`, called in fresh namespaces (lifecycle.py). The file `ready` says that all
nodes are. SIGUSR1 kills the API server, SIGUSR2 starts it again.
"""

import os
import signal
import sys
import time
from pathlib import Path

from tests.cluster import control, identities, node
from tests.cluster.commands import ClusterFailed
from tests.cluster.ground import Ground, prepare, succeeds, until
from tests.helm_tools import kubectl


def main(folder: str, nodes: str) -> int:
    ground = Ground(Path(folder))
    for which in (signal.SIGTERM, signal.SIGINT):
        signal.signal(which, lambda _number, _frame: sys.exit(0))
    try:
        _start(ground, int(nodes))
    except ClusterFailed as error:
        print(error, file=sys.stderr)
        return 1
    signal.signal(signal.SIGUSR1, lambda _number, _frame: ground.kill("api-server"))
    signal.signal(signal.SIGUSR2, lambda _number, _frame: control.start_api_server(ground))
    (ground.folder / "ready").touch()
    _reap()
    return 0


def _start(ground: Ground, nodes: int) -> None:
    prepare(ground)
    identities.make_all(ground)
    control.start(ground)
    made = [node.Node(ground, index) for index in range(nodes)]
    for one in made:
        node.start(one)
    control.start_names(ground)
    ask = [kubectl(), "--kubeconfig", ground.kubeconfig("admin")]
    names = [f"node/{one.name}" for one in made]
    ready = [*ask, "wait", "--for=condition=Ready", "--timeout=5s", *names]
    until(lambda: succeeds(ready), f"{len(made)} nodes are ready")
    until(lambda: succeeds([*ask, "get", "serviceaccount", "default"]), "service accounts are made")


def _reap() -> None:
    while True:
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            time.sleep(0.2)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
