"""What the broker needs that nobody else does for sure: expired leases are reaped, a run is repaired after an outage.

Invariant: a repair is noted under the server's own id, so that a server that started anew is repaired once, whoever
leads by then.
"""

import logging
from collections.abc import Callable

from deploy.operator.broker_view import BrokerView, note_repair
from rolloutfleet.broker import Broker
from rolloutfleet.pods import FleetKeys
from rolloutfleet.repair import Repaired, repair

log = logging.getLogger("operator.relief")

_REAP, _ROUNDS = 64, 16


class Relief:
    """`check` is called before each write."""

    def __init__(self, broker: Broker, keys: FleetKeys, check: Callable[[], None]) -> None:
        self._broker = broker
        self._keys = keys
        self._check = check

    async def reap(self) -> int:
        """Errors: BrokerUnavailable, NotLeading."""
        reaped = 0
        for _ in range(_ROUNDS):
            self._check()
            some = await self._broker.reap(_REAP)
            reaped += some
            if some < _REAP:
                break
        return reaped

    async def repair_if_new(self, view: BrokerView) -> Repaired | None:
        """Mends the run if its server has started since the last time. Errors: BrokerUnavailable, NotLeading."""
        if not view.server_id or view.server_id == view.repaired_id:
            return None
        self._check()
        mended = await repair(self._broker)
        self._check()
        await note_repair(self._broker, self._keys, view.server_id)
        log.info("the broker is another server process than before; repaired: %s", mended)
        return mended
