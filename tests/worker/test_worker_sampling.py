"""What bends the distribution, what was left of it, and what the time of the group cuts short."""

from typing import Any

import numpy as np
import pytest

from rolloutfleet.broker import Entry
from rolloutfleet.lengths import completed_field, lost_field
from rolloutfleet.messages import Sample
from rolloutfleet.sampling import seed_of
from tests.fakes.engine import FakeEngine, Json, said
from tests.worker.fleet import Fleet, until

MASKED = {"output_token_sampling_mask": [[1, 4], [2], [3, 5, 6]], "output_token_sampling_logprobs": [-0.1, 0.0, -0.3]}


def masked(request: Json, **changes: Any) -> Json:
    """What an engine says that was asked for the sampling mask."""
    assert request["return_sampling_mask"] is True
    answer = said([1, 2, 3])
    answer["meta_info"] |= MASKED | changes
    return answer


async def samples(fleet: Fleet) -> list[Sample]:
    """Those of the only group, once it is completed."""

    async def taken() -> list[Entry]:
        return (await fleet.broker.take("trainer", 1))[1]

    (entry,) = await until(taken)
    found, _ = await fleet.broker.samples(entry.id, entry.born)
    await fleet.broker.ack([entry.entry])
    return [Sample.decode(data) for _, data in sorted(found.items())]


async def test_a_raw_entry_that_bends_what_the_run_wants_unbent_is_a_dead_letter(fleet: Fleet) -> None:
    await fleet.configure(n=1)
    await fleet.push(b'{"id": "g", "input_ids": [5], "label": "4", "sampling_params": {"presence_penalty": 1}}')
    async with fleet.worker():
        (letter,) = await fleet.dead(1)
    assert "presence_penalty would bend the distribution" in letter["reason"]


async def test_what_bends_travels_with_each_sample(fleet: Fleet, engine: FakeEngine) -> None:
    await fleet.configure(n=2, bent_sampling="allow")
    await fleet.submit("g", sampling_params={"temperature": 0.5, "presence_penalty": 1, "max_new_tokens": 9})
    async with fleet.worker():
        found = await samples(fleet)
    assert [sample.sampling for sample in found] == [{"temperature": 0.5, "presence_penalty": 1}] * 2
    assert "return_sampling_mask" not in engine.requests[0]


async def test_the_sampling_mask_is_kept_beside_the_tokens(fleet: Fleet, engine: FakeEngine) -> None:
    await fleet.configure(n=1, bent_sampling="allow")
    engine.script = masked
    await fleet.submit("g", sampling_params={"top_p": 0.9, "top_k": 50})
    async with fleet.worker():
        (sample,) = await samples(fleet)
    extra = sample.rows[0].extra
    assert extra["sampling_mask"].tolist() == [1, 4, 2, 3, 5, 6]
    assert extra["sampling_mask_lengths"].tolist() == [2, 1, 3]
    np.testing.assert_allclose(extra["sampling_logprobs"], [-0.1, 0.0, -0.3], rtol=1e-6)


async def test_an_aborted_samples_masks_are_joined(fleet: Fleet, engine: FakeEngine) -> None:
    await fleet.configure(n=1, bent_sampling="allow")

    def script(request: Json) -> Json:
        answer = masked(request)
        if len(engine.requests) == 1:
            answer["meta_info"]["finish_reason"] = {"type": "abort"}
        return answer

    engine.script = script
    await fleet.submit("g", sampling_params={"top_k": 3})
    async with fleet.worker():
        (sample,) = await samples(fleet)
    assert sample.rows[0].extra["sampling_mask_lengths"].tolist() == [2, 1, 3, 2, 1, 3]


@pytest.mark.parametrize(
    "wrong",
    [
        {"output_token_sampling_mask": None},
        {"output_token_sampling_mask": [[1], [2]]},
        {"output_token_sampling_mask": [[1], [2], [4]]},
        {"output_token_sampling_mask": [[1], [2], [3, 100]]},
        {"output_token_sampling_mask": [[1], [2], 3]},
        {"output_token_sampling_logprobs": [-0.1, 0.0]},
        {"output_token_sampling_logprobs": [-0.1, 0.0, float("nan")]},
    ],
)
async def test_a_mask_that_does_not_fit_the_tokens_is_unsound(fleet: Fleet, engine: FakeEngine, wrong: Json) -> None:
    await fleet.configure(n=1, bent_sampling="allow")
    engine.script = lambda request: masked(request, **(wrong if len(engine.requests) == 1 else {}))
    await fleet.submit("g", sampling_params={"top_k": 3})
    async with fleet.worker():
        await samples(fleet)
    assert len(engine.requests) == 2


