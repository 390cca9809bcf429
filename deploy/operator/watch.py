"""The fleet's pods and Deployments, as last seen: a list, then changes, and the list again after a while.

Invariants: the list is the truth; the watch only makes it faster. One task does both, one after the other, so that no
answer that is older takes away what a newer one said; of a Deployment that was asked for meanwhile, the younger stays.
What nothing happens to costs two calls in each of these periods, however many pods there are.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from deploy.operator.cluster import POOLS_SECONDS, WATCH_SECONDS, Change, Cluster, ClusterError, Expired
from deploy.operator.objects import Deployment, Kind, Pod

log = logging.getLogger("operator.watch")

_PAUSE_SECONDS = 1.0  # after a failure


@dataclass(frozen=True, slots=True)
class Source[T]:
    """Where one kind of objects is listed and watched, for `seconds` at a time. `key`: what it is known by."""

    what: str
    seconds: float
    key: Callable[[T], str]
    listed: Callable[[], Awaitable[tuple[str, Sequence[T]]]]
    watched: Callable[[str], AsyncIterator[Change[T]]]
    is_older: Callable[[T, T], bool] = lambda one, other: False


class Watch[T]:
    """`known` by key. `changed` is set when something is new. Idle while `is_leading` says no."""

    def __init__(self, source: Source[T], is_leading: Callable[[], bool], changed: asyncio.Event) -> None:
        self.known: dict[str, T] = {}
        self.problem = f"the {source.what} were not listed yet"
        self._listed_at = float("-inf")  # monotonic seconds
        self._source = source
        self._is_leading = is_leading
        self._changed = changed

    @property
    def is_known(self) -> bool:
        """Whether what is known is young enough to act on."""
        return time.monotonic() - self._listed_at < 2 * self._source.seconds

    def see(self, one: T) -> None:
        """Takes over what was just asked for, or told."""
        key = self._source.key(one)
        before = self.known.get(key)
        if before is None or not self._source.is_older(one, before):
            self.known[key] = one

    async def relist(self) -> str:
        """The version to watch from. Errors: ClusterError."""
        began = time.monotonic()
        version, found = await self._source.listed()
        gone = self.known.keys() - {self._source.key(one) for one in found}
        for key in gone:
            del self.known[key]
        for one in found:
            self.see(one)
        self._listed_at, self.problem = began, ""
        self._changed.set()
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
                    log.warning("the %s are not known: %s", self._source.what, error)
                self.problem = str(error)
                await asyncio.sleep(_PAUSE_SECONDS)

    def forget(self) -> None:
        """Another leads: what is known ages unseen."""
        self.known, self._listed_at = {}, float("-inf")

    async def _follow(self, version: str) -> None:
        # A stream that was cut without a word would be waited for.
        with suppress(TimeoutError):
            async with asyncio.timeout(self._source.seconds + 1):
                began = time.monotonic()
                async for change in self._source.watched(version):
                    if change.is_gone:
                        self.known.pop(self._source.key(change.one), None)
                    else:
                        self.see(change.one)
                    self._changed.set()
                    if not self._is_leading():
                        return
                # One that ends at once, each time, must not become a loop of lists.
                await asyncio.sleep(max(0.0, began + _PAUSE_SECONDS - time.monotonic()))


class Watches:
    """All that the operator watches: pods by uid, pools by name, each of the kinds that there are."""

    def __init__(self, cluster: Cluster, is_leading: Callable[[], bool], kinds: Iterable[Kind]) -> None:
        self.changed = asyncio.Event()
        self._pods = Watch(_pods_of(cluster), is_leading, self.changed)
        self._pools = {kind: Watch(_pools_of(cluster, kind), is_leading, self.changed) for kind in sorted(set(kinds))}

    @property
    def pods(self) -> dict[str, Pod]:
        return self._pods.known

    @property
    def deployments(self) -> Mapping[str, Deployment]:
        return {name: one for watch in self._pools.values() for name, one in watch.known.items()}

    @property
    def is_known(self) -> bool:
        return self._pods.is_known

    @property
    def problem(self) -> str:
        return next(filter(None, (watch.problem for watch in (self._pods, *self._pools.values()))), "")

    def see_pod(self, pod: Pod) -> None:
        self._pods.see(pod)

    def see_deployment(self, deployment: Deployment) -> None:
        self._pools[deployment.kind].see(deployment)

    async def relist(self) -> None:
        """Errors: ClusterError."""
        await self._pods.relist()
        for watch in self._pools.values():
            await watch.relist()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._pods.run())
            for watch in self._pools.values():
                tasks.create_task(watch.run())


def _pods_of(cluster: Cluster) -> Source[Pod]:
    return Source("pods", WATCH_SECONDS, lambda pod: pod.uid, cluster.list_pods, cluster.watch_pods)


def _pools_of(cluster: Cluster, kind: Kind) -> Source[Deployment]:
    return Source(
        f"{kind}s",
        POOLS_SECONDS,
        lambda one: one.name,
        lambda: cluster.list_pools(kind),
        lambda version: cluster.watch_pools(version, kind),
        _is_older,
    )


def _is_older(one: Deployment, other: Deployment) -> bool:
    """Its generation rises with each change of its spec: whoever set a number must not see the one of before again."""
    return one.uid == other.uid and one.generation < other.generation
