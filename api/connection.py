"""The service's connection: as everybody's, but for answers that redis-py would take for those of another command."""

from typing import Any

from rolloutfleet.redis import Client, connect

_CONNECTIONS = 32


def connect_plain(url: str) -> Client:
    """A client whose XPENDING answers rows: redis-py parses a range as if it were the summary, and fails."""
    client = connect(url, connections=_CONNECTIONS)
    client.set_response_callback("XPENDING", _as_it_is)
    return client


def _as_it_is(response: Any, **_: Any) -> Any:
    return response
