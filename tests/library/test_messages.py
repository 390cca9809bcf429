"""The wire format: prompt groups as JSON, samples as msgpack around raw arrays, readable without this library."""

import json
import struct
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rolloutfleet.arrays import pack_array, unpack_array
from rolloutfleet.errors import InvalidGroup, ProtocolMismatch
from rolloutfleet.messages import PromptGroup, Row, Sample
from rolloutfleet.reading import read_rewards

KNOWN = set(PromptGroup.model_fields)
TEXT = st.text(st.characters(exclude_categories=["Cs"]))
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=10,
)
IDS = st.lists(st.integers(0, 2**31 - 1), max_size=20)


@st.composite
def samples(draw: st.DrawFn) -> Sample:
    return Sample(
        index=draw(st.integers(0, 4095)),
        finish=draw(st.sampled_from(["stop", "length"])),
        rows=tuple(draw(st.lists(rows(), min_size=1, max_size=3))),
        text=draw(TEXT),
        reward=draw(st.none() | st.floats(allow_nan=False, allow_infinity=False)),
        metadata=draw(st.dictionaries(TEXT, st.none() | st.integers(-(2**63), 2**64 - 1) | TEXT, max_size=3)),
    )


@st.composite
def rows(draw: st.DrawFn) -> Row:
    ids = draw(IDS)
    middle = draw(st.integers(0, len(ids)))
    version = draw(st.integers(-1, 2**31))
    return Row(
        ids=np.asarray(ids, dtype="<i4"),
        logprobs=np.linspace(-5, 0, len(ids), dtype="<f4"),
        mask=np.arange(len(ids), dtype="u1") % 2,
        spans=((version, 0, middle), (version + 1, middle, len(ids))),
        prompt=draw(st.none() | IDS.map(lambda prompt: np.asarray(prompt, dtype="<i4"))),
        extra={"experts": np.arange(6, dtype=draw(st.sampled_from(["<i2", ">i4", "<f8"]))).reshape(2, 3)},
    )


def as_plain(sample: Sample) -> Any:
    """Something that `==` compares by value."""
    return (
        (sample.index, sample.finish, sample.text, sample.reward, dict(sample.metadata)),
        [
            (
                *(row.ids.tolist(), row.logprobs.tolist(), row.mask.tolist(), row.spans),
                None if row.prompt is None else row.prompt.tolist(),
                [(name, array.tolist(), array.dtype.kind) for name, array in row.extra.items()],
            )
            for row in sample.rows
        ],
    )


# Samples


@given(samples())
def test_a_sample_comes_back_as_it_went(sample: Sample):
    assert as_plain(Sample.decode(sample.encode())) == as_plain(sample)


def test_arrays_are_decoded_without_copying():
    data = Sample(0, "stop", (Row.make([1, 2, 3], [-0.1, -0.2, -0.3]),)).encode()
    (row,) = Sample.decode(data).rows
    assert not row.ids.flags.owndata
    assert not row.logprobs.flags.writeable


def test_a_reader_with_nothing_but_msgpack_and_struct_understands_a_sample():
    row = Row.make([7, 8, 2**31 - 1], [-0.5, -0.25, 0.0], version=3)
    message = msgpack.unpackb(Sample(1, "length", (row,), text="so", reward=0.5, metadata={"turns": 2}).encode())
    (read,) = message.pop("rows")
    assert message == {"v": 1, "index": 1, "finish": "length", "text": "so", "reward": 0.5, "metadata": {"turns": 2}}
    assert struct.unpack("<3i", read["ids"]) == (7, 8, 2**31 - 1)
    assert struct.unpack("<3f", read["logprobs"]) == (-0.5, -0.25, 0.0)
    assert read["mask"] == b"\1\1\1"
    assert read["spans"] == [[3, 0, 3]]


def test_a_writer_with_nothing_but_msgpack_and_struct_is_understood():
    row: dict[str, Any] = {
        "ids": struct.pack("<2i", 5, 6),
        "logprobs": struct.pack("<2f", -1, -2),
        "mask": b"\1\0",
        "spans": [],
    }
    message: dict[str, Any] = {
        "v": 1,
        "index": 0,
        "finish": "stop",
        "text": "",
        "reward": None,
        "metadata": {},
        "rows": [row],
    }
    sample = Sample.decode(msgpack.packb(message))
    assert sample.rows[0].ids.tolist() == [5, 6]
    assert (sample.length, sample.versions) == (2, (-1, -1))


def test_a_big_endian_array_travels_as_little_endian():
    packed = pack_array(np.asarray([[1, 2]], dtype=">i4"))
    assert (packed["dtype"], packed["shape"], packed["data"]) == ("<i4", [1, 2], struct.pack("<2i", 1, 2))
    assert unpack_array(packed).tolist() == [[1, 2]]


