"""`python -m deploy.local.child PARENT MODULE [ARGUMENT ...]`: runs a module as a process that dies with its parent.

The kernel does it (Linux), so that a parent that is killed with SIGKILL leaves nothing behind. Set here, in the new
process: doing it between fork and exec is unsafe beside threads.
"""

import ctypes
import os
import runpy
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    parent, module = int(sys.argv[1]), sys.argv[2]
    _die_with_parent(parent)
    sys.argv = [module, *sys.argv[3:]]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _die_with_parent(parent: int) -> None:
    if not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the kernel was told
        sys.exit(1)


if __name__ == "__main__":
    main()
