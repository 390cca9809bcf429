"""What the main job shows while it runs: a block that is redrawn on a terminal, or plain lines.

Invariant: what was said stays above the block; without a terminal no control sequence is written.
"""

import shutil
from collections.abc import Sequence
from typing import IO

_UP_AND_CLEAR = "\x1b[{}A\x1b[J"
_COLUMNS = 80


class Screen:
    """`say` writes a line that stays; `draw` replaces the block below it, on a terminal."""

    def __init__(self, out: IO[str], is_live: bool) -> None:
        self.is_live = is_live
        self._out = out
        self._block: Sequence[str] = ()

    @property
    def width(self) -> int:
        return min(shutil.get_terminal_size((_COLUMNS, 24)).columns, 120) - 1

    def say(self, line: str) -> None:
        block = self._block
        self.clear()
        self._write([line])
        if block:
            self.draw(block)

    def draw(self, lines: Sequence[str]) -> None:
        if not self.is_live:
            return
        self.clear()
        # A block higher than the window could not be found again.
        most = max(1, shutil.get_terminal_size((_COLUMNS, 24)).lines - 1)
        self._block = [line[: self.width] for line in lines[:most]]
        self._write(self._block)

    def clear(self) -> None:
        if self._block:
            self._out.write(_UP_AND_CLEAR.format(len(self._block)))
        self._block = ()

    def _write(self, lines: Sequence[str]) -> None:
        self._out.write("".join(f"{line}\n" for line in lines))
        self._out.flush()
