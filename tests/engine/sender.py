"""Runs in the environment of the real engine, as a trainer would: sends weights to engines over gloo.

    python -m tests.engine.sender FOLDER VERSION URL ...     (or by path: it imports nothing of this project)

The way of SGLang 0.5.23: a process group of the trainer (rank 0) and all engines, a pause that puts running requests
back, an update between begin and end in which each bucket is announced by HTTP and then broadcast; the version goes
with the last bucket, so that no engine says it before it has all.
"""

import importlib
import json
import socket
import sys
import urllib.request
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

GROUP = "trainer"
BUCKETS = 3
SECONDS = 120


def post(url: str, path: str, body: dict[str, Any]) -> None:
    """Errors: urllib.error.HTTPError for any answer but 200."""
    request = urllib.request.Request(url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=SECONDS) as answer:
        answer.read()


class Engines:
    """The same request to all of them at once; each joins a group under a rank of its own."""

    def __init__(self, urls: list[str]) -> None:
        self._urls = urls
        self._threads = ThreadPoolExecutor(len(urls))

    def begin(self, path: str, **body: Any) -> list[Future[None]]:
        bodies = [body | ({"rank_offset": at} if "rank_offset" in body else {}) for at, _ in enumerate(self._urls, 1)]
        return [self._threads.submit(post, url, path, body) for url, body in zip(self._urls, bodies, strict=True)]

    def post(self, path: str, **body: Any) -> None:
        wait(self.begin(path, **body))


def wait(answers: list[Future[None]]) -> None:
    for answer in answers:
        answer.result(SECONDS)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def main(folder: Path, version: str, urls: list[str]) -> None:
    # By name, so that the project's own environment, which has none of them, can check this file.
    distributed: Any = importlib.import_module("torch.distributed")
    files: Any = importlib.import_module("safetensors.torch")
    sglang: Any = importlib.import_module("sglang.srt.utils")

    engines, port, world = Engines(urls), free_port(), len(urls) + 1
    where = {"master_address": "127.0.0.1", "master_port": port, "world_size": world}
    joined = engines.begin("/init_weights_update_group", rank_offset=1, group_name=GROUP, backend="gloo", **where)
    group: Any = sglang.init_custom_process_group(
        backend="gloo", init_method=f"tcp://127.0.0.1:{port}", world_size=world, rank=0, group_name=GROUP
    )
    wait(joined)
    weights: dict[str, Any] = files.load_file(folder / "model.safetensors")
    names = sorted(weights)
    size = -(-len(names) // BUCKETS)
    buckets = [names[at : at + size] for at in range(0, len(names), size)]
    engines.post("/pause_generation", mode="retract")
    engines.post("/begin_weight_update")
    for bucket in buckets:
        answers = engines.begin(
            "/update_weights_from_distributed",
            names=bucket,
            dtypes=["float32"] * len(bucket),
            shapes=[list(weights[name].shape) for name in bucket],
            group_name=GROUP,
            weight_version=version if bucket is buckets[-1] else None,
        )
        for name in bucket:
            distributed.broadcast(weights[name], src=0, group=group)
        wait(answers)
    engines.post("/end_weight_update")
    engines.post("/continue_generation")
    # Those of the engines end when they are told to, and wait for nobody.
    engines.post("/destroy_weights_update_group", group_name=GROUP)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
