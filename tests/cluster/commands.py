"""Commands, short and long: a long one says how far it is, and a failure ends with what the command said."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

SAY_EVERY_SECONDS = 20.0
TAIL = 3000

type Words = Sequence[str | Path]


class ClusterFailed(RuntimeError):
    """The cluster can't be built, started or reached; the message says what failed, and ends with what was said."""


def say(text: str) -> None:
    print(f"cluster: {text}", file=sys.stderr, flush=True)  # what is asked for goes to stdout


def output(command: Words, *, seconds: float = 120, env: Mapping[str, str] | None = None, stdin: str = "") -> str:
    """What a short command says. Errors: ClusterFailed."""
    words = [str(word) for word in command]
    try:
        done = subprocess.run(words, input=stdin, capture_output=True, text=True, timeout=seconds, env=env)
    except FileNotFoundError as error:
        raise ClusterFailed(f"there is no program {words[0]}") from error
    except subprocess.TimeoutExpired as error:
        raise ClusterFailed(f"{' '.join(words)} took longer than {seconds:.0f} s") from error
    if done.returncode:
        raise ClusterFailed(f"{' '.join(words)} failed:\n{(done.stderr or done.stdout)[-TAIL:]}")
    return done.stdout


def patiently(
    what: str, command: Words, *, seconds: float, cwd: Path, env: Mapping[str, str] | None = None, lines: str = ""
) -> None:
    """Runs a long command, and says now and then how long, and how many `lines` it said. Errors: ClusterFailed."""
    words, began = [str(word) for word in command], time.monotonic()
    say(what)
    with tempfile.NamedTemporaryFile("w") as log:
        said = Path(log.name)
        # A group of its own: what the command has started ends with it.
        with subprocess.Popen(
            words, cwd=cwd, env=env, stdout=log, stderr=subprocess.STDOUT, process_group=0
        ) as process:
            try:
                while (code := _waited(process)) is None:
                    passed = time.monotonic() - began
                    if passed > seconds:
                        raise ClusterFailed(f"{what}: not done after {seconds:.0f} s")
                    count = f", {len(said.read_bytes().splitlines())} {lines}" if lines else ""
                    say(f"{what}: {passed:.0f} s{count}")
            except BaseException:
                os.killpg(process.pid, signal.SIGKILL)
                raise
        if code:
            raise ClusterFailed(f"{' '.join(words)} failed:\n{said.read_text(errors='replace')[-TAIL:]}")
    say(f"{what}: done after {time.monotonic() - began:.0f} s")


def _waited(process: subprocess.Popen[bytes]) -> int | None:
    try:
        return process.wait(timeout=SAY_EVERY_SECONDS)
    except subprocess.TimeoutExpired:
        return None
