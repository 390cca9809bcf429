"""Proves that a delivered group is what the engine said, from the bytes in Redis.

Written from docs/protocol.md with msgpack and struct alone: it shares nothing with the library's own decoding, so that
a fault there can't hide itself.
"""

import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import msgpack

from rolloutfleet.sampling import seed_of

type Ints = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Said:
    """A good answer: it went on after `before`, tokens of the same sample. `versions`: one for each token."""

    before: Ints
    ids: Ints
    logprobs: tuple[float, ...]
    versions: Ints
    finish: str
    text: str


@dataclass(frozen=True, slots=True)
class Whole:
    """A sample as it must be, joined from one answer or from several."""

    ids: Ints
    logprobs: bytes
    versions: Ints
    finish: str
    text: str


def score(ids: Sequence[int]) -> float:
    """The reward of a hostile run: hardly another sample has the same."""
    total = 0
    for token in ids:
        total = (total * 31 + token + 1) % 1_000_003
    return float(total)


def wholes(said: Sequence[Said]) -> Iterator[Whole]:
    """Every sample that these answers to one (prompt, index) can have become."""
    for last in said:
        if last.finish != "abort":
            for chain in _chains(said, last):
                yield Whole(
                    ids=tuple(token for part in chain for token in part.ids),
                    logprobs=b"".join(struct.pack("<f", number) for part in chain for number in part.logprobs),
                    versions=tuple(version for part in chain for version in part.versions),
                    finish=last.finish,
                    text="".join(part.text for part in chain),
                )


def _chains(said: Sequence[Said], last: Said) -> Iterator[list[Said]]:
    if not last.before:
        yield [last]
    for part in said:
        if part.finish == "abort" and last.before and part.before + part.ids == last.before:
            for chain in _chains(said, part):
                yield [*chain, last]


def faults_of(
    entry: Mapping[str, bytes], group: Mapping[bytes, bytes], stored: Mapping[bytes, bytes], said: Mapping[Any, Any]
) -> list[str]:
    """What is wrong with a delivered group; nothing, if it is sound.

    `entry`: fields in `completed`; `group`, `stored`: its two hashes; `said`: (prompt ids, seed) -> good answers.
    """
    try:
        return list(_faults_of(entry, group, stored, said))
    except (LookupError, ValueError, TypeError, struct.error, msgpack.UnpackException) as error:
        return [f"it can't be read: {error!r}"]


def _faults_of(
    entry: Mapping[str, bytes], group: Mapping[bytes, bytes], stored: Mapping[bytes, bytes], said: Mapping[Any, Any]
) -> Iterator[str]:
    prompt = tuple(json.loads(group[b"text"])["input_ids"])
    n = int(entry["n"])
    if group[b"born"] != entry["born"]:
        yield "its incarnation is another one"
    if "prompt" in {name.decode() for name in stored} and _int32(stored[b"prompt"]) != prompt:
        yield "the stored prompt ids are not the prompt's"
    if {name for name in stored if name != b"prompt"} != {b"%d" % index for index in range(n)}:
        yield f"{sorted(stored)} are stored of {n} samples"
        return
    lengths: list[int] = []
    scores: list[float] = []
    versions: list[int] = []
    for index in range(n):
        sample: Any = msgpack.unpackb(stored[b"%d" % index])
        seed = seed_of(0, entry["id"].decode(), index)
        whole, fault = _whole_of(sample, index, said.get((prompt, seed), ()))
        if whole is None:
            yield f"sample {index}: {fault}"
            return
        lengths.append(len(whole.ids))
        scores.append(score(whole.ids))
        versions += whole.versions
    told = {name: json.loads(entry[name]) for name in ("lengths", "rewards", "versions", "group_reward")}
    right = {"lengths": lengths, "rewards": scores, "versions": [min(versions), max(versions)], "group_reward": None}
    yield from (
        f"{name} are {told[name]}, and {right[name]} of these samples" for name in told if told[name] != right[name]
    )


def _whole_of(sample: Any, index: int, said: Sequence[Said]) -> tuple[Whole | None, str]:
    if (sample["v"], sample["index"], sample["reward"], sample["metadata"]) != (1, index, None, {}):
        return None, "its fields are not those of this sample"
    (row,) = sample["rows"]
    ids = _int32(row["ids"])
    if len(row["logprobs"]) != 4 * len(ids) or row["mask"] != b"\1" * len(ids) or set(row) & {"prompt", "extra"}:
        return None, "its arrays don't fit together"
    versions: list[int] = []
    for version, start, end in row["spans"]:
        if type(start) is not int or start != len(versions) or end <= start:
            return None, f"its spans {row['spans']} have gaps"
        versions += [version] * (end - start)
    if len(list(groupby(versions))) != len(row["spans"]):
        return None, f"its spans {row['spans']} are not joined"
    found = Whole(ids, row["logprobs"], tuple(versions), sample["finish"], sample["text"])
    return (found, "") if found in set(wholes(said)) else (None, f"the engine never said {found}")


def _int32(data: bytes) -> Ints:
    return struct.unpack(f"<{len(data) // 4}i", data)
