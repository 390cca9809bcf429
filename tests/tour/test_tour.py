"""A tour of the library, in the order in which a newcomer would ask. Read it from above; each test is one idea.

Three sides meet in Redis: whoever has prompts puts *prompt groups* in line, *workers* claim them and bring samples, and
*trainers* take completed groups. A worker here is a name, and its samples are made up; all else is real.
"""

import json
from typing import Any

import pytest
import redis.asyncio

from rolloutfleet import PromptGroup, Row, RunConfig, Sample, Trainer
from rolloutfleet.broker import Broker, Claim, Finished
from rolloutfleet.messages import Grant
from rolloutfleet.reading import read_dead
from rolloutfleet.status import read_status
from tests.fakes.worker import until

WORKER = "pod-1/1700000000000"  # <pod>/<start of its process in ms>
OTHER = "pod-2/1700000000000"


# What the pages below use


def prompts(*ids: str) -> list[PromptGroup]:
    return [PromptGroup(id=group_id, prompt=f"What is {group_id}?") for group_id in ids]


async def claim(broker: Broker, serial: int, most: int = 8, worker: str = WORKER) -> Claim:
    return await broker.claim(worker, f"{worker}/{serial}", most)


def finished(grant: Grant, index: int) -> Finished:
    """A sample of three tokens that policy 7 made."""
    row = Row.make(ids=[11, 12, 13], logprobs=[-0.1, -0.2, -0.3], version=7)
    return Finished(grant.id, grant.born, index, Sample(index, "stop", (row,), text="42").encode())


async def complete(broker: Broker, grant: Grant) -> str:
    await broker.put([finished(grant, index) for index in grant.missing])
    return await broker.complete(grant, {"rewards": "[1.0,0.0]", "worker": WORKER})


async def end(broker: Broker, trainer: Trainer) -> None:
    """The rest of the run: everything in line is claimed, completed and trained on."""
    for serial in range(1000, 1020):
        for grant in (await claim(broker, serial)).grants:
            await complete(broker, grant)
        await trainer.ack(await trainer.take(100, timeout=0))


@pytest.fixture
async def trainer(broker: Broker, redis_url: str, run: str) -> Any:
    async with Trainer.connect(redis_url, run, consumer="rank-0") as connected:
        yield connected


# The tour


async def test_01_a_run_is_configured_once_and_everyone_reads_it(client: redis.asyncio.Redis, run: str):
    """A run is a name and a config in Redis; 512 samples in groups of 8 are a window of 64 groups."""
    broker = Broker(client, run)
    await broker.configure(RunConfig(sample_concurrency=512, n=8))
    assert (await broker.config()).n == 8
    assert (await read_status(broker)).window.size == 64


async def test_02_prompt_groups_are_submitted_under_ids_that_are_used_once(broker: Broker, trainer: Trainer):
    """A producer may submit its whole ledger again after a crash: what is known stays as it is."""
    assert await trainer.submit(prompts("a", "b")) == ["queued", "queued"]
    assert await trainer.submit(prompts("a", "b", "c")) == ["known", "known", "queued"]
    await end(broker, trainer)


async def test_03_a_worker_claims_groups_and_holds_a_lease_on_each(broker: Broker, trainer: Trainer):
    """A grant has all that a worker needs: the prompt as it came, and which samples are missing."""
    await trainer.submit(prompts("a"))
    (grant,) = (await claim(broker, 1)).grants
    assert json.loads(grant.text)["prompt"] == "What is a?"
    assert (grant.id, grant.n, grant.attempt, grant.missing) == ("a", 2, 1, [0, 1])
    assert (await read_status(broker)).window.active == 1
    await complete(broker, grant)
    await end(broker, trainer)


async def test_04_the_window_is_one_for_the_whole_fleet(broker: Broker, trainer: Trainer):
    """However many workers ask, no more than W groups are active, and who gets none is told why."""
    await trainer.submit(prompts("a", "b", "c"))
    first = await claim(broker, 1)
    second = await claim(broker, 1, worker=OTHER)
    assert [grant.id for grant in first.grants] == ["a", "b"]
    assert (second.grants, second.reason) == ((), "active_full")
    for grant in first.grants:
        await complete(broker, grant)
    await end(broker, trainer)


