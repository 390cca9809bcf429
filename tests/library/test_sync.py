"""The same trainer for code that blocks: each call from a plain thread, and Ctrl-C loses nothing.

The fixtures stay synchronous: no event loop runs in the thread of these tests.
"""

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from rolloutfleet import BrokerUnavailable, CompletedGroup, InvalidGroup, PromptGroup, RunConfig, SyncTrainer
from rolloutfleet.broker import Broker
from rolloutfleet.errors import RunMissing
from rolloutfleet.redis import connect
from tests.fakes.broker import group
from tests.fakes.worker import InstantWorker
from tests.fakes.worker import complete as complete_groups

CONFIG = RunConfig(sample_concurrency=200, n=2)


@pytest.fixture
def trainer(redis_url: str, run: str) -> Iterator[SyncTrainer]:
    with SyncTrainer.connect(redis_url, run, "rank-0", config=CONFIG, retry_seconds=5) as connected:
        yield connected


@pytest.fixture
def fleet(redis_url: str, run: str) -> "Somewhere":
    return Somewhere(redis_url, run)


class Somewhere:
    """A fleet that works elsewhere: each call on a loop and a connection of its own."""

    def __init__(self, url: str, run: str) -> None:
        self._url, self._run = url, run

    def complete(self, *ids: str) -> None:
        async def call() -> None:
            async with connect(self._url) as client:
                await complete_groups(Broker(client, self._run), *ids)

        asyncio.run(call())

    def work(self) -> list[str]:
        async def call() -> list[str]:
            async with connect(self._url) as client:
                return await InstantWorker(Broker(client, self._run)).step(100)

        return asyncio.run(call())


def ids(groups: object) -> list[str]:
    assert isinstance(groups, list | tuple)
    return [each.id for each in groups if isinstance(each, CompletedGroup)]  # pyright: ignore[reportUnknownVariableType]


def interrupt(call: Callable[[], object]) -> None:
    """Ctrl-C while the call blocks."""
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))

    def start_and_call() -> None:
        timer.start()
        call()

    with pytest.raises(KeyboardInterrupt):
        start_and_call()
    timer.join()


def test_groups_are_submitted_taken_and_acked(trainer: SyncTrainer, fleet: Somewhere):
    assert trainer.submit([group("a"), group("a")], max_queued=5) == ["queued", "known"]
    assert fleet.work() == ["a"]
    groups = trainer.take(5, timeout=60)
    assert ids(groups) == ["a"]
    assert trainer.ack(groups) == ["ok"]
    assert trainer.status().stat("acked") == 1


def test_a_batch_is_acked_when_its_block_ends_well(trainer: SyncTrainer, fleet: Somewhere):
    fleet.complete("a", "b", "c")
    with trainer.batch(2, version=4, timeout=60) as batch:
        assert (ids(batch.groups), batch.staleness) == (["a", "b"], [4, 4])
    with trainer.batch(1, timeout=60) as rest:
        assert ids(rest.groups) == ["c"]


def test_a_batch_whose_block_raises_comes_again(trainer: SyncTrainer, fleet: Somewhere):
    fleet.complete("a")
    with pytest.raises(RuntimeError, match="out of memory"), trainer.batch(1, timeout=60):
        raise RuntimeError("out of memory")
    with trainer.batch(1, timeout=60) as batch:
        assert ids(batch.groups) == ["a"]


def test_a_batch_that_is_not_filled_in_time_is_a_timeout(trainer: SyncTrainer):
    with pytest.raises(TimeoutError, match="0 of 1 groups"), trainer.batch(1, timeout=0.05):
        pass


def test_results_come_in_the_order_asked(trainer: SyncTrainer, fleet: Somewhere):
    fleet.complete("b", "a")
    assert ids(trainer.generate([group("a"), group("b")], timeout=60)) == ["a", "b"]


def test_a_group_is_recycled(trainer: SyncTrainer, fleet: Somewhere):
    fleet.complete("a")
    assert trainer.recycle(trainer.take(1, timeout=60)[0]) == "ok"
    assert fleet.work() == ["a"]
    assert trainer.ack(trainer.take(1, timeout=60)) == ["ok"]


def test_a_step_that_blocks_its_thread_loses_nothing_to_another_rank(
    redis_url: str, run: str, fleet: Somewhere, trainer: SyncTrainer
):
    idle = 0.3
    fleet.complete("a")
    with (
        SyncTrainer.connect(redis_url, run, "rank-1", idle_seconds=idle) as first,
        SyncTrainer.connect(redis_url, run, "rank-2", idle_seconds=idle) as second,
        first.batch(1, timeout=60),
    ):
        time.sleep(3 * idle)
        assert second.take(1, timeout=0) == []


def test_what_was_held_at_the_end_comes_again(redis_url: str, run: str, trainer: SyncTrainer, fleet: Somewhere):
    fleet.complete("a")
    with SyncTrainer.connect(redis_url, run, "rank-1") as first:
        assert ids(first.take(1, timeout=60)) == ["a"]
    with SyncTrainer.connect(redis_url, run, "rank-1") as again, again.batch(1, timeout=60) as batch:
        assert ids(batch.groups) == ["a"]


def test_ctrl_c_ends_a_wait_and_the_trainer_goes_on(trainer: SyncTrainer, fleet: Somewhere):
    interrupt(lambda: trainer.take(1))
    fleet.complete("a")
    assert trainer.ack(trainer.take(1, timeout=60)) == ["ok"]


def test_ctrl_c_while_a_batch_fills_keeps_what_it_had(trainer: SyncTrainer, fleet: Somewhere):
    fleet.complete("a")
    interrupt(trainer.batch(2).__enter__)
    with trainer.batch(1, timeout=60) as batch:
        assert ids(batch.groups) == ["a"]


def test_ctrl_c_in_a_step_gives_its_batch_again(trainer: SyncTrainer, fleet: Somewhere):
    fleet.complete("a")
    with pytest.raises(KeyboardInterrupt), trainer.batch(1, timeout=60):
        raise KeyboardInterrupt
    with trainer.batch(1, timeout=60) as batch:
        assert ids(batch.groups) == ["a"]


def test_a_run_that_is_not_there_is_said_at_the_start_and_no_thread_stays(redis_url: str, run: str):
    before = threading.active_count()
    with pytest.raises(RunMissing), SyncTrainer.connect(redis_url, f"{run}-mistyped"):
        pass
    assert threading.active_count() == before


def test_without_a_broker_it_says_so(run: str):
    with (
        pytest.raises(BrokerUnavailable, match="is it running"),
        SyncTrainer.connect("redis://127.0.0.1:1/0", run, retry_seconds=0.1),
    ):
        pass


def test_it_may_be_closed_twice(redis_url: str, run: str):
    with SyncTrainer.connect(redis_url, run, config=CONFIG) as trainer:
        trainer.close()
    trainer.close()


def test_a_prompt_that_is_none_is_refused_before_it_is_submitted():
    with pytest.raises(InvalidGroup, match="exactly one of prompt"):
        PromptGroup.make({"question": "1 + 1"})


def test_a_trainer_outside_of_with_says_so(redis_url: str, run: str):
    trainer = SyncTrainer.connect(redis_url, run)
    with pytest.raises(RuntimeError, match="not connected"):
        trainer.status()
    trainer.close()
