"""A short run beside a hostile engine, and that its checker sees what it is there for.

`python -m tests.chaos.hostile --groups 2000` is the long run.
"""

import json
import struct
from collections.abc import Callable
from random import Random
from typing import Any

import msgpack
import pytest

from rolloutfleet.sampling import seed_of
from tests.chaos.hostile import HostileSettings, HostileVerdict, Row, run_hostile, table
from tests.chaos.lies import LIES, REFUSAL, Reply, tell
from tests.chaos.soundness import Said, faults_of, score
from worker.answers import Asked, Piece, check_answer

type Hash = dict[bytes, bytes]
type Sample = dict[str, Any]


@pytest.mark.chaos
@pytest.mark.timeout(100)
async def test_beside_a_hostile_engine_nothing_is_lost_and_nothing_unsound_is_delivered() -> None:
    verdict, tails = await run_hostile(HostileSettings(minutes=1))
    shown = "\n".join([*table(verdict), tails])
    assert verdict.holds, shown
    assert verdict.completed > verdict.groups * 0.9, shown
    assert all(times for row in verdict.rows for times in row.lies.values()), shown
    assert {name for row in verdict.rows for name in row.lies} == set(LIES)


# The checker: PROMPT's two samples; the second was aborted once, and continued under other weights.

PROMPT = (5, 6)
ONE = Said((), (7, 8), (-0.1, -0.2), (3, 3), "stop", "one")
BEGUN = Said((), (9,), (-0.3,), (3,), "abort", "tw")
ENDED = Said((9,), (10, 11), (-0.4, -0.5), (4, 4), "length", "o")
SAID = {(PROMPT, seed_of(0, "g", 0)): [BEGUN, ONE], (PROMPT, seed_of(0, "g", 1)): [ENDED, BEGUN]}


def packed(index: int, ids: list[int], logprobs: list[float], spans: list[list[int]], finish: str, text: str) -> Sample:
    row = {
        "ids": struct.pack(f"<{len(ids)}i", *ids),
        "logprobs": struct.pack(f"<{len(logprobs)}f", *logprobs),
        "mask": b"\1" * len(ids),
        "spans": spans,
    }
    return {"v": 1, "index": index, "finish": finish, "text": text, "reward": None, "metadata": {}, "rows": [row]}


def one() -> Sample:
    return packed(0, [7, 8], [-0.1, -0.2], [[3, 0, 2]], "stop", "one")


def two() -> Sample:
    return packed(1, [9, 10, 11], [-0.3, -0.4, -0.5], [[3, 0, 1], [4, 1, 3]], "length", "two")


def faults(first: Sample, second: Sample, *, stored: Hash | None = None, **entry: Any) -> list[str]:
    fields = {
        "n": 2,
        "lengths": [2, 3],
        "rewards": [score((7, 8)), score((9, 10, 11))],
        "versions": [3, 4],
        "group_reward": None,
    } | entry
    group = {b"text": json.dumps({"input_ids": PROMPT}).encode(), b"born": b"b"}
    samples = {b"%d" % at: msgpack.packb(sample) for at, sample in enumerate((first, second))}
    told = {name: json.dumps(value).encode() for name, value in fields.items()}
    return faults_of({**told, "id": b"g", "born": b"b"}, group, {**samples, **(stored or {})}, SAID)


def test_the_checker_finds_no_fault_with_a_sound_group() -> None:
    assert faults(one(), two()) == []


def in_row(**changes: Any) -> Callable[[Sample], object]:
    return lambda sample: sample["rows"][0].update(changes)


