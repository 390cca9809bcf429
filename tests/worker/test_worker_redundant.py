"""Redundant samples: n + r are asked for, the first n win, and everybody can see it."""

import asyncio
import json

from rolloutfleet.messages import Row, Sample
from rolloutfleet.reading import fetch
from tests.fakes.engine import Chosen, FakeEngine, Json, never, said
from tests.worker import hooks
from tests.worker.fleet import Fleet, until
from worker.generate import Session
from worker.race import Race, redundant_of

SEED = {"sampling_seed": 1}


def first_two_answer(engine: FakeEngine) -> None:
    """The seeds tell candidates apart; those of the first two requests are answered, the others never."""
    quick: list[int] = []

    async def script(request: Json) -> Json:
        seed = request["sampling_params"]["sampling_seed"]
        if len(quick) < 2:
            quick.append(seed)
            return said([len(quick)])
        await asyncio.Event().wait()
        raise AssertionError

    engine.script = script


async def test_the_first_n_answers_win_and_the_surplus_is_aborted(fleet: Fleet, engine: FakeEngine) -> None:
    first_two_answer(engine)
    await fleet.configure(n=2, redundant=2)
    await fleet.submit("g", sampling_params=SEED)
    async with fleet.worker():
        (entry,) = await fleet.completed(1)
        await until(lambda: len(engine.aborted) == len(engine.requests) - 2)
    assert json.loads(entry.fields["lengths"]) == [1, 1]
    assert entry.fields["redundant"] == b"2"
    assert len(engine.requests) <= 4
    assert await fleet.stat("samples") == 2


async def test_a_group_says_that_its_samples_won_a_race(fleet: Fleet, engine: FakeEngine) -> None:
    first_two_answer(engine)
    await fleet.configure(n=2, redundant=1)
    await fleet.submit("g", sampling_params=SEED)
    async with fleet.worker():
        await until(lambda: fleet.stat("completed"))
        _, entries = await fleet.broker.take("trainer", 1)
        (group,) = await fetch(fleet.broker, entries)
        await fleet.broker.ack([group.entry])
        await until(lambda: fleet.stat("samples_surplus"))
    assert [sample.index for sample in group.samples] == [0, 1]
    assert [sample.sampling["candidates"] for sample in group.samples] == [3, 3]
    assert (group.redundant, group.to_json()["redundant"]) == (1, 1)
    assert await fleet.stat("samples_surplus") == 1


async def test_without_redundant_samples_nothing_is_flagged(fleet: Fleet) -> None:
    await fleet.configure(n=2)
    await fleet.submit("g")
    async with fleet.worker():
        (entry,) = await fleet.completed(1)
    assert entry.fields["redundant"] == b"0"


async def test_the_next_holder_makes_what_is_missing_with_seeds_of_its_own(fleet: Fleet, engine: FakeEngine) -> None:
    seeds: list[int] = []

    async def script(request: Json) -> Chosen:
        seeds.append(request["sampling_params"]["sampling_seed"])
        return said([1]) if len(seeds) == 1 or fleet_is_second else await never(request)

    fleet_is_second = False
    engine.script = script
    await fleet.configure(n=2, redundant=1)
    await fleet.submit("g", sampling_params=SEED)
    async with fleet.worker(drain_seconds=0) as first:
        await until(lambda: fleet.stat("samples"))
        await until(lambda: len(seeds) == 3)
        first.stop.ask()
        await first.ended()
        winner, fleet_is_second = seeds[0], True
        async with fleet.worker():
            (entry,) = await fleet.completed(1)
    assert winner not in seeds[3:]
    assert (entry.fields["redundant"], await fleet.stat("samples")) == (b"1", 2)


async def test_environments_of_the_surplus_are_closed(fleet: Fleet, engine: FakeEngine) -> None:
    hooks.switches.clear()
    hooks.switches["play"] = Session.generate
    first_two_answer(engine)
    await fleet.configure(n=2, redundant=2)
    await fleet.submit("g", sampling_params=SEED)
    async with fleet.worker(generate="tests.worker.hooks:Environment"):
        await fleet.completed(1)
    assert all(environment.is_closed == 1 for environment in hooks.switches["made"])


async def test_a_candidate_that_fails_fails_its_group(fleet: Fleet, engine: FakeEngine) -> None:
    gate = asyncio.Event()

    async def script(_: Json) -> Chosen:
        if len(engine.requests) == 3:
            gate.set()
            return 400
        await gate.wait()
        return await never(_)

    engine.script = script
    await fleet.configure(n=2, redundant=1)
    await fleet.submit("g")
    async with fleet.worker():
        (letter,) = await fleet.dead()
    assert "the engine refuses the request" in letter["reason"]


def stored_of(*numbers: int) -> dict[int, bytes]:
    def sample(index: int, number: int) -> bytes:
        row = Row.make([1], [-0.5])
        return Sample(index, "stop", (row,), sampling={"candidate": number, "candidates": 5}).encode()

    return {index: sample(index, number) for index, number in enumerate(numbers)}


def test_candidates_whose_samples_are_stored_do_not_run_again() -> None:
    assert Race(3, 2, stored_of(0, 3)).numbers == [1, 2, 4]


def test_nobody_runs_for_a_group_that_is_finished() -> None:
    race = Race(2, 2, stored_of(0, 1))
    assert (race.numbers, race.surplus) == ([], 0)


def test_answers_take_the_free_indices_in_the_order_in_which_they_finish() -> None:
    race = Race(3, 1, stored_of(2))
    assert [race.place(number) for number in (3, 0, 1)] == [1, 2, None]


def test_without_redundant_samples_each_has_its_own_index() -> None:
    race = Race(3, 0, stored_of(0))
    assert race.numbers == [1, 2]
    assert (race.place(2), race.facts(2)) == (2, {})


def test_a_sample_tells_of_how_many_it_was_one() -> None:
    assert redundant_of(Sample.decode(stored_of(0)[0]), 3) == 2
    assert redundant_of(Sample(0, "stop", ()), 3) == 0
