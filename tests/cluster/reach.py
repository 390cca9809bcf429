"""The way from a test to a pod or a service: straight where the tests run beside the nodes, else by the API server."""

import json
import os
import re
import subprocess
from collections.abc import Generator
from contextlib import contextmanager

from tests.cluster import session

_FORWARDED = re.compile(r"Forwarding from 127\.0\.0\.1:(\d+)")


@contextmanager
def reached(namespace: str, target: str, port: int) -> Generator[str]:
    """host:port of `pod/<name>` or `service/<name>`."""
    if session.OURS in os.environ:
        yield f"{_address(namespace, target)}:{port}"
        return
    command = ["kubectl", "port-forward", "-n", namespace, target, f":{port}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as forward:
        try:
            assert forward.stdout is not None
            found = _FORWARDED.search(forward.stdout.readline())
            assert found, f"kubectl port-forward names no port for {target}"
            yield f"127.0.0.1:{found[1]}"
        finally:
            forward.kill()


def _address(namespace: str, target: str) -> str:
    command = ["kubectl", "get", "-n", namespace, target, "-o", "json"]
    found = json.loads(subprocess.run(command, capture_output=True, check=True, timeout=60).stdout)
    return found["status"]["podIP"] if found["kind"] == "Pod" else found["spec"]["clusterIP"]
