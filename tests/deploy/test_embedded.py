"""The embedded broker: it answers when started, keeps its port and its data over a crash, and leaves nothing behind."""

import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from deploy.embedded import ALLOCATOR, EmbeddedServer, ServerFailed, free_port


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedServer]:
    with EmbeddedServer(durability="always", directory=tmp_path / "broker") as started:
        yield started


@pytest.fixture
def client(server: EmbeddedServer) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(server.url, socket_timeout=5) as connected:
        yield connected


def is_alive(pid: int) -> bool:
    try:  # an orphan that nobody has waited for yet is a zombie, and has ended
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def until(fact: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not fact():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def test_a_started_server_answers(client: redis.Redis) -> None:
    assert client.ping()


def test_the_embedded_server_evicts_nothing(client: redis.Redis) -> None:
    assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}


def test_the_durability_asked_for_is_the_servers(client: redis.Redis) -> None:
    assert client.config_get("append*")["appendfsync"] == "always"
    assert client.config_get("append*")["appendonly"] == "yes"


def test_without_durability_there_is_no_aof(tmp_path: Path) -> None:
    with EmbeddedServer(durability="off", directory=tmp_path):
        assert not (tmp_path / "appendonlydir").exists()


def test_a_killed_server_comes_back_on_its_port_with_its_data(server: EmbeddedServer, client: redis.Redis) -> None:
    client.set("kept", "yes")
    port = server.port
    server.kill()
    server.restart()
    assert server.port == port
    assert client.get("kept") == b"yes"


def test_a_stopped_server_ends_in_time_and_starts_again(server: EmbeddedServer, client: redis.Redis) -> None:
    client.set("kept", "yes")
    server.stop()
    assert not server.is_running
    server.start()
    assert client.get("kept") == b"yes"


def test_a_frozen_server_answers_nothing_until_it_is_thawed(server: EmbeddedServer) -> None:
    with redis.Redis.from_url(server.url, socket_timeout=0.2, retry=None) as impatient:
        impatient.ping()
        server.freeze()
        with pytest.raises(redis.TimeoutError):
            impatient.ping()
        server.thaw()
        assert impatient.ping()


def test_a_frozen_server_can_be_stopped(server: EmbeddedServer) -> None:
    server.freeze()
    server.stop()
    assert not server.is_running


def test_the_error_of_a_server_that_cannot_start_shows_its_log(tmp_path: Path) -> None:
    server = EmbeddedServer(directory=tmp_path, arguments=["--no-such-setting", "1"])
    with pytest.raises(ServerFailed, match="no-such-setting"):
        server.start()
    assert not server.is_running


def test_a_failed_start_leaves_no_directory_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(ServerFailed), EmbeddedServer(arguments=["--no-such-setting", "1"]):
        pytest.fail("it started")
    assert list(tmp_path.iterdir()) == []


def test_a_directory_may_have_blanks_in_its_name(tmp_path: Path) -> None:
    directory = tmp_path / "a broker's data"
    with EmbeddedServer(directory=directory):
        assert (directory / "appendonlydir").is_dir()


def test_arguments_given_come_after_ours(tmp_path: Path) -> None:
    arguments = ["--maxmemory-policy", "allkeys-lru"]
    with (
        EmbeddedServer(directory=tmp_path, arguments=arguments) as server,
        redis.Redis.from_url(server.url) as client,
    ):
        assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "allkeys-lru"}


@pytest.mark.parametrize(
    ("given", "served"),
    [
        ("", ALLOCATOR),
        ("glibc.malloc.mxfast=0", f"{ALLOCATOR}:glibc.malloc.mxfast=0"),
    ],
)
def test_the_allocator_s_settings_of_the_user_come_after_ours(
    given: str, served: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GLIBC_TUNABLES", given)
    # The title of a process is written over its environment, and glibc ends each setting in it with a zero.
    with EmbeddedServer(directory=tmp_path, arguments=("--set-proc-title", "no")) as server:
        environment = Path(f"/proc/{server.pid}/environ").read_text().replace("\0", ":")
    assert f":GLIBC_TUNABLES={served}:" in f":{environment}"


def test_a_port_in_use_is_reported(server: EmbeddedServer, tmp_path: Path) -> None:
    second = EmbeddedServer(port=server.port, directory=tmp_path / "second")
    with pytest.raises(ServerFailed, match="ended before it answered"):
        second.start()


def test_a_running_server_is_not_started_twice(server: EmbeddedServer) -> None:
    with pytest.raises(ServerFailed, match="runs already"):
        server.start()


def test_a_closed_server_leaves_no_directory() -> None:
    with EmbeddedServer(durability="off") as server:
        directory = server.directory
        assert directory.exists()
    assert not directory.exists()


def test_a_directory_that_was_given_stays(server: EmbeddedServer) -> None:
    directory = server.directory
    server.close()
    assert directory.exists()


def test_the_server_dies_with_a_parent_that_is_killed() -> None:
    program = """
        import os, signal
        from deploy.embedded import EmbeddedServer
        server = EmbeddedServer(durability="off")
        server.start()
        print(server.pid, server.directory, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    root = Path(__file__).parents[2]
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    pid, directory = ended.stdout.split()
    until(lambda: not is_alive(int(pid)))
    (Path(directory) / "server.log").unlink()
    Path(directory).rmdir()


def test_free_ports_lie_below_those_of_outgoing_connections() -> None:
    lowest_outgoing = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert free_port() < lowest_outgoing