async def test_05_the_window_closes_when_completed_groups_wait(broker: Broker, trainer: Trainer):
    """A trainer that is slower than the fleet holds it back, so samples don't grow stale in a heap."""
    await trainer.submit(prompts("a", "b", "c"))
    for grant in (await claim(broker, 1)).grants:
        await complete(broker, grant)
    assert (await claim(broker, 2)).reason == "completed_full"
    held = await trainer.take(2)
    assert [grant.id for grant in (await claim(broker, 3)).grants] == ["c"]
    await trainer.ack(held)
    await complete(broker, (await claim(broker, 3)).grants[0])
    await end(broker, trainer)


async def test_06_samples_are_kept_as_they_finish(broker: Broker, trainer: Trainer):
    """A sample is stored once: a second one of the same index is refused, whoever brings it."""
    await trainer.submit(prompts("a"))
    (grant,) = (await claim(broker, 1)).grants
    assert await broker.put([finished(grant, 0)]) == ["stored"]
    assert await broker.put([finished(grant, 0)]) == ["had"]
    await broker.put([finished(grant, 1)])
    await complete(broker, grant)
    await end(broker, trainer)


async def test_07_a_group_completes_with_all_its_samples_and_never_short(broker: Broker, trainer: Trainer):
    """Completing frees the place in the window, and hands the group to the trainers."""
    await trainer.submit(prompts("a"))
    (grant,) = (await claim(broker, 1)).grants
    await broker.put([finished(grant, 0)])
    rewards = {"rewards": "[1.0,0.0]"}
    assert await broker.complete(grant, rewards) == "missing"
    await broker.put([finished(grant, 1)])
    assert await broker.complete(grant, rewards) == "ok"
    status = await read_status(broker)
    assert (status.window.active, status.window.waiting) == (0, 1)
    await end(broker, trainer)


async def test_08_a_trainer_takes_a_batch_that_is_over_when_its_block_ends(broker: Broker, trainer: Trainer):
    """A completed group has what a training step wants: token ids, log-probabilities, rewards, weight versions."""
    await trainer.submit(prompts("a", "b"))
    for grant in (await claim(broker, 1)).grants:
        await complete(broker, grant)
    async with trainer.batch(2, version=9) as batch:
        sample = batch.groups[0].samples[0]
        assert (sample.rows[0].ids.tolist(), batch.groups[0].rewards) == ([11, 12, 13], (1.0, 0.0))
        assert batch.staleness == [2, 2]
    assert (await trainer.status()).stat("acked") == 2


async def test_09_or_it_asks_for_the_results_of_its_own_questions(broker: Broker, trainer: Trainer):
    """generate submits and waits; results come in the order in which they were asked for."""
    asked = prompts("a", "b")
    await trainer.submit(asked[::-1])
    for grant in (await claim(broker, 1)).grants:
        await complete(broker, grant)
    assert [result.id for result in await trainer.generate(asked)] == ["a", "b"]


async def test_10_when_a_worker_dies_its_group_goes_on_with_the_samples_it_had(broker: Broker, trainer: Trainer):
    """Its lease ends; the next worker is granted the group, and makes only what is missing."""
    await trainer.submit(prompts("a"))
    (dead,) = (await claim(broker, 1)).grants
    await broker.put([finished(dead, 0)])
    again = await granted(broker, OTHER)
    assert (again.id, again.missing) == ("a", [1])
    assert await complete(broker, again) == "ok"
    assert await complete(broker, dead) == "lost"
    await end(broker, trainer)


async def granted(broker: Broker, worker: str) -> Grant:
    """Claims until there is a group: until a lease has ended."""
    found: list[Grant] = []

    async def has_claimed() -> bool:
        found.extend((await claim(broker, 1, worker=worker)).grants)
        return bool(found)

    await until(has_claimed)
    return found[0]


