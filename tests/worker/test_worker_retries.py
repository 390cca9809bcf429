"""Engines that fail, refuse, abort or answer nonsense."""

import asyncio
import json
from typing import Any

import pytest

from rolloutfleet.messages import Row, Sample
from rolloutfleet.sampling import seed_of
from tests.fakes.engine import FakeEngine, Reply, never, said
from tests.worker.fleet import Fleet, until
from worker.hints import Hints


async def stored_row(fleet: Fleet) -> Row:
    """The row of the only sample of group g, which is completed and then acked."""
    await until(lambda: fleet.stat("completed"))
    (born,) = await fleet.broker.calls.read([["HGET", fleet.broker.keys.group("g"), "born"]])
    samples, _ = await fleet.broker.samples("g", born.decode())
    await fleet.completed(1)
    return Sample.decode(samples[0]).rows[0]


@pytest.mark.parametrize("trouble", [500, 429, 401])
async def test_what_is_not_the_groups_fault_is_asked_again(fleet: Fleet, engine: FakeEngine, trouble: int) -> None:
    await fleet.configure(n=1)
    engine.script = lambda _: trouble if len(engine.requests) < 3 else said([1])
    await fleet.submit("g")
    async with fleet.worker():
        (entry,) = await fleet.completed(1)
        await until(lambda: fleet.stat("retries"))
    assert (entry.fields["attempts"], await fleet.stat("retries")) == (b"1", 2)


async def test_a_request_that_hangs_ends_at_its_timeout_and_is_made_again(fleet: Fleet, engine: FakeEngine) -> None:
    await fleet.configure(n=1)
    engine.script = lambda request: never(request) if len(engine.requests) == 1 else said([1])
    await fleet.submit("g")
    async with fleet.worker(request_timeout_seconds=0.2):
        await fleet.completed(1)
    assert len({request["rid"] for request in engine.requests}) == 2


async def test_a_request_that_hangs_is_aborted_at_the_engine(fleet: Fleet, engine: FakeEngine) -> None:
    await fleet.configure(n=1)
    engine.script = lambda request: never(request) if len(engine.requests) == 1 else said([1])
    await fleet.submit("g")
    async with fleet.worker(request_timeout_seconds=0.2):
        await fleet.completed(1)
        await until(lambda: engine.aborted)
    assert engine.requests[0]["rid"] in engine.aborted


async def test_the_answer_to_another_request_is_asked_again(fleet: Fleet, engine: FakeEngine) -> None:
    await fleet.configure(n=1)
    others = said([2])
    others["meta_info"]["id"] = "another"
    engine.script = lambda _: others if len(engine.requests) == 1 else said([1])
    await fleet.submit("g")
    async with fleet.worker():
        assert (await stored_row(fleet)).ids.tolist() == [1]


async def test_a_refused_request_makes_a_dead_letter_in_the_servers_words(fleet: Fleet, engine: FakeEngine) -> None:
    await fleet.configure()
    engine.script = lambda _: Reply(b'{"object": "error", "message": "top_p must be in (0, 1]"}', 400)
    await fleet.submit("g")
    async with fleet.worker():
        (letter,) = await fleet.dead()
    assert letter["reason"] == "the engine refuses the request (400): top_p must be in (0, 1]"
    assert len(engine.requests) <= 2


@pytest.mark.parametrize(
    "body",
    [
        b"<html>400 Bad Request</html>",
        b"",
        b'{"detail": "Not Found"}',
        b"[]",
        b'{"error": null}',
        b'{"object": "error"}',
    ],
)
async def test_a_refusal_that_is_not_the_engines_own_is_asked_again(
    fleet: Fleet, engine: FakeEngine, body: bytes
) -> None:
    await fleet.configure(n=1)
    engine.script = lambda _: Reply(body, 400) if len(engine.requests) == 1 else said([1])
    await fleet.submit("g")
    async with fleet.worker():
        (entry,) = await fleet.completed(1)
    assert (len(engine.requests), entry.fields["attempts"]) == (2, b"1")


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (b"<html>", "sample 0: not JSON, 2 tries"),
        (said([1], finish="bewildered"), "sample 0: unknown finish reason 'bewildered', 2 tries"),
        (said([1, 200]), "sample 0: a token id is outside of the vocabulary of 100, 2 tries"),
        (Reply(b'{"text": "' + b"x" * 1000, close=True), "sample 0: cut off: ClientPayloadError, 2 tries"),
    ],
    ids=["not JSON", "finish", "vocabulary", "connection closed"],
)
async def test_unsound_answers_are_asked_again_and_then_fail_the_group_with_the_reason(
    fleet: Fleet, engine: FakeEngine, broken: Any, reason: str
) -> None:
    await fleet.configure(n=1, max_attempts=1)
    engine.script = lambda _: broken
    await fleet.submit("g")
    async with fleet.worker(max_tries=2):
        (letter,) = await fleet.dead()
    assert letter["reason"] == reason
    assert len(engine.requests) == 2


