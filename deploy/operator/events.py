"""Kubernetes Events on the Deployments: what the operator did, and what is wrong, where `kubectl describe` shows it.

Invariants: an event that is said again within ten minutes raises a count; at most so many new ones in a minute are
written, so that a fleet in trouble doesn't flood the API server; an event that can't be written stops nothing.
"""

import logging
import secrets
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from deploy.operator.cluster import Cluster, ClusterError
from deploy.operator.objects import Deployment, Kind

log = logging.getLogger("operator.events")

_AGAIN_SECONDS = 600.0
_MOST_PER_MINUTE = 20
_LONGEST = 1000  # the API server refuses longer messages


@dataclass(slots=True)
class _Said:
    name: str
    count: int
    at: float
    written_at: float


class Events:
    """Says things of Deployments. `check` is called before each write."""

    def __init__(
        self,
        cluster: Cluster,
        namespace: str,
        check: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._check = check
        self._clock = clock
        self._said: dict[tuple[str, str, str], _Said] = {}
        self._written: deque[float] = deque(maxlen=_MOST_PER_MINUTE)

    async def say(self, of: Deployment, reason: str, message: str, *, is_warning: bool = False) -> None:
        """Writes or counts an event: a warning by its reason, of which there are few. Errors: NotLeading."""
        now, key = self._clock(), (of.uid, reason, "" if is_warning else message)
        self._forget(now)
        known = self._said.get(key)
        if known is None and len(self._written) == self._written.maxlen and now - self._written[0] < 60:
            return
        if known is not None and now - known.written_at < 60:
            known.count, known.at = known.count + 1, now
            return
        self._check()
        try:
            if known is None:
                name = await self._cluster.create_event(self._event(of, reason, message, is_warning))
                self._written.append(now)
                self._said[key] = _Said(name, 1, now, now)
            else:
                known.count, known.at, known.written_at = known.count + 1, now, now
                patch = {"count": known.count, "lastTimestamp": _time(), "message": message[:_LONGEST]}
                await self._cluster.patch_event(known.name, patch)
        except ClusterError as error:
            self._said.pop(key, None)
            log.warning("an event could not be written: %s", error)

    def _forget(self, now: float) -> None:
        self._said = {key: said for key, said in self._said.items() if now - said.at < _AGAIN_SECONDS}

    def _event(self, of: Deployment, reason: str, message: str, is_warning: bool) -> dict[str, object]:
        version = "apps/v1" if of.kind is Kind.DEPLOYMENT else "leaderworkerset.x-k8s.io/v1"
        about = {"apiVersion": version, "kind": of.kind, "name": of.name, "uid": of.uid}
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{of.name[:200]}.{secrets.token_hex(8)}", "namespace": self._namespace},
            "involvedObject": about | {"namespace": self._namespace},
            "reason": reason,
            "message": message[:_LONGEST],
            "type": "Warning" if is_warning else "Normal",
            "source": {"component": "rolloutfleet-operator"},
            "reportingComponent": "rolloutfleet-operator",
            "firstTimestamp": _time(),
            "lastTimestamp": _time(),
            "count": 1,
        }


def _time() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
