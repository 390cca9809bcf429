"""Connections: what they write, and for which URLs."""

import pytest
from redis.asyncio.connection import Connection, SSLConnection, UnixDomainSocketConnection
from redis.exceptions import DataError

from rolloutfleet.redis import connect

WORDS = ("EVALSHA", "sha", 2, b"key", "caf\u00e9", 1.5, b"\x00\r\n", "", b"x" * 10_000)


@pytest.mark.parametrize("words", [WORDS, ("XINFO GROUPS", "key"), (b"PING",)])
def test_commands_are_written_as_redis_py_itself_writes_them(words: tuple[str | bytes | float, ...]):
    connection = connect("redis://localhost").connection_pool.make_connection()
    assert b"".join(connection.pack_command(*words)) == b"".join(Connection().pack_command(*words))


def test_a_word_that_no_command_can_hold_is_refused():
    connection = connect("redis://localhost").connection_pool.make_connection()
    with pytest.raises(DataError):
        connection.pack_command("SET", "key", None)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("url", "kind"),
    [("redis://h", Connection), ("rediss://h", SSLConnection), ("unix:///tmp/s", UnixDomainSocketConnection)],
)
def test_the_url_says_how_to_connect(url: str, kind: type[Connection]):
    assert isinstance(connect(url).connection_pool.make_connection(), kind)
