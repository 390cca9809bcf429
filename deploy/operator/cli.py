"""`python -m deploy operator`: exit code 0 after a stop, 1 without a cluster, 2 for a wrong setting."""

import asyncio
import logging
import signal
import sys
from collections.abc import Sequence

from pydantic import ValidationError

from deploy.operator.cluster import ClusterUnavailable, KubernetesCluster, in_cluster
from deploy.operator.run import serve
from deploy.operator.settings import PREFIX, OperatorSettings
from rolloutfleet.metrics import OperatorMetrics
from rolloutfleet.settings import explain

_FORM = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def main(argv: Sequence[str]) -> int:
    try:
        settings = OperatorSettings(_cli_parse_args=list(argv))  # pyright: ignore[reportCallIssue]  # from the environment
    except ValidationError as error:
        return _refuse(explain(error, PREFIX), 2)
    logging.basicConfig(level=settings.log_level, format=_FORM, stream=sys.stderr)
    logging.getLogger("urllib3").setLevel(logging.ERROR)  # it warns of each connection that was not there any more
    try:
        asyncio.run(_serve(settings))
    except ClusterUnavailable as error:
        return _refuse(str(error), 1)
    except OSError as error:
        return _refuse(f"probe_port {settings.probe_port} can't be used ({error}): choose another", 2)
    return 0


async def _serve(settings: OperatorSettings) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for which in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(which, stop.set)

    def connect(metrics: OperatorMetrics) -> KubernetesCluster:
        def counted(verb: str, resource: str, outcome: str) -> None:
            metrics.calls.labels(verb, resource, outcome).inc()

        return KubernetesCluster(in_cluster(), settings.namespace, settings.selector, counted)

    await serve(settings, connect, stop)


def _refuse(sentence: str, code: int) -> int:
    sys.stderr.write(f"deploy operator: {sentence}\n")
    return code
