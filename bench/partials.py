"""What it costs to stream a sample so that its first tokens can be kept: bytes from the engine, time of the worker."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

import numpy as np

from bench.place import Place
from bench.rows import Row, Table
from rolloutfleet.broker import Begun, Broker
from rolloutfleet.messages import PromptGroup
from rolloutfleet.redis import connect
from rolloutfleet.settings import RunConfig
from worker.answers import Asked, Piece, check_answer, read_unfinished
from worker.partials import pack
from worker.rows import RowBuilder

ASKED = Asked("0" * 32)
SIZES: Sequence[tuple[int, int]] = ((2048, 256), (8192, 1024), (32_768, 1024), (32_768, 4096))


async def measure(place: Place) -> Table:
    """Events as SGLang sends them: each with everything from the beginning."""
    rows: list[Row] = []
    for tokens, interval in place.pick(SIZES, SIZES[:1]):
        answer = _event(tokens, is_finished=True)
        events = [_event(made, is_finished=False) for made in range(interval, tokens, interval)]
        alone = _milliseconds_to_check(answer)
        began = time.process_time()
        packed = [_pack(event) for event in events]
        spent = (time.process_time() - began) * 1000
        stored = await _store(place, packed)
        rows += [
            Row(f"{tokens:,} tokens, one event each {interval:,}", len(events), "events"),
            Row("    from the engine, times one answer", sum(map(len, (*events, answer))) / len(answer), "times"),
            Row("    the worker's CPU time, all events", spent, "ms"),
            Row("    that of the answer alone", alone, "ms"),
            Row("    stored, all events", sum(map(len, packed)) / 2**20, "MiB"),
            Row("    to store one, mean", stored, "ms"),
        ]
    return Table("partials", rows, ("one sample, log-probabilities included",))


def _event(tokens: int, is_finished: bool) -> bytes:
    random = np.random.default_rng(tokens)
    ids: list[int] = random.integers(0, 151_936, tokens).tolist()
    logprobs = (-random.exponential(1.0, tokens)).tolist()
    meta = {
        "id": ASKED.rid,
        "finish_reason": {"type": "length", "length": tokens} if is_finished else None,
        "output_token_logprobs": [[logprob, token, None] for logprob, token in zip(logprobs, ids, strict=True)],
        "weight_versions": [{"version": "7", "start": 0, "end": tokens}],
    }
    return json.dumps({"text": "word " * tokens, "output_ids": ids, "meta_info": meta}).encode()


def _milliseconds_to_check(answer: bytes) -> float:
    began = time.process_time()
    if not isinstance(check_answer(answer, ASKED), Piece):
        raise ValueError("the answer is unsound")
    return (time.process_time() - began) * 1000


def _pack(event: bytes) -> bytes:
    piece = read_unfinished(event, ASKED)
    data = None if piece is None else pack(0, RowBuilder().built_with(piece), "0" * 16)
    if data is None:
        raise ValueError("an event is unsound")
    return data


async def _store(place: Place, packed: Sequence[bytes]) -> float:
    """Milliseconds of one `keep`."""
    async with connect(place.url) as client:
        broker = Broker(client, "partials")
        await broker.configure(RunConfig(sample_concurrency=1, n=1))
        await broker.submit([PromptGroup(prompt="x")])
        (grant,) = (await broker.claim("pod/1", "pod/1/1", 1)).grants
        began = time.perf_counter()
        for data in packed:
            await broker.keep([Begun(grant.token, 0, data)])
        spent = (time.perf_counter() - began) * 1000
        await broker.release(grant.token, "reject", "measured")
    return spent / len(packed)