SPOILED: list[Callable[[Sample], object]] = [
    in_row(ids=struct.pack("<3i", 9, 10, 12)),
    in_row(ids=struct.pack("<2i", 9, 10)),
    in_row(ids=b"\0" * 11),
    in_row(logprobs=struct.pack("<3f", -0.3, -0.4, -0.50001)),
    in_row(logprobs=struct.pack("<3f", -0.3, -0.4, float("nan"))),
    in_row(logprobs=struct.pack("<2f", -0.3, -0.4)),
    in_row(mask=b"\1\1\0"),
    in_row(spans=[[4, 0, 3]]),
    in_row(spans=[[3, 0, 1], [4, 1, 2]]),
    in_row(spans=[[3, 0, 1], [4, 2, 3]]),
    in_row(spans=[[3, 0, 1], [4, 1, 2], [4, 2, 3]]),
    in_row(extra={}),
    lambda sample: sample.update(finish="stop"),
    lambda sample: sample.update(text="three"),
    lambda sample: sample.update(index=0),
    lambda sample: sample.update(v=2),
    lambda sample: sample["rows"].append(sample["rows"][0]),
    lambda sample: sample.pop("rows"),
]


@pytest.mark.parametrize("spoil", SPOILED, ids=range(len(SPOILED)))
def test_the_checker_sees_a_spoiled_sample(spoil: Callable[[Sample], object]) -> None:
    second = two()
    spoil(second)
    assert faults(one(), second)


def test_the_checker_sees_an_answer_that_was_aborted_and_never_continued() -> None:
    assert faults(one(), packed(1, [9], [-0.3], [[3, 0, 1]], "abort", "tw"), lengths=[2, 1])


def test_the_checker_sees_samples_in_each_others_place() -> None:
    first, second = packed(0, [9, 10, 11], [-0.3, -0.4, -0.5], [[3, 0, 1], [4, 1, 3]], "length", "two"), one()
    assert faults(first, second | {"index": 1})


@pytest.mark.parametrize(
    "entry",
    [
        {"rewards": [score((7, 8)), 0.0]},
        {"rewards": [score((9, 10, 11)), score((7, 8))]},
        {"lengths": [2, 2]},
        {"versions": [4, 4]},
        {"group_reward": 1.0},
        {"n": 3},
        {"n": 1},
    ],
    ids=str,
)
def test_the_checker_sees_an_entry_that_does_not_fit_its_samples(entry: dict[str, Any]) -> None:
    assert faults(one(), two(), **entry)


def test_the_checker_sees_prompt_ids_of_another_prompt() -> None:
    assert faults(one(), two(), stored={b"prompt": struct.pack("<2i", 5, 7)})


def test_a_verdict_with_an_uncounted_fault_does_not_hold() -> None:
    assert not verdict_of(counted=1).holds
    assert verdict_of(counted=2).holds


def verdict_of(counted: int) -> HostileVerdict:
    rows = [Row("spans", {"spans don't cover": 2}, 2, 2, counted)]
    return HostileVerdict(1, 1, 0, 0, 0, [], {}, 3, rows, [], 0, [0], 1.0)


# The lies: each variant that is an answer at all is refused under the name that the table demands.

SPOKEN = [kind for kind, (_, lie) in LIES.items() if lie is not None]


def good() -> dict[str, Any]:
    meta = {
        "id": "rid",
        "finish_reason": {"type": "stop"},
        "output_token_logprobs": [[-0.5, 1, None], [-0.25, 2, None]],
        "weight_versions": [{"version": "3", "start": 0, "end": 2}],
    }
    return {"text": "good", "output_ids": [1, 2], "meta_info": meta}


def whole_answers(kind: str) -> list[Reply]:
    told = [tell(kind, Random(seed), good()) for seed in range(60)]
    return [reply for reply in told if reply.status == 200 and not reply.cut]


@pytest.mark.parametrize("kind", [kind for kind in SPOKEN if whole_answers(kind)])
def test_every_variant_of_a_lie_is_refused_under_its_name(kind: str) -> None:
    found = [check_answer(reply.body, Asked("rid", 30_000)) for reply in whole_answers(kind)]
    useless = {"abort_without_tokens" if isinstance(one, Piece) and not len(one.ids) else "" for one in found}
    names = {one.name for one in found if not isinstance(one, Piece)} or useless
    assert names == {LIES[kind][0]}
    assert all(isinstance(one, Piece) == (kind == "abort without tokens") for one in found)


def test_the_lie_about_a_refusal_is_in_the_engines_words() -> None:
    assert all(REFUSAL.encode() in tell("400", Random(seed), good()).body for seed in range(20))
