"""One leads: a Lease that is patched over the version that was read, by the holder's own clock.

Invariants: at most one process believes that it leads, since it stops believing 10 s after the start of its last good
call, and no other takes over before it has seen no change for 15 s by a clock that never goes back; clocks of machines
are never compared. `check` is called before each write, and each write is guarded by itself, so that a process that was
frozen between the two changes nothing that is not as it saw it.
"""

import time
from collections.abc import Callable

from deploy.operator.cluster import Cluster, Conflict, Missing
from deploy.operator.objects import Lease, micro_time

LEASE_SECONDS, VALID_SECONDS, RENEW_SECONDS = 15, 10.0, 5.0


class NotLeading(Exception):
    """Another may lead by now: nothing more is to be written."""


class Leader:
    """Tries to lead under the name `identity`. `step` is called every RENEW_SECONDS."""

    def __init__(
        self, cluster: Cluster, lease_name: str, identity: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.identity = identity
        self._cluster = cluster
        self._lease_name = lease_name
        self._clock = clock
        self._lease: Lease | None = None  # as last read or written
        self._seen_at = float("-inf")  # since when it has not changed
        self._valid_until = float("-inf")

    @property
    def is_leading(self) -> bool:
        return self._clock() < self._valid_until

    @property
    def holder(self) -> str:
        """Who leads as far as is known; empty: nobody."""
        return self._lease.holder if self._lease else ""

    def check(self) -> None:
        """Errors: NotLeading."""
        if not self.is_leading:
            raise NotLeading("the lease could not be renewed in time")

    async def step(self) -> None:
        """Renews, takes over, or looks. Errors: ClusterError; then nothing is known, and the time runs on."""
        began = self._clock()
        try:
            lease = self._lease if self._is_mine(self._lease) else await self._look()
            if lease is None or self._is_mine(lease) or self._has_expired(lease):
                self._keep(await self._cluster.write_lease(self._lease_name, self._spec(lease), _version(lease)))
                self._valid_until = began + VALID_SECONDS
            else:
                self._valid_until = float("-inf")
        except (Conflict, Missing):
            self._lease = None  # another wrote it, or it was deleted: look at it

    async def release(self) -> None:
        """Lets another take over at once. Errors: ClusterError."""
        lease = self._lease
        if lease is not None and self._is_mine(lease) and self.is_leading:
            self._valid_until = float("-inf")
            await self._cluster.write_lease(self._lease_name, {"holderIdentity": ""}, lease.resource_version)

    async def _look(self) -> Lease | None:
        lease = await self._cluster.get_lease(self._lease_name)
        self._keep(lease)
        return lease

    def _keep(self, lease: Lease | None) -> None:
        if lease != self._lease:
            self._seen_at = self._clock()
        self._lease = lease

    def _is_mine(self, lease: Lease | None) -> bool:
        return lease is not None and lease.holder == self.identity

    def _has_expired(self, lease: Lease) -> bool:
        return not lease.holder or self._clock() - self._seen_at > LEASE_SECONDS

    def _spec(self, lease: Lease | None) -> dict[str, object]:
        now = micro_time(time.time())  # for people who look at the Lease
        spec: dict[str, object] = {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": LEASE_SECONDS,
            "renewTime": now,
        }
        if not self._is_mine(lease):
            spec |= {"acquireTime": now, "leaseTransitions": lease.transitions + 1 if lease else 0}
        return spec


def _version(lease: Lease | None) -> str | None:
    return lease.resource_version if lease else None
