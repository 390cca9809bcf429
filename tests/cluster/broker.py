"""The broker that the tests' fleets share, each by a run of its own: a Valkey in a pod, without a volume."""

import os
from typing import Any

from tests.cluster import session
from tests.cluster.images import VALKEY
from tests.cluster.kube import apply, get, is_ready, until

PORT = 6379
NAME = "broker"


def valkey_image() -> str:
    """The one that was loaded into our own cluster; elsewhere the official one, or what the environment names."""
    own = VALKEY if session.OURS in os.environ else "valkey/valkey:8.1"
    return os.environ.get("ROLLOUTFLEET_CLUSTER_VALKEY") or own


async def start(namespace: str) -> str:
    """The address of its pod, as pods reach it."""
    container: dict[str, Any] = {
        "name": NAME,
        "image": valkey_image(),
        "command": ["valkey-server", "--save", "", "--protected-mode", "no", "--maxmemory-policy", "noeviction"],
        "readinessProbe": {"tcpSocket": {"port": PORT}, "periodSeconds": 1},
    }
    # Tests cut off and drain the other nodes.
    place = {"nodeName": "node0"} if session.OURS in os.environ else {}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": NAME, "namespace": namespace}}
    await apply(pod | {"spec": {"containers": [container], "terminationGracePeriodSeconds": 0} | place})

    async def address() -> str:
        (found,) = await get("pod", NAME, "-n", namespace)
        return found["status"]["podIP"] if is_ready(found) else ""

    return await until(address, "the tests' broker is ready")
