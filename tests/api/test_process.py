"""The process: it ends in order, whoever watches, and says what is wrong with its port."""

import os
import signal
import socket
import subprocess
import sys

import httpx
import pytest

from api.serve import listen
from api.settings import ApiSettings
from tests.api.process import ROOT, STOP_SECONDS, api_process


@pytest.mark.parametrize("which", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_though_streams_are_open(redis_url: str, which: signal.Signals):
    with (
        api_process(redis_url) as process,
        httpx.Client(base_url=process.url, timeout=10) as http,
        http.stream("GET", "/events") as first,
        http.stream("GET", "/events") as second,
    ):
        watched = [first.iter_lines(), second.iter_lines()]
        assert [next(lines) for lines in watched] == ["retry: 2000"] * 2
        process.popen.send_signal(which)
        code = process.popen.wait(STOP_SECONDS)
        assert all("error" not in line for lines in watched for line in lines)  # they end, and are not cut
    assert code == 0


def test_a_port_that_is_taken_is_said_and_ends_it_with_1(redis_url: str):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = {"REDIS_URL": redis_url, "ROLLOUTFLEET_API_HOST": "127.0.0.1", "PYTHONPATH": str(ROOT)}
        ended = subprocess.run(
            [sys.executable, "-m", "api", "--port", str(taken.getsockname()[1])],
            env={**os.environ, **place},
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    assert ended.returncode == 1
    assert "can't listen on 127.0.0.1 port" in ended.stderr


def test_it_serves_without_redis():
    with api_process("redis://127.0.0.1:1") as process:
        answer = httpx.get(f"{process.url}/readyz", timeout=5)
    assert (answer.status_code, answer.json()["redis"]["state"]) == (200, "away")


def test_an_answer_does_not_wait_for_the_acknowledgement_of_its_head():
    with (
        listen(ApiSettings(redis_url="redis://127.0.0.1:1", host="127.0.0.1", port=0)) as listener,
        socket.create_connection(listener.getsockname()),
    ):
        connection, _ = listener.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
