"""One line per event: time, level, logger, message (with key=value where a machine reads along)."""

import logging
import sys
import time


class OneLine(logging.Formatter):
    """A traceback goes onto the line, too."""

    converter = time.gmtime
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def format(self, record: logging.LogRecord) -> str:
        return super().format(record).replace("\n", "\\n")


def set_up(level: str) -> None:
    lines = logging.StreamHandler(sys.stderr)
    lines.setFormatter(OneLine("%(asctime)s %(levelname)s %(name)s %(message)s"))
    logging.basicConfig(level=level, handlers=[lines], force=True)
