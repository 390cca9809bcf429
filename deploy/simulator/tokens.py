"""The simulated model's tokens: ids of answers, their log-probabilities, and a trivial tokenizer for prompts.

- A log-probability is a function of (token, position, weight version, seed) alone, finite, and below 0: who has the
  tokens and the versions of an answer can check every number in it.
- Where the vocabulary has room for it, ids of text and ids of answers are disjoint, so that the text at the head of
  `prompt + partial answer` can be read back.
"""

import math
import random
from collections.abc import Collection, Sequence
from hashlib import blake2b

_LONE_BYTES = 256
_TEXT_IDS = _LONE_BYTES + 65_536
_BLOCK = 1 << 16
_TABLE = 1 << 12
_LIKELY, _STEP, _COLDEST = 64, 0.15, 1e-6  # the likeliest ids, and by how much each is less so than the one before
_TOKEN_STRIDE = 40_503
_POSITION_STRIDE = 30_011


def text_to_ids(text: str, vocabulary: int) -> list[int]:
    """One id per two bytes of UTF-8; reversible when the vocabulary holds all pairs of bytes (65,792 ids)."""
    raw = text.encode("utf-8", "surrogatepass")
    ids = [_LONE_BYTES + (raw[at] << 8) + raw[at + 1] for at in range(0, len(raw) - 1, 2)]
    if len(raw) % 2:
        ids.append(raw[-1])
    return ids if vocabulary >= _TEXT_IDS else [token % vocabulary for token in ids]


def ids_to_text(ids: Sequence[int]) -> str:
    """The text that begins these ids, if they came from text_to_ids; otherwise what it looks like."""
    raw = bytearray()
    for token in ids:
        if token >= _TEXT_IDS:
            break
        if token < _LONE_BYTES:
            raw.append(token)
        else:
            raw += (token - _LONE_BYTES).to_bytes(2)
    return raw.decode("utf-8", "replace")


class TokenModel:
    """Token ids and log-probabilities of one simulated model."""

    def __init__(self, seed: int, vocabulary: int, stop_token: int) -> None:
        self._seed = seed
        self._vocabulary = vocabulary
        lowest = _TEXT_IDS if vocabulary >= 2 * _TEXT_IDS else 0
        choices = [token for token in range(lowest, vocabulary) if token != stop_token]
        draw = random.Random(seed)
        self._block = draw.choices(choices, k=_BLOCK)
        self._spare = sorted(draw.sample(choices, k=min(len(choices), 64)))
        # The long tail of surprising tokens is what makes sums of log-probabilities look real.
        self._logprobs = [round(-draw.expovariate(1.5) - 1e-4, 5) for _ in range(_TABLE)]
        self._logprob_texts = [repr(value) for value in self._logprobs]
        self._offsets: dict[str, int] = {}

    def sequence(self, start: float, length: int, avoid: Collection[int] = ()) -> list[int]:
        """`length` ids from a place in 0 to 1; none of them is in `avoid`, unless that leaves none."""
        first = int(start * _BLOCK)
        ids = self._block[first : first + length]
        while len(ids) < length:
            ids += self._block[: length - len(ids)]
        if not avoid:
            return ids
        instead = next((token for token in self._spare if token not in avoid), self._spare[0])
        return [instead if token in avoid else token for token in ids]

    def logprob(self, token: int, position: int, version: str) -> float:
        """Of the token at this place of an answer (0: its first), under these weights."""
        return self._logprobs[self._place(token, position, version)]

    def logprob_texts(self, tokens: Sequence[int], first: int, version: str) -> list[str]:
        """The log-probabilities of tokens that begin at place `first`, as JSON numbers."""
        texts, mask = self._logprob_texts, _TABLE - 1
        base = self._offset(version) + first * _POSITION_STRIDE
        return [texts[(token * _TOKEN_STRIDE + base + at * _POSITION_STRIDE) & mask] for at, token in enumerate(tokens)]

    def top_logprobs(self, token: int, count: int, temperature: float) -> list[tuple[int, float]]:
        """The likeliest (id, log-probability) at the place of a token, which is never among them, likeliest first: of
        a distribution that is the same everywhere, and follows the temperature."""
        scores = [-_STEP * rank / max(temperature, _COLDEST) for rank in range(_LIKELY)]
        total = math.log(sum(map(math.exp, scores)))
        return list(zip(self.neighbours(token, count + 1)[1:], [score - total for score in scores], strict=False))

    def neighbours(self, token: int, count: int) -> list[int]:
        """So many different ids, the token first."""
        return [(token + at) % self._vocabulary for at in range(min(count, self._vocabulary))]

    def _place(self, token: int, position: int, version: str) -> int:
        return (token * _TOKEN_STRIDE + position * _POSITION_STRIDE + self._offset(version)) & (_TABLE - 1)

    def _offset(self, version: str) -> int:
        if version not in self._offsets:
            digest = blake2b(version.encode("utf-8", "surrogatepass"), digest_size=4, key=b"%d" % self._seed).digest()
            self._offsets[version] = int.from_bytes(digest, "little")
        return self._offsets[version]
