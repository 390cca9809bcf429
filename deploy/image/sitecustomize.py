"""Read by every Python of the image before anything else: a process ends on SIGTERM also while it still starts.

The kernel drops signals to which process 1 of a container has no answer of its own, so a pod that is deleted while its
packages are still being read would stay for its whole grace. Each process replaces this answer by its drain.
"""

import os
import signal

END = 128 + signal.SIGTERM  # what a shell says of a process that ended by it


def _end(*_: object) -> None:
    os._exit(END)


signal.signal(signal.SIGTERM, _end)
