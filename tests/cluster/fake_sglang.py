"""SGLang's command line where there is no GPU: an engine's first node serves as the simulated one, others only live.

It is put into pods as `sglang/launch_server.py`, so it imports nothing of the tests.
"""

import argparse
import os
import signal
import sys
from types import FrameType


def end(number: int, frame: FrameType | None) -> None:
    sys.exit(0)


parser = argparse.ArgumentParser()
for name in ("--model-path", "--host", "--port", "--nnodes", "--node-rank", "--dist-init-addr"):
    parser.add_argument(name, required=True)
known, more = parser.parse_known_args()
if known.node_rank == "0":
    words = [f"--host={known.host}", f"--port={known.port}", "--any-weights", *more]
    os.execv(sys.executable, [sys.executable, "-m", "deploy", "simulator", *words])
signal.signal(signal.SIGTERM, end)
while True:
    signal.pause()
