"""`python -m api` as a process of its own, on a free port of the loopback."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

ROOT = Path(__file__).parents[2]
START_SECONDS = 30
STOP_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Process:
    popen: subprocess.Popen[str]
    url: str


@contextmanager
def api_process(redis_url: str, **settings: str) -> Generator[Process, None, None]:
    """Answers /healthz when the block begins; killed at its end, if it is still there."""
    given = {f"ROLLOUTFLEET_API_{name.upper()}": value for name, value in settings.items()}
    place = {"REDIS_URL": redis_url, "ROLLOUTFLEET_API_HOST": "127.0.0.1", "ROLLOUTFLEET_API_PORT": "0"}
    popen = subprocess.Popen(
        [sys.executable, "-m", "api"],
        env={**os.environ, "PYTHONPATH": str(ROOT), **place, **given},
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield Process(popen, _address(popen))
    finally:
        popen.kill()
        popen.wait(STOP_SECONDS)
        assert popen.stderr
        popen.stderr.close()


def _address(popen: subprocess.Popen[str]) -> str:
    assert popen.stderr
    said: list[str] = []
    for line in popen.stderr:
        said.append(line)
        if found := re.search(r"listening on (http://\S+)", line):
            _wait_until_healthy(found[1])
            return found[1]
    raise AssertionError(f"the process ended: {''.join(said)}")


def _wait_until_healthy(url: str) -> None:
    end = time.monotonic() + START_SECONDS
    while True:
        try:
            if httpx.get(f"{url}/healthz", timeout=5).status_code == 200:
                return
        except httpx.HTTPError:
            if time.monotonic() > end:
                raise
        time.sleep(0.02)
