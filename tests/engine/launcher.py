"""Runs in the environment of the real engine: imports SGLang once, then forks a server for each line of its input.

One line in is JSON {"arguments": [...], "log": path}, one line out {"pid": n}; `{"ready": true}` comes first. A server
is the leader of a process group of its own. When the input ends, all of them are killed.

What SGLang needs to run on a CPU beside the wheels for CUDA is here, too: a stand-in for the compiled kernels, which
nothing on this way calls, and a start method that lets its processes share what was imported.
"""

import ctypes
import importlib
import importlib.machinery
import importlib.util
import json
import multiprocessing
import os
import signal
import sys
import types
from contextlib import suppress
from typing import Any

PR_SET_PDEATHSIG = 1
KERNELS = "sgl_kernel"
# What a server would otherwise import after the fork, each anew.
WARM = (
    "sglang.srt.entrypoints.http_server",
    "sglang.srt.managers.scheduler",
    "sglang.srt.managers.detokenizer_manager",
)


class Kernels(types.ModuleType):
    """Has every name that is asked for; calling one says which kernel is missing."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)

        def missing(*_: Any, **__: Any) -> Any:
            raise NotImplementedError(f"{KERNELS}.{name}: there are no kernels on a CPU")

        return missing


def stand_in_for_kernels() -> None:
    if importlib.util.find_spec(KERNELS) is None:
        kernels = Kernels(KERNELS)
        kernels.__spec__ = importlib.machinery.ModuleSpec(KERNELS, None)
        kernels.__dict__["__version__"] = "0"
        sys.modules[KERNELS] = kernels


def always_fork() -> None:
    """SGLang asks for `spawn`, with which each of its processes would import everything again: half a minute each."""
    torch_way: Any = importlib.import_module("torch.multiprocessing")
    set_method = multiprocessing.set_start_method

    def fork(*_: Any, **__: Any) -> None:
        set_method("fork", force=True)

    multiprocessing.set_start_method = fork
    torch_way.set_start_method = fork


def serve(arguments: list[str], log: str, parent: int) -> None:
    """The body of a forked server: never returns."""
    try:
        os.setsid()
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            return
        file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        empty = os.open(os.devnull, os.O_RDONLY)
        for source, number in ((empty, 0), (file, 1), (file, 2)):
            os.dup2(source, number)
        launch: Any = importlib.import_module("sglang.launch_server")
        settings: Any = importlib.import_module("sglang.srt.server_args")
        launch.run_server(settings.prepare_server_args(arguments))
    finally:
        sys.stderr.flush()
        os._exit(1)


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever an import prints is no answer
    stand_in_for_kernels()
    always_fork()
    for name in WARM:
        importlib.import_module(name)
    me, pids = os.getpid(), list[int]()
    answers.write('{"ready": true}\n')
    for line in sys.stdin:
        order: dict[str, Any] = json.loads(line)
        pid = os.fork()
        if pid == 0:
            serve(order["arguments"], order["log"], me)
        pids.append(pid)
        answers.write(json.dumps({"pid": pid}) + "\n")
    # Nobody waited for them, so that these ids are theirs still.
    for pid in pids:
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
