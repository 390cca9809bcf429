"""Which runs are there: a walk over the keys, a bounded piece each second, and a direct question for one name."""

import time

from rolloutfleet.answers import as_text
from rolloutfleet.broker import Broker
from rolloutfleet.keys import CONFIGS, RUN_NAME, Keys, run_of
from rolloutfleet.redis import Client

_COUNT = 1000  # keys that one SCAN looks at
_PIECES = 10  # of them in one step
_FIRST_PIECES = 200  # in the first one: a page that opens empty frightens
_STEP_SECONDS = 0.3  # a step that lasts longer goes on in the next look: Redis is slow, and the runs wait to be read
_REST_SECONDS = 2.0  # after a walk, for each piece that it took: a walk costs the same each second, however many keys
_LONGEST_REST = 30.0


class Discovery:
    """Knows the names of the runs that were found; those that are gone are forgotten by who finds them empty."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._known: set[str] = set()
        self._cursor = 0
        self._pieces = _FIRST_PIECES
        self._walked = 0
        self._rests_until = float("-inf")

    async def step(self) -> list[str]:
        """Goes on with the walk; the runs that were not known before. Errors: those of redis-py."""
        if time.monotonic() < self._rests_until:
            return []
        found: set[str] = set()
        end = time.monotonic() + _STEP_SECONDS
        for _ in range(self._pieces):
            self._cursor, keys = await self._client.scan(self._cursor, match=CONFIGS, count=_COUNT)
            names = (run_of(as_text(key)) for key in keys)
            found |= {name for name in names if RUN_NAME.fullmatch(name)}
            self._walked += 1
            if self._cursor == 0:
                self._rest()
            if self._cursor == 0 or time.monotonic() > end:
                break
        self._pieces = _PIECES
        new = found - self._known
        self._known |= new
        return sorted(new)

    def _rest(self) -> None:
        self._rests_until = time.monotonic() + min(_LONGEST_REST, self._walked * _REST_SECONDS)
        self._walked = 0

    async def exists(self, run: str) -> bool:
        """Is there a run of this name? Errors: BrokerUnavailable; ValueError for what can't be a name."""
        broker = Broker(self._client, run, retry_seconds=0)
        (found,) = await broker.calls.read([["EXISTS", Keys(run).named("config")]])
        if found:
            self._known.add(run)
        return bool(found)

    def forget(self, run: str) -> None:
        self._known.discard(run)
