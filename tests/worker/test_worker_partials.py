"""Samples that are broken off: from where they go on, here and at the group's next holder."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from rolloutfleet.messages import Row, Sample
from tests.fakes.engine import Events, FakeEngine, Json, never, said
from tests.worker.fleet import Fleet, until
from worker.partials import can_continue

LETTERS = {token: chr(ord("a") + token) for token in range(26)}
A, B, C, D, E, X, Y = (ord(letter) - ord("a") for letter in "abcdexy")


@pytest.fixture
def engine_with_texts(engine: FakeEngine) -> FakeEngine:
    engine.texts = dict(LETTERS)
    return engine


async def stored(fleet: Fleet) -> Sample:
    """The only sample of group g, which is completed and then acked."""
    await until(lambda: fleet.stat("completed"))
    (born,) = await fleet.broker.calls.read([["HGET", fleet.broker.keys.group("g"), "born"]])
    samples, _ = await fleet.broker.samples("g", born.decode())
    await fleet.completed(1)
    return Sample.decode(samples[0])


async def kept(fleet: Fleet) -> Sample | None:
    """What the broker has of the unfinished sample 0 of group g."""
    (born,) = await fleet.broker.calls.read([["HGET", fleet.broker.keys.group("g"), "born"]])
    found = await fleet.broker.partials("g", born.decode())
    return Sample.decode(found[0]) if 0 in found else None


def in_turn(engine: FakeEngine, *answers: Any) -> None:
    engine.script = lambda _: answers[len(engine.requests) - 1]


def spelled(ids: Sequence[int]) -> str:
    return "".join(LETTERS[token] for token in ids)


# An abort


async def test_the_last_token_of_an_aborted_answer_is_made_again(fleet: Fleet, engine_with_texts: FakeEngine) -> None:
    engine = engine_with_texts
    await fleet.configure(n=1)
    broken = said([A, B, C], finish="abort", version="7", text="abc")
    in_turn(engine, broken, said([D], version="8", text="d", logprob=-2.0))
    await fleet.submit("g", sampling_params={"max_new_tokens": 10})
    async with fleet.worker():
        sample = await stored(fleet)
    (row,) = sample.rows
    assert engine.requests[1]["input_ids"] == [5, 6, A, B]
    assert engine.requests[1]["sampling_params"]["max_new_tokens"] == 8
    assert (sample.text, row.ids.tolist(), row.logprobs.tolist()) == ("abd", [A, B, D], [-0.5, -0.5, -2.0])
    assert (row.spans, row.mask.tolist()) == (((7, 0, 2), (8, 2, 3)), [1, 1, 1])


async def test_tokens_that_may_begin_a_stop_string_are_made_again(fleet: Fleet, engine_with_texts: FakeEngine) -> None:
    await fleet.configure(n=1)
    in_turn(engine_with_texts, said([A, B, C, D, E], finish="abort", text="abcde"), said([X], text="x"))
    await fleet.submit("g", sampling_params={"stop": ["de"]})
    async with fleet.worker():
        assert (await stored(fleet)).text == "abx"
    assert engine_with_texts.requests[1]["input_ids"] == [5, 6, A, B]


async def test_a_character_is_not_torn(fleet: Fleet, engine_with_texts: FakeEngine) -> None:
    engine_with_texts.texts = LETTERS | {B: "\ufffd"}
    await fleet.configure(n=1)
    in_turn(engine_with_texts, said([A, B, C], finish="abort", text="a\ufffdc"), said([X], text="x"))
    await fleet.submit("g")
    async with fleet.worker():
        assert (await stored(fleet)).text == "ax"


@pytest.mark.parametrize("bound", [{"json_schema": "{}"}, {"frequency_penalty": 0.5}, {"stop_regex": "x+"}])
async def test_what_is_bound_to_one_request_begins_again(
    fleet: Fleet, engine_with_texts: FakeEngine, bound: Json
) -> None:
    await fleet.configure(n=1, bent_sampling="allow")
    in_turn(engine_with_texts, said([A, B, C], finish="abort", text="abc"), said([X], text="x"))
    await fleet.submit("g", sampling_params=bound)
    async with fleet.worker():
        assert (await stored(fleet)).rows[0].ids.tolist() == [X]
    assert engine_with_texts.requests[1]["input_ids"] == [5, 6]


def test_neutral_parameters_bind_nothing() -> None:
    assert can_continue({"frequency_penalty": 0.0, "repetition_penalty": 1, "json_schema": None, "temperature": 0.7})


async def test_what_the_sampling_left_is_joined_and_cut_with_the_tokens(
    fleet: Fleet, engine_with_texts: FakeEngine
) -> None:
    def with_mask(answer: Json, places: list[list[int]]) -> Json:
        meta = answer["meta_info"]
        meta |= {"output_token_sampling_mask": places, "output_token_sampling_logprobs": [-0.25] * len(places)}
        return answer

    await fleet.configure(n=1, bent_sampling="allow")
    first = with_mask(said([A, B, C], finish="abort", text="abc"), [[A, X], [B], [C, X, Y]])
    in_turn(engine_with_texts, first, with_mask(said([D], text="d"), [[D, Y]]))
    await fleet.submit("g", sampling_params={"top_k": 3})
    async with fleet.worker():
        (row,) = (await stored(fleet)).rows
    assert row.extra["sampling_mask"].tolist() == [A, X, B, D, Y]
    assert row.extra["sampling_mask_lengths"].tolist() == [2, 1, 2]


# The next holder


def begins_with(ids: Sequence[int], then: Any) -> Any:
    """A script: until it is told to abort, an endless answer; to whoever has the first tokens, `then`."""

    def script(request: Json) -> Any:
        return then if request.get("input_ids", [])[2:] else Events([said(ids, finish=None, text="")], hangs=True)

    return script


async def worked_until_something_was_kept(fleet: Fleet) -> None:
    """A worker that stores partial samples, and is then stopped at once: its engine is not asked for more."""
    async with fleet.worker(partial_tokens=2) as worker:
        await until(lambda: kept(fleet))
        worker.stop.ask()
        worker.stop.ask()
        await worker.ended()


async def test_the_next_holder_goes_on_from_what_a_killed_one_had_stored(
    fleet: Fleet, engine_with_texts: FakeEngine
) -> None:
    await fleet.configure(n=1)
    engine_with_texts.script = begins_with([A, B, C], said([D], text="d", version="8"))
    await fleet.submit("g", sampling_params={"max_new_tokens": 10})
    await worked_until_something_was_kept(fleet)
    async with fleet.worker(partial_tokens=2):
        sample = await stored(fleet)
    (row,) = sample.rows
    assert engine_with_texts.requests[0]["sampling_params"]["stream_interval"] == 2
    assert engine_with_texts.requests[1]["input_ids"] == [5, 6, A, B]
    assert engine_with_texts.requests[1]["sampling_params"]["max_new_tokens"] == 8
    assert (sample.text, sample.finish, row.ids.tolist()) == ("abd", "stop", [A, B, D])
    assert row.spans == ((7, 0, 2), (8, 2, 3))
    assert (await fleet.stat("samples"), await fleet.stat("tokens_continued")) == (1, 2)


async def test_what_was_begun_of_a_text_prompt_brings_the_prompts_ids(
    fleet: Fleet, engine_with_texts: FakeEngine
) -> None:
    begun = Events([said([A, B], finish=None, text="", prompt_token_ids=[X, Y])], hangs=True)
    await fleet.configure(n=1)
    engine_with_texts.script = lambda request: begun if "text" in request else said([C], text="c")
    await fleet.submit("g", prompt="two?", input_ids=None)
    await worked_until_something_was_kept(fleet)
    async with fleet.worker():
        sample = await stored(fleet)
    assert engine_with_texts.requests[1]["input_ids"] == [X, Y, A]
    assert (sample.text, sample.rows[0].prompt) == ("ac", None)


async def test_a_drained_worker_stores_what_the_engine_tells_when_it_is_aborted(
    fleet: Fleet, engine_with_texts: FakeEngine
) -> None:
    engine = engine_with_texts

    async def script(request: Json) -> Any:
        if request["input_ids"][2:]:
            return said([D], text="d")
        await until(lambda: request["rid"] in engine.aborted)
        return said([A, B, C], finish="abort", text="abc")

    await fleet.configure(n=1)
    engine.script = script
    await fleet.submit("g")
    async with fleet.worker(drain_seconds=0) as first:
        await until(lambda: engine.requests)
        first.stop.ask()
        await first.ended()
        assert await fleet.stat("released:free") == 1
        assert (found := await kept(fleet)) is not None
        assert found.rows[0].ids.tolist() == [A, B, C]
        async with fleet.worker():
            assert (await stored(fleet)).rows[0].ids.tolist() == [A, B, D]


async def test_an_engine_that_tells_nothing_holds_up_no_drain(
    fleet: Fleet, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("worker.group.LEAVE_SECONDS", 0.2)
    await fleet.configure(n=1)
    engine.script = never
    await fleet.submit("g")
    async with fleet.worker(drain_seconds=0) as worked:
        await until(lambda: engine.requests)
        worked.stop.ask()
        assert await worked.ended() == 0
    assert await fleet.stat("released:free") == 1
    engine.script = lambda _: said([1])
    async with fleet.worker():
        await fleet.completed(1)


@pytest.mark.parametrize("change", [{"temperature": 0.5}, {"max_new_tokens": 77}])
async def test_what_was_made_under_other_parameters_is_not_continued(
    fleet: Fleet, engine_with_texts: FakeEngine, change: Json
) -> None:
    await fleet.configure(n=1)
    engine_with_texts.script = begins_with([A, B, C], said([D], text="d"))
    await fleet.submit("g")
    await worked_until_something_was_kept(fleet)
    engine_with_texts.script = lambda _: said([X], text="x")
    async with fleet.worker(**change):
        assert (await stored(fleet)).rows[0].ids.tolist() == [X]


async def test_without_the_engines_tokenizer_the_next_holder_begins_again(fleet: Fleet, engine: FakeEngine) -> None:
    await fleet.configure(n=1)
    engine.script = begins_with([A, B, C], said([D]))
    await fleet.submit("g")
    await worked_until_something_was_kept(fleet)
    engine.script = lambda _: said([X])
    async with fleet.worker():
        assert (await stored(fleet)).rows[0].ids.tolist() == [X]


async def test_what_can_not_be_read_is_not_continued(fleet: Fleet, engine_with_texts: FakeEngine) -> None:
    await fleet.configure(n=1)
    engine_with_texts.script = begins_with([A, B, C], said([D], text="d"))
    await fleet.submit("g")
    await worked_until_something_was_kept(fleet)
    (born,) = await fleet.broker.calls.read([["HGET", fleet.broker.keys.group("g"), "born"]])
    await fleet.broker.calls.read([["HSET", fleet.broker.keys.partial("g", born.decode()), 0, b"\xff"]])
    engine_with_texts.script = lambda _: said([X], text="x")
    async with fleet.worker():
        assert (await stored(fleet)).rows[0].ids.tolist() == [X]


# Streams


async def test_a_stream_is_answered_like_a_single_answer(fleet: Fleet, engine: FakeEngine) -> None:
    await fleet.configure(n=1)
    engine.script = lambda _: Events([said([A], finish=None), said([A, B], finish=None), said([A, B, C])])
    await fleet.submit("g")
    async with fleet.worker(partial_tokens=1):
        row: Row = (await stored(fleet)).rows[0]
    assert (row.ids.tolist(), len(engine.requests)) == ([A, B, C], 1)


async def test_a_refusal_in_a_stream_is_a_refusal(fleet: Fleet, engine: FakeEngine) -> None:
    await fleet.configure(n=1)
    engine.script = lambda _: Events([{"error": {"message": "top_p must be in (0, 1]", "code": 400}}])
    await fleet.submit("g")
    async with fleet.worker(partial_tokens=1):
        (letter,) = await fleet.dead()
    assert letter["reason"] == "the engine refuses the request (400): top_p must be in (0, 1]"


async def test_a_full_queue_in_a_stream_is_asked_again(fleet: Fleet, engine: FakeEngine) -> None:
    full: Json = {"type": "abort", "message": "The request queue is full.", "status_code": 503}
    await fleet.configure(n=1)
    engine.script = lambda _: Events([said([], finish=full)]) if len(engine.requests) == 1 else said([A])
    await fleet.submit("g")
    async with fleet.worker(partial_tokens=1, max_tries=1):
        await fleet.completed(1)


async def test_a_stream_that_is_cut_off_is_asked_again(fleet: Fleet, engine: FakeEngine) -> None:
    await fleet.configure(n=1)

    async def script(_: Json) -> Any:
        if len(engine.requests) == 1:
            asyncio.get_running_loop().call_later(0.2, lambda: asyncio.ensure_future(restart()))
            return Events([said([A], finish=None)], hangs=True)
        return said([B])

    async def restart() -> None:
        await engine.stop()
        await engine.start()

    engine.script = script
    await fleet.submit("g")
    async with fleet.worker(partial_tokens=1):
        assert (await stored(fleet)).rows[0].ids.tolist() == [B]