async def test_equal_samples_are_counted(fleet: Fleet, engine: FakeEngine) -> None:
    await fleet.configure(n=4)
    engine.script = lambda _: said([len(engine.requests) // 2, 9])  # 0, 1, 1, 2
    await fleet.submit("g")
    async with fleet.worker():
        (entry,) = await fleet.completed(1)
        assert entry.fields["equal"] == b"1"
        await until(lambda: fleet.stat("equal_samples"))


async def test_the_entry_says_the_engines_dtype(fleet: Fleet, engine: FakeEngine) -> None:
    await fleet.configure(n=1)
    engine.server_info["dtype"] = "bfloat16"
    await fleet.submit("g")
    async with fleet.worker():
        (entry,) = await fleet.completed(1)
    assert entry.fields["dtype"] == b"bfloat16"


SEED = {"sampling_seed": 0}


class Endless:
    """An engine whose answers to one sample never end by themselves; an abort brings the tokens so far."""

    def __init__(self, engine: FakeEngine, partial: list[int], index: int = 1) -> None:
        self._engine = engine
        self._partial = partial
        self._seed = seed_of(0, "g", index)

    async def __call__(self, request: Json) -> Json:
        if request["sampling_params"]["sampling_seed"] != self._seed:
            return said([1, 2, 3])
        await until(lambda: request["rid"] in self._engine.aborted)
        return said(self._partial, finish="abort")


async def test_with_truncate_what_runs_out_of_time_is_delivered_masked(fleet: Fleet, engine: FakeEngine) -> None:
    await fleet.configure(n=2, group_seconds=3, timeout="truncate", max_attempts=99)
    engine.script = Endless(engine, [7, 8])
    await fleet.submit("g", sampling_params=SEED)
    async with fleet.worker():
        found = await samples(fleet)
    assert [(sample.finish, sample.rows[0].ids.tolist(), sample.rows[0].mask.tolist()) for sample in found] == [
        ("stop", [1, 2, 3], [1, 1, 1]),
        ("timeout", [7, 8], [0, 0]),
    ]


async def test_a_custom_generate_that_is_cut_short_is_delivered_too(fleet: Fleet, engine: FakeEngine) -> None:
    await fleet.configure(n=2, group_seconds=3, timeout="truncate", max_attempts=99)
    engine.script = Endless(engine, [7, 8])
    await fleet.submit("g", sampling_params=SEED)
    async with fleet.worker(generate="tests.worker.hooks:two_turns"):
        found = await samples(fleet)
    assert [sample.finish for sample in found] == ["stop", "timeout"]


@pytest.mark.parametrize(("timeout", "partial"), [("fail", [7, 8]), ("truncate", [])])
async def test_a_group_fails_by_its_time_where_the_run_says_so_or_a_sample_has_no_token(
    fleet: Fleet, engine: FakeEngine, timeout: str, partial: list[int]
) -> None:
    await fleet.configure(n=1, group_seconds=1, max_attempts=1, timeout=timeout)
    engine.script = Endless(engine, partial, index=0)
    await fleet.submit("g", sampling_params=SEED)
    async with fleet.worker():
        (letter,) = await fleet.dead()
    assert letter["reason"] == "group took longer than group_seconds = 1"


async def test_lost_and_completed_groups_are_counted_by_the_length_they_came_to(
    fleet: Fleet, engine: FakeEngine
) -> None:
    await fleet.configure(n=1, group_seconds=1, max_attempts=1)
    engine.script = Endless(engine, [7] * 40, index=0)
    await fleet.submit("g", "h", sampling_params=SEED)
    async with fleet.worker():
        await fleet.dead()
        await fleet.completed(1)
        await until(lambda: fleet.stat(lost_field("timeout", 40)))
        await until(lambda: fleet.stat(completed_field(3)))


async def test_a_prompt_that_the_context_has_no_room_for_is_counted_so(fleet: Fleet) -> None:
    await fleet.configure(n=1)
    await fleet.submit("g", sampling_params={"max_new_tokens": 5000})
    async with fleet.worker():
        await fleet.dead()
        await until(lambda: fleet.stat(lost_field("context", 0)))
