"""`python -m tests.cluster.loading FOLDER ARCHIVE`, inside of a cluster: an image becomes one of each node's."""

import sys
from pathlib import Path

from tests.cluster.commands import ClusterFailed
from tests.cluster.ground import Ground
from tests.cluster.node import Node, load


def main(folder: str, archive: str) -> int:
    ground = Ground(Path(folder))
    try:
        for index in range(len(list(ground.folder.glob("kubelet-node*.pid")))):
            load(Node(ground, index), Path(archive))
    except ClusterFailed as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
