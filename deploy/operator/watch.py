"""The fleet's pods, as last seen: a list, then changes, and the list again after half a minute at most.

Invariant: the list is the truth; the watch only makes it faster. One task does both, one after the other, so that no
answer that is older takes away what a newer one said.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from deploy.operator.cluster import WATCH_SECONDS, Cluster, ClusterError, Expired
from deploy.operator.objects import Pod

log = logging.getLogger("operator.watch")

_PAUSE_SECONDS = 1.0  # after a failure


class PodWatch:
    """`pods` by uid. `changed` is set when something is new. Idle while `is_leading` says no."""

    def __init__(self, cluster: Cluster, is_leading: Callable[[], bool]) -> None:
        self.pods: dict[str, Pod] = {}
        self.changed = asyncio.Event()
        self.problem = "the pods were not listed yet"
        self.listed_at = float("-inf")  # monotonic seconds
        self._cluster = cluster
        self._is_leading = is_leading

    @property
    def is_known(self) -> bool:
        """Whether what is known is young enough to act on."""
        return time.monotonic() - self.listed_at < 2 * WATCH_SECONDS

    def see(self, pod: Pod) -> None:
        """Takes over what was just asked for."""
        self.pods[pod.uid] = pod

    async def relist(self) -> str:
        """The version to watch from. Errors: ClusterError."""
        began = time.monotonic()
        version, pods = await self._cluster.list_pods()
        self._replace(pods, began)
        return version

    async def run(self) -> None:
        while True:
            if not self._is_leading():
                self.forget()
                await asyncio.sleep(0.2)
                continue
            try:
                await self._follow(await self.relist())
            except Expired:
                continue
            except ClusterError as error:
                if str(error) != self.problem:
                    log.warning("the pods are not known: %s", error)
                self.problem = str(error)
                await asyncio.sleep(_PAUSE_SECONDS)

    def forget(self) -> None:
        """Another leads: what is known ages unseen."""
        self.pods, self.listed_at = {}, float("-inf")

    async def _follow(self, version: str) -> None:
        # A stream that was cut without a word would be waited for.
        with suppress(TimeoutError):
            async with asyncio.timeout(WATCH_SECONDS + 1):
                began = time.monotonic()
                async for change in self._cluster.watch_pods(version):
                    if change.is_gone:
                        self.pods.pop(change.pod.uid, None)
                    else:
                        self.see(change.pod)
                    self.changed.set()
                    if not self._is_leading():
                        return
                # One that ends at once, each time, must not become a loop of lists.
                await asyncio.sleep(max(0.0, began + _PAUSE_SECONDS - time.monotonic()))

    def _replace(self, pods: Sequence[Pod], began: float) -> None:
        self.pods = {pod.uid: pod for pod in pods}
        self.listed_at, self.problem = began, ""
        self.changed.set()
