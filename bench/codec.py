"""Encoding and decoding a group of 16 samples of 32k tokens, beside JSON."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Sequence

import numpy as np

from bench.place import Place
from bench.rows import Row, Table, at_most
from rolloutfleet.messages import Row as SampleRow
from rolloutfleet.messages import Sample

SAMPLES = 16


async def measure(place: Place) -> Table:
    """Needs no server."""
    tokens = place.pick(32_768, 4096)
    samples = [_sample(index, tokens) for index in range(SAMPLES)]
    wire = [sample.encode() for sample in samples]
    text = [_to_json(sample) for sample in samples]
    ours: list[float] = []
    plain: list[float] = []
    for turn in range(place.pick(60, 5)):
        ours.append(_milliseconds(lambda: [Sample.decode(sample.encode()) for sample in samples]))
        if turn % 12 == 0:  # it is slow
            plain.append(_milliseconds(lambda: [json.loads(_to_json(sample)) for sample in samples]))
    rows = [
        Row("encode + decode, median", statistics.median(ours), "ms", at_most(5)),
        Row("    the best turn", min(ours), "ms"),
        Row("    on the wire", _mebibytes(wire), "MiB"),
        Row("the same as JSON, median", statistics.median(plain), "ms"),
        Row("    on the wire", _mebibytes(text), "MiB"),
        Row("    JSON's time in ours", statistics.median(plain) / statistics.median(ours), "times"),
    ]
    facts = (f"{SAMPLES} samples of {tokens:,} tokens with log-probabilities, mask and one span of versions",)
    return Table("codec", rows, facts)


def _sample(index: int, tokens: int) -> Sample:
    random = np.random.default_rng(index)
    ids = random.integers(0, 151_936, tokens).tolist()
    return Sample(index, "stop", (SampleRow.make(ids, (-random.exponential(1.0, tokens)).tolist(), 7),))


def _to_json(sample: Sample) -> bytes:
    (row,) = sample.rows
    fields = {
        "index": sample.index,
        "ids": row.ids.tolist(),
        "logprobs": row.logprobs.tolist(),
        "mask": row.mask.tolist(),
    }
    return json.dumps(fields).encode()


def _milliseconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return (time.perf_counter() - start) * 1000


def _mebibytes(parts: Sequence[bytes]) -> float:
    return sum(map(len, parts)) / 2**20