async def test_one_unsound_answer_costs_one_more_request_and_nothing_else(fleet: Fleet, engine: FakeEngine) -> None:
    await fleet.configure(n=1)
    engine.script = lambda _: b"" if len(engine.requests) == 1 else said([1])
    await fleet.submit("g")
    async with fleet.worker():
        (entry,) = await fleet.completed(1)
    assert (len(engine.requests), entry.fields["attempts"]) == (2, b"1")


async def test_an_idle_worker_waits_no_longer_than_until_a_failed_group_s_delay_is_over(
    fleet: Fleet, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float | None] = []
    wait = Hints.wait

    async def watched(hints: Hints, interrupt: asyncio.Event, seconds: float | None = None) -> bool:
        waits.append(seconds)
        return await wait(hints, interrupt, seconds)

    monkeypatch.setattr(Hints, "wait", watched)
    await fleet.configure(n=1, retry_seconds=3)
    engine.script = lambda _: b"" if len(engine.requests) == 1 else said([1])
    await fleet.submit("g")
    async with fleet.worker(max_tries=1):
        (entry,) = await fleet.completed(1)
    assert entry.fields["attempts"] == b"2"
    assert any(seconds is not None and seconds <= 3 for seconds in waits)


@pytest.mark.usefixtures("impatient")
async def test_a_failed_sample_leaves_its_finished_siblings_stored(fleet: Fleet, engine: FakeEngine) -> None:
    await fleet.configure(n=2, max_attempts=9)
    failing = True

    async def script(request: dict[str, Any]) -> Any:
        if request["sampling_params"]["sampling_seed"] == seed_of(0, "g", 1) and failing:
            await until(lambda: fleet.stat("samples"))
            return b""
        return said([1])

    engine.script = script
    await fleet.submit("g", sampling_params={"sampling_seed": 0})
    async with fleet.worker(max_tries=1):
        await until(lambda: fleet.stat("released:fail"))
        failing = False
        await fleet.completed(1)
    seeds = [request["sampling_params"]["sampling_seed"] for request in engine.requests]
    assert seeds.count(seed_of(0, "g", 0)) == 1


async def test_an_aborted_sample_goes_on_from_its_tokens(fleet: Fleet, engine: FakeEngine) -> None:
    await fleet.configure(n=1, bent_sampling="allow")
    answers = [said([1, 2], finish="abort", version="7", text="a"), said([3], version="8", logprob=-2.0, text="b")]
    engine.script = lambda _: answers[len(engine.requests) - 1]
    await fleet.submit("g", sampling_params={"max_new_tokens": 10, "min_new_tokens": 3})
    async with fleet.worker():
        row = await stored_row(fleet)
    assert engine.requests[1]["input_ids"] == [5, 6, 1, 2]
    assert engine.requests[1]["sampling_params"] == {"temperature": 1.0, "max_new_tokens": 8, "min_new_tokens": 1}
    assert (row.ids.tolist(), row.logprobs.tolist()) == ([1, 2, 3], [-0.5, -0.5, -2.0])
    assert row.spans == ((7, 0, 2), (8, 2, 3))


async def test_an_abort_at_the_end_of_the_budget_is_a_length(fleet: Fleet, engine: FakeEngine) -> None:
    await fleet.configure(n=1)
    engine.script = lambda _: said([1, 2], finish="abort")
    await fleet.submit("g", sampling_params={"max_new_tokens": 2})
    async with fleet.worker():
        assert len(await stored_row(fleet)) == 2
    assert len(engine.requests) == 1


async def test_a_sample_that_is_aborted_too_often_begins_again(fleet: Fleet, engine: FakeEngine) -> None:
    await fleet.configure(n=1)
    engine.script = lambda _: said([1, 1], finish="abort" if len(engine.requests) <= 9 else "stop")
    await fleet.submit("g")
    async with fleet.worker():
        row = await stored_row(fleet)
    assert engine.requests[8]["input_ids"] == [5, 6, *[1] * 16]
    assert engine.requests[9]["input_ids"] == [5, 6]
    assert len(row) == 2


async def test_an_abort_without_tokens_is_just_asked_again(fleet: Fleet, engine: FakeEngine) -> None:
    await fleet.configure(n=1)
    queued: dict[str, Any] = {
        "text": "",
        "output_ids": [],
        "meta_info": {"finish_reason": {"type": "abort", "message": "queue"}},
    }
    engine.script = lambda _: queued if len(engine.requests) == 1 else said([1])
    await fleet.submit("g")
    async with fleet.worker():
        assert len(await stored_row(fleet)) == 1