def test_an_array_of_objects_does_not_travel():
    with pytest.raises(InvalidGroup, match="only plain numbers travel"):
        pack_array(np.asarray([object()]))
    with pytest.raises(InvalidGroup, match="only plain numbers travel"):
        unpack_array({"dtype": "|O", "shape": [1], "data": b"\0" * 8})


def test_a_sample_of_a_newer_format_says_so():
    message = msgpack.unpackb(Sample(0, "stop", ()).encode()) | {"v": 2}
    with pytest.raises(ProtocolMismatch, match="has format 2, this reads up to 1"):
        Sample.decode(msgpack.packb(message))


def test_what_a_newer_writer_adds_is_passed_over():
    message = msgpack.unpackb(Sample(0, "stop", ()).encode()) | {"of_tomorrow": [1]}
    assert Sample.decode(msgpack.packb(message)) == Sample(0, "stop", ())


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (Row.make([1, 2], [-1.0]), "lengths of a row disagree: 2 ids, 1 log-probabilities"),
        (Row.make([1], [float("nan")]), "not a finite number"),
        (Row.make([1], [float("-inf")]), "not a finite number"),
        (Row(np.zeros(2, "<i4"), np.zeros(2, "<f4"), np.ones(1, "u1")), "lengths of a row disagree"),
        (Row(np.zeros(2, "<i4"), np.zeros(2, "<f4"), np.ones(2, "u1"), ((1, 0, 1),)), "spans do not cover"),
        (Row(np.zeros(2, "<i4"), np.zeros(2, "<f4"), np.ones(2, "u1"), ((1, 0, 1), (2, 0, 2))), "spans do not cover"),
        (Row(np.zeros(2, "<i4"), np.zeros(2, "<f4"), np.ones(2, "u1"), ((1, 1, 2),)), "spans do not cover"),
    ],
)
def test_an_unsound_row_is_neither_written_nor_read(row: Row, reason: str):
    with pytest.raises(InvalidGroup, match=reason):
        Sample(0, "stop", (row,)).encode()


GOOD = Sample(3, "stop", (Row.make([1, 2, 3], [-0.5] * 3),), "text", 1.0, {"a": 1}).encode()


@pytest.mark.parametrize("length", range(len(GOOD)))
def test_a_sample_that_was_cut_off_is_invalid(length: int):
    with pytest.raises(InvalidGroup):
        Sample.decode(GOOD[:length])


@settings(max_examples=500)
@given(st.integers(0, len(GOOD) - 1), st.binary(min_size=1, max_size=8))
def test_a_damaged_sample_is_a_sample_or_invalid_and_never_another_error(at: int, damage: bytes):
    try:
        sample = Sample.decode(GOOD[:at] + damage + GOOD[at + len(damage) :])
    except (InvalidGroup, ProtocolMismatch):
        return
    assert isinstance(sample.length, int)


ROW: dict[str, Any] = {"ids": b"", "logprobs": b"", "mask": b"", "spans": []}


CHANGES: list[dict[str, Any]] = [
    {"v": None},
    {"v": "1"},
    {"index": "0"},
    {"index": -1},
    {"index": True},
    {"finish": None},
    {"text": b"bytes"},
    {"reward": "1"},
    {"reward": float("nan")},
    {"metadata": []},
    {"rows": None},
    {"rows": [None]},
    {"rows": [ROW | {"ids": b"\0"}]},
    {"rows": [ROW | {"ids": "text"}]},
    {"rows": [ROW | {"spans": [[1]]}]},
    {"rows": [ROW | {"spans": [[float("inf"), 0, 0]]}]},
    {"rows": [ROW | {"spans": 3}]},
    {"rows": [ROW | {"extra": []}]},
    {"rows": [ROW | {"extra": {"x": {"dtype": "no such", "shape": [1], "data": b""}}}]},
    {"rows": [ROW | {"extra": {"x": {"dtype": "<i4", "shape": [7], "data": b""}}}]},
    {"rows": [ROW | {"extra": {"x": {"dtype": "<i4", "data": b""}}}]},
]


@pytest.mark.parametrize("change", CHANGES, ids=repr)
def test_a_message_with_a_wrong_field_is_invalid(change: dict[str, Any]):
    message = msgpack.unpackb(GOOD) | change
    with pytest.raises(InvalidGroup):
        Sample.decode(msgpack.packb(message))


def test_versions_are_the_oldest_and_the_newest_over_all_rows():
    sample = Sample(0, "stop", (Row.make([1], [-1.0], 7), Row.make([1], [-1.0], 5)))
    assert (sample.versions, sample.length) == ((5, 7), 2)


# Rewards


def test_rewards_are_n_finite_numbers_or_none():
    assert read_rewards(b"[1, 0.5]", 2) == (1.0, 0.5)
    assert read_rewards(b"null", 2) is None


