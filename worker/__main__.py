"""`python -m worker`: exit code 0 after a drain, 2 for a wrong setting, 3 when this process was evicted."""

import asyncio
import signal
import sys
from collections.abc import Sequence

from pydantic import ValidationError

from rolloutfleet.settings import explain
from worker.logs import set_up
from worker.settings import WorkerSettings, WrongSetting
from worker.start import serve
from worker.worker import Stop

_LAST_SECONDS = 1.0  # for what is cancelled at the end


def main(argv: Sequence[str]) -> int:
    try:
        settings = WorkerSettings(_cli_parse_args=list(argv))  # pyright: ignore[reportCallIssue]  # from the environment
    except ValidationError as error:
        return _refuse(explain(error))
    set_up(settings.log_level)
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(_serve(settings))
    except WrongSetting as error:
        return _refuse(str(error))
    finally:
        _end(loop)


async def _serve(settings: WorkerSettings) -> int:
    stop = Stop()
    loop = asyncio.get_running_loop()
    for which in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(which, stop.ask)
    return await serve(settings, stop)


def _end(loop: asyncio.AbstractEventLoop) -> None:
    # asyncio.run would wait for ever for a hook that swallows its cancellation.
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if left:
        loop.run_until_complete(asyncio.wait(left, timeout=_LAST_SECONDS))
    loop.close()


def _refuse(sentence: str) -> int:
    sys.stderr.write(f"worker: {sentence}\n")
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