async def test_an_aborted_text_prompt_goes_on_from_the_ids_that_the_engine_told(
    fleet: Fleet, engine: FakeEngine
) -> None:
    await fleet.configure(n=1)
    answers = [said([1, 3], finish="abort", prompt_token_ids=[40, 41]), said([2])]
    engine.script = lambda _: answers[len(engine.requests) - 1]
    await fleet.submit("g", prompt="two and two?", input_ids=None)
    async with fleet.worker():
        row = await stored_row(fleet)
    assert engine.requests[0]["text"] == "two and two?"
    assert engine.requests[1]["input_ids"] == [40, 41, 1, 3]
    assert row.ids.tolist() == [1, 3, 2]


async def test_a_group_that_is_given_up_aborts_its_running_requests_at_the_engine(
    fleet: Fleet, engine: FakeEngine
) -> None:
    await fleet.configure(n=2, max_attempts=1)

    async def script(request: dict[str, Any]) -> Any:
        if len(engine.requests) == 1:
            return await never(request)
        return 400

    engine.script = script
    await fleet.submit("g")
    async with fleet.worker():
        await fleet.dead()
        await until(lambda: engine.aborted)
    assert engine.requests[0]["rid"] in engine.aborted


async def test_a_group_that_takes_too_long_fails_and_says_so(fleet: Fleet, engine: FakeEngine) -> None:
    await fleet.configure(n=1, max_attempts=1, group_seconds=0.5)
    engine.script = never
    await fleet.submit("g")
    async with fleet.worker():
        (letter,) = await fleet.dead()
    assert letter["reason"] == "group took longer than group_seconds = 0.5"


async def test_while_the_engine_is_down_groups_are_given_back_and_none_is_claimed(
    fleet: Fleet, engine: FakeEngine
) -> None:
    await fleet.configure(n=2, max_attempts=1)
    engine.script = lambda request: said([1]) if len(engine.requests) == 1 else never(request)
    await fleet.submit("g", "h")
    async with fleet.worker(slots=2):
        await until(lambda: fleet.stat("samples"))
        await engine.stop()
        await until(lambda: fleet.stat("released:died"))
        await until(lambda: fleet.facts('"engine_down"'))
        claimed = await fleet.stat("claimed")
        engine.script = lambda _: said([1])
        await engine.start()
        entries = await fleet.completed(2)
    assert claimed == 2  # one at first, and one when a slot was free
    assert {entry.fields["attempts"] for entry in entries} == {b"1"}
    assert await fleet.stat("samples") == 4
    assert await fleet.stat("dead") == 0


async def test_a_prompt_that_kills_its_engine_ends_as_a_dead_letter_and_nothing_is_counted_of_its_neighbours(
    fleet: Fleet, engine: FakeEngine
) -> None:
    await fleet.configure(n=1, max_attempts=3)

    async def script(request: dict[str, Any]) -> Any:
        if request["input_ids"] != [66]:
            return said([1])
        killed.set()
        return await never(request)

    engine.script = script
    killed = asyncio.Event()
    await fleet.submit("killer", input_ids=[66])
    await fleet.submit(*(f"g{number}" for number in range(6)))
    async with fleet.worker(slots=4):
        while not await fleet.stat("dead"):
            if killed.is_set():
                await engine.stop()
                await until(lambda: fleet.facts('"engine_down"'))
                killed.clear()
                await engine.start()
            await asyncio.sleep(0.01)
        (letter,) = await fleet.dead()
        entries = await fleet.completed(6)
    assert letter["id"] == "killer"
    assert letter["reason"].startswith("the engine died: ")
    assert {entry.fields["attempts"] for entry in entries} == {b"1"}
    assert await fleet.stat("released:died_alone") >= 1


@pytest.mark.usefixtures("impatient")
async def test_an_engine_that_fails_every_request_is_down_though_it_says_that_it_is_ready(
    fleet: Fleet, engine: FakeEngine
) -> None:
    await fleet.configure(n=1, max_attempts=1)
    engine.script = lambda _: 500
    await fleet.submit("g")
    async with fleet.worker():
        await until(lambda: fleet.stat("released:died"))
        engine.script = lambda _: said([1])
        (entry,) = await fleet.completed(1)
    assert entry.fields["attempts"] == b"1"


async def test_a_full_engine_is_not_down(fleet: Fleet, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worker.health.TRIES_UNTIL_DOWN", 2)
    await fleet.configure(n=1)
    full = Reply(json.dumps({"object": "error", "message": "The request queue is full."}).encode(), 503)
    engine.script = lambda _: full if len(engine.requests) <= 3 else said([1])
    await fleet.submit("g")
    async with fleet.worker():
        await fleet.completed(1)
    assert await fleet.stat("released:free") == 0


async def test_a_worker_waits_for_an_engine_that_is_not_ready(fleet: Fleet, engine: FakeEngine) -> None:
    await fleet.configure(n=1)
    engine.is_ready = False
    await fleet.submit("g")
    async with fleet.worker() as worked:
        await asyncio.wait({worked.running}, timeout=0.3)
        claimed = await fleet.stat("claimed")
        engine.is_ready = True
        await fleet.completed(1)
    assert claimed == 0