@pytest.mark.parametrize(
    "text", [b"[1]", b"[1, NaN]", b"[1, Infinity]", b"[1, null]", b'[1, "1"]', b"7", b"{}", b"[", b""]
)
def test_rewards_that_are_not_n_finite_numbers_are_invalid(text: bytes):
    with pytest.raises(InvalidGroup):
        read_rewards(text, 2)


# Prompt groups


@given(st.dictionaries(TEXT.filter(lambda name: name not in KNOWN), PLAIN, max_size=4), PLAIN, PLAIN)
@example({"model_config": 1, "copy": 2, "json": [], "_private": {}}, [], {})
def test_unknown_keys_are_kept_and_handed_back(unknown: dict[str, Any], metadata: Any, label: Any):
    given_ = {"id": "a", "prompt": "2+2", "metadata": metadata, "label": label, **unknown}
    group = PromptGroup.make(given_)
    expected = {name: value for name, value in given_.items() if value is not None}
    assert json.loads(group.to_text()) == expected
    assert PromptGroup.from_text(group.to_text()).model_dump() == group.model_dump()
    assert group.model_extra == {name: value for name, value in unknown.items() if value is not None}


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({}, "exactly one of prompt, messages and input_ids (there is none)"),
        ({"prompt": ""}, "prompt: String should have at least 1 character"),
        ({"prompt": "a", "input_ids": [1]}, "there is prompt and input_ids"),
        ({"prompt": 7}, "prompt: Input should be a valid string"),
        ({"messages": []}, "messages: List should have at least 1 item"),
        ({"messages": ["hello"]}, "messages: Input should be a valid dictionary"),
        ({"input_ids": []}, "input_ids: List should have at least 1 item"),
        ({"input_ids": [1, "2"]}, "input_ids: Input should be a valid integer"),
        ({"input_ids": [1, 2.5]}, "input_ids: Input should be a valid integer"),
        ({"prompt": "a", "n": 0}, "n: Input should be greater than or equal to 1"),
        ({"prompt": "a", "n": 4097}, "n: Input should be less than or equal to 4096"),
        ({"prompt": "a", "n": 1.5}, "n: Input should be a valid integer"),
        ({"prompt": "a", "n": True}, "n: Input should be a valid integer"),
        ({"prompt": "a", "id": ""}, "id: String should have at least 1 character"),
        ({"prompt": "a", "id": "é" * 129}, "id: longer than 256 bytes"),
        ({"prompt": "a", "id": 7}, "id: Input should be a valid string"),
        (
            {"prompt": "a", "sampling_params": {"n": 4, "heat": 1}},
            "sampling_params: unknown sampling parameters heat, n (n is a field of the group)",
        ),
        ({"prompt": "a", "metadata": float("nan")}, "Out of range float values"),
        ({"prompt": "\ud800"}, "lone surrogates"),
        ({"prompt": "a", "metadata": {"deep": ["\udfff"]}}, "lone surrogates"),
    ],
    ids=repr,
)
def test_a_group_that_can_never_work_is_refused_with_the_field_and_the_reason(value: dict[str, Any], reason: str):
    with pytest.raises(InvalidGroup) as refusal:
        PromptGroup.make(value)
    assert reason in str(refusal.value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"2+2", "not JSON"),
        (b"", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b'["a"]', "not a JSON object but list"),
        (b"null", "not a JSON object but NoneType"),
        (b'{"prompt": "a", "metadata": NaN}', "NaN is not JSON"),
        (b'{"prompt": "a", "metadata": -Infinity}', "-Infinity is not JSON"),
        (rb'{"prompt": "\ud800"}', "lone surrogates"),
        (b'{"prompt": "a", "metadata": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "not JSON"),
    ],
    ids=range(9),
)
def test_a_text_that_is_no_group_is_refused_with_the_reason(text: bytes, reason: str):
    with pytest.raises(InvalidGroup, match=reason):
        PromptGroup.from_text(text)


def test_a_text_that_is_too_long_is_refused_before_it_is_decoded():
    with pytest.raises(InvalidGroup, match="11 bytes, and max_bytes is 10"):
        PromptGroup.from_text(b"[[[[[[[[[[[", max_bytes=10)


@settings(max_examples=300)
@given(st.binary(max_size=60) | st.text(max_size=30).map(lambda text: json.dumps({"prompt": text, "n": 1}).encode()))
def test_any_bytes_are_a_group_or_invalid_and_never_another_error(text: bytes):
    try:
        group = PromptGroup.from_text(text)
    except InvalidGroup:
        return
    assert group.n == 1


def test_a_group_without_an_id_gets_one_of_its_own():
    ids = {PromptGroup.make({"prompt": "a"}).id for _ in range(10)}
    assert len(ids) == 10
