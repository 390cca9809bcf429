"""A row that grows, turn by turn: ids, log-probabilities, mask, version spans, and what the sampling left.

Invariants: its parts always have the same length; a cut forgets the same tokens in each of them; a row that was built
and read again grows on as if it had never been built.
"""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from rolloutfleet.arrays import Ints
from rolloutfleet.messages import UNKNOWN_VERSION, Row, Span
from worker.answers import Kept, Piece, join_spans


class RowBuilder:
    """`prompt`: the row's own prompt ids, where they are not the group's."""

    def __init__(self, prompt: Sequence[int] | None = None) -> None:
        self.prompt = prompt
        self.ids: list[int] = []
        self._logprobs: list[float] = []
        self._mask = bytearray()
        self._kept: list[Sequence[int]] = []  # token by token, what the sampling left; empty: all, or no policy's
        self._kept_logprobs: list[float] = []
        # Tokens that no policy made are of the version beside them, so that they make nothing look older than it is;
        # None: those at the beginning, which wait for the first turn.
        self._spans: list[tuple[int | None, int, int]] = []

    @classmethod
    def of(cls, row: Row) -> Self:
        """Goes on with a row that was built."""
        builder = cls(None if row.prompt is None else row.prompt.tolist())
        builder.ids = row.ids.tolist()
        builder._logprobs = row.logprobs.tolist()
        builder._mask = bytearray(row.mask.tobytes())
        builder._spans = list(row.spans)
        builder._extend_kept(_read_kept(row), len(row))
        return builder

    @property
    def has_made_tokens(self) -> bool:
        """Whether the policy made any of the tokens."""
        return any(self._mask)

    def append(self, ids: Sequence[int], mask: int) -> None:
        if not ids:
            return
        version = self._spans[-1][0] if self._spans else None
        self._spans.append((version, len(self.ids), len(self.ids) + len(ids)))
        self.ids.extend(ids)
        self._logprobs.extend([0.0] * len(ids))
        self._mask.extend(bytes([1 if mask else 0]) * len(ids))
        self._extend_kept(None, len(ids))

    def extend(self, piece: Piece) -> None:
        at = len(self.ids)
        self._spans.extend((version, start + at, end + at) for version, start, end in piece.spans)
        self.ids.extend(piece.ids.tolist())
        self._logprobs.extend(piece.logprobs.tolist())
        self._mask.extend(b"\1" * len(piece.ids))
        self._extend_kept(piece.kept, len(piece.ids))

    def _extend_kept(self, kept: Kept | None, length: int) -> None:
        if kept is None:
            self._kept.extend([()] * length)
            self._kept_logprobs.extend([0.0] * length)
            return
        self._kept.extend(part.tolist() for part in np.split(kept.ids, np.cumsum(kept.lengths)[:-1]))
        self._kept_logprobs.extend(kept.logprobs.tolist())

    def cut(self, length: int) -> None:
        """Forgets everything after the first `length` tokens."""
        del self.ids[length:], self._logprobs[length:], self._mask[length:]
        del self._kept[length:], self._kept_logprobs[length:]
        self._spans = [(version, start, min(end, length)) for version, start, end in self._spans if start < length]

    def since(self, begin: int) -> tuple[tuple[int, ...], tuple[float, ...]]:
        """Ids and log-probabilities from token `begin` on."""
        return tuple(self.ids[begin:]), tuple(self._logprobs[begin:])

    def build(self, is_masked: bool = False) -> Row:
        first = next((version for version, _, _ in self._spans if version is not None), UNKNOWN_VERSION)
        spans: list[Span] = [(first if version is None else version, start, end) for version, start, end in self._spans]
        return Row(
            np.asarray(self.ids, dtype="<i4"),
            np.asarray(self._logprobs, dtype="<f4"),
            np.frombuffer(bytes(len(self._mask)) if is_masked else bytes(self._mask), dtype="u1"),
            join_spans(spans),
            None if self.prompt is None else np.asarray(self.prompt, dtype="<i4"),
            self._extra(),
        )

    def built_with(self, piece: Piece) -> Row:
        """The row as it would be with this piece; it does not grow by that."""
        grown = type(self).of(self.build())
        grown.extend(piece)
        return grown.build()

    def _extra(self) -> dict[str, npt.NDArray[Any]]:
        if not any(self._kept):
            return {}
        return {
            "sampling_mask": np.asarray([token for place in self._kept for token in place], dtype="<i4"),
            "sampling_mask_lengths": np.asarray([len(place) for place in self._kept], dtype="<i4"),
            "sampling_logprobs": np.asarray(self._kept_logprobs, dtype="<f4"),
        }


def _read_kept(row: Row) -> Kept | None:
    if "sampling_mask" not in row.extra:
        return None
    ids: Ints = row.extra["sampling_mask"]
    return Kept(ids, row.extra["sampling_mask_lengths"], row.extra["sampling_logprobs"])
