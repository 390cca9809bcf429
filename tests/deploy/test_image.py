"""The image's own piece of Python: what a process answers before it has an answer of its own."""

import os
import signal
import subprocess
import sys
from pathlib import Path

IMAGE = Path(__file__).resolve().parents[2] / "deploy" / "image"
ENDED = 143


def started(program: str) -> subprocess.Popen[str]:
    """A process that has printed a line."""
    environment = os.environ | {"PYTHONPATH": str(IMAGE)}
    process = subprocess.Popen(
        [sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    process.stdout.readline()
    return process


def test_a_process_that_still_starts_ends_on_sigterm_by_itself():
    with started("print(flush=True); input()") as process:
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == ENDED


def test_a_process_with_an_answer_of_its_own_keeps_it():
    answers = "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(7)); print(flush=True); input()"
    with started(answers) as process:
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 7