async def test_11_when_a_trainer_dies_what_it_held_comes_again(
    broker: Broker, trainer: Trainer, redis_url: str, run: str
):
    """Taken is not trained on: without an ack, the same consumer is given it first when it is back."""
    await trainer.submit(prompts("a"))
    await complete(broker, (await claim(broker, 1)).grants[0])
    async with Trainer.connect(redis_url, run, consumer="rank-1") as dies:
        await dies.take(1)
    async with Trainer.connect(redis_url, run, consumer="rank-1") as again, again.batch(1) as batch:
        assert batch.groups[0].id == "a"


async def test_12_a_step_that_fails_gives_its_batch_again(broker: Broker, trainer: Trainer):
    """The block of a batch that raises acks nothing: the next batch begins with the same groups."""
    await trainer.submit(prompts("a"))
    await complete(broker, (await claim(broker, 1)).grants[0])
    with pytest.raises(MemoryError):
        async with trainer.batch(1):
            raise MemoryError
    async with trainer.batch(1) as batch:
        assert batch.groups[0].id == "a"


async def test_13_a_group_that_is_too_old_is_generated_again(broker: Broker, trainer: Trainer):
    """Recycling throws the samples away and keeps the prompt: the group is in line once more."""
    await trainer.submit(prompts("a"))
    await complete(broker, (await claim(broker, 1)).grants[0])
    (old,) = await trainer.take(1)
    assert await trainer.recycle(old) == "ok"
    (grant,) = (await claim(broker, 2)).grants
    assert (grant.id, grant.missing) == ("a", [0, 1])
    await complete(broker, grant)
    await end(broker, trainer)


async def test_14_a_producer_in_another_language_needs_only_rpush(
    broker: Broker, trainer: Trainer, client: redis.asyncio.Redis, run: str
):
    """A JSON object on the list is a prompt group; what the library doesn't know in it comes back with the results."""
    text = '{"id": "a", "prompt": "What is a?", "n": 1, "source": "book 7"}'
    await client.execute_command("RPUSH", f"rf1:{{{run}}}:prompts", text)
    (grant,) = (await claim(broker, 1)).grants
    assert (grant.id, grant.n, grant.text) == ("a", 1, text.encode())
    await broker.put([finished(grant, 0)])
    await broker.complete(grant, {"rewards": "[1.0]"})
    (taken,) = await trainer.take(1)
    assert taken.prompt.model_extra == {"source": "book 7"}
    await trainer.ack([taken])


async def test_15_what_is_no_prompt_group_becomes_a_dead_letter(broker: Broker, client: redis.asyncio.Redis, run: str):
    """Bad input stops no worker, and is not lost without a word."""
    await client.execute_command("RPUSH", f"rf1:{{{run}}}:prompts", "[not an object]")
    assert (await claim(broker, 1)).grants == ()
    (letter,) = await read_dead(broker, most=10)
    assert (letter.reason, letter.text) == ("not a JSON object", b"[not an object]")


async def test_16_a_group_that_fails_too_often_becomes_a_dead_letter_and_can_be_given_another_life(
    broker: Broker, trainer: Trainer
):
    """One group that no engine survives must not take the fleet with it."""
    await broker.configure(RunConfig(max_attempts=1))
    await trainer.submit(prompts("a"))
    (grant,) = (await claim(broker, 1)).grants
    assert await broker.release(grant.token, "fail", "the engine died") == "dead"
    (letter,) = await read_dead(broker, most=10)
    assert (letter.id, letter.reason) == ("a", "the engine died")
    assert await broker.requeue_dead([letter.entry]) == ["ok"]
    await end(broker, trainer)


async def test_17_why_is_the_fleet_idle(broker: Broker, trainer: Trainer):
    """One look says it, and for how long each reason has held."""
    assert (await read_status(broker)).sentence == "no prompt group waits"
    await trainer.submit(prompts("a"))
    assert (await read_status(broker)).sentence == "no worker is alive"
    await broker.pause()
    assert (await read_status(broker)).sentence == "the run is paused"
    await broker.resume()
    await end(broker, trainer)
    assert "no_prompts" in (await read_status(broker)).seconds_behind
