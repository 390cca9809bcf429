"""submit, configure, and what a producer may RPUSH: the ways in."""

import asyncio
from typing import Any

import pytest

from rolloutfleet.broker import Broker
from rolloutfleet.calls import Arg
from rolloutfleet.errors import RunMissing
from rolloutfleet.messages import PromptGroup
from rolloutfleet.settings import RunConfig
from tests.fakes.broker import Fleet, fake_client, group


async def test_a_new_group_is_queued_last(fleet: Fleet):
    assert await fleet.submit("a", "b") == ["queued", "queued"]
    assert await fleet.waits("prompts") == [b"@a", b"@b"]
    assert await fleet.stat("submitted") == 2


async def test_a_group_is_stored_with_its_text_as_it_came(fleet: Fleet):
    await fleet.broker.submit(
        [PromptGroup.from_text(b'{"id":"a","prompt":"2+2","metadata":{"list":[],"big":12345678901234567890}}')]
    )
    stored = (await fleet.group("a"))["text"]
    assert b'"list":[]' in stored
    assert b"12345678901234567890" in stored


async def test_a_group_without_n_gets_the_run_s_and_keeps_it(fleet: Fleet):
    await fleet.submit("a")
    await fleet.configure(n=4)
    (grant,) = await fleet.hold()
    assert grant.n == 2


async def test_an_n_of_the_group_s_own_wins(fleet: Fleet):
    await fleet.submit("a", n=3)
    (grant,) = await fleet.hold()
    assert (grant.n, (await fleet.group("a"))["left"]) == (3, b"3")


async def test_an_id_that_waits_is_known_and_not_queued_again(fleet: Fleet):
    await fleet.submit("a")
    assert await fleet.submit("a", "b") == ["known", "queued"]
    assert await fleet.waits("prompts") == [b"@a", b"@b"]


async def test_an_id_that_is_held_is_known(fleet: Fleet):
    await fleet.submit("a")
    (grant,) = await fleet.hold()
    assert await fleet.submit("a") == ["known"]
    assert (await fleet.group("a"))["born"].decode() == grant.born


async def test_an_id_twice_in_one_call_is_stored_once(fleet: Fleet):
    assert await fleet.submit("a", "a") == ["queued", "known"]
    assert await fleet.waits("prompts") == [b"@a"]


async def test_an_id_that_was_acked_is_done(fleet: Fleet):
    await fleet.run_through("a")
    await fleet.take_and_ack()
    assert await fleet.submit("a") == ["done"]
    assert await fleet.waits("prompts") == []


async def test_an_id_beyond_the_horizon_of_done_is_new_again(fleet: Fleet):
    await fleet.configure(done_number=1)
    await fleet.run_through("a", "b")
    await fleet.take_and_ack()
    assert await fleet.submit("a", "b") == ["queued", "done"]


async def test_done_forgets_what_is_older_than_its_seconds(fleet: Fleet):
    await fleet.configure(done_seconds=100)
    await fleet.run_through("a", "b")
    (first, second) = await fleet.take()
    await fleet.broker.ack([first.entry])
    await fleet.do("ZINCRBY", fleet.key("done"), -100_001, "a")
    await fleet.broker.ack([second.entry])
    assert await fleet.do("ZRANGE", fleet.key("done"), 0, -1) == [b"b"]


async def test_what_done_holds_too_much_is_forgotten_a_few_at_a_time(fleet: Fleet):
    await fleet.configure(sample_concurrency=20)
    await fleet.do("ZADD", fleet.key("done"), *[part for i in range(250) for part in (1, f"old-{i}")])
    await fleet.run_through("a", "b", "c")
    left: list[int] = []
    for entry in await fleet.take():
        await fleet.broker.ack([entry.entry])
        left.append(await fleet.do("ZCARD", fleet.key("done")))
    assert left == [151, 52, 3]


async def test_each_incarnation_has_a_born_of_its_own(fleet: Fleet):
    await fleet.submit("a", "b", "c")
    borns = {(await fleet.group(group_id))["born"] for group_id in "abc"}
    assert len(borns) == 3


async def test_a_run_made_anew_is_born_otherwise(fleet: Fleet):
    await fleet.submit("a")
    before = (await fleet.group("a"))["born"]
    await fleet.delete()
    await fleet.broker.configure(RunConfig(n=2))
    await fleet.submit("a")
    after = (await fleet.group("a"))["born"]
    assert before.split(b"-")[0] != after.split(b"-")[0]
    assert before.split(b"-")[2] == after.split(b"-")[2]


async def test_the_epoch_stays_when_the_run_is_configured_again(fleet: Fleet):
    before = await fleet.do("HGET", fleet.key("state"), "epoch")
    await fleet.configure(n=5)
    assert await fleet.do("HGET", fleet.key("state"), "epoch") == before


async def test_long_groups_are_submitted_in_slices_of_a_mebibyte(fleet: Fleet, monkeypatch: pytest.MonkeyPatch):
    step, sizes = fleet.broker.calls.step, list[int]()

    async def measured(name: str, *args: Arg) -> Any:
        sizes.append(sum(len(arg) for arg in args if isinstance(arg, bytes)))
        return await step(name, *args)

    monkeypatch.setattr(fleet.broker.calls, "step", measured)
    words = await fleet.broker.submit([PromptGroup(id=f"g{number}", prompt="x" * 300_000) for number in range(7)])

    assert words == ["queued"] * 7
    assert [size // 300_000 for size in sizes] == [3, 3, 1]


async def test_a_run_without_config_takes_no_groups(run: str):
    async with fake_client() as client:
        broker = Broker(client, run)
        with pytest.raises(RunMissing, match="has no config"):
            await broker.submit([group("a")])
        assert await client.keys(broker.keys.prefix + "*") == []  # pyright: ignore[reportGeneralTypeIssues]


async def test_a_long_ledger_is_submitted_in_slices(fleet: Fleet):
    ids = [f"g{number}" for number in range(1201)]
    words = await fleet.submit(*ids)
    assert words == ["queued"] * 1201
    assert (await fleet.waits("prompts"))[-1] == b"@g1200"


async def test_configure_completes_a_config_that_was_written_by_hand(fleet: Fleet):
    await fleet.do("DEL", fleet.key("config"))
    await fleet.do("HSET", fleet.key("config"), "n", 3)
    await fleet.broker.configure(RunConfig(sample_concurrency=6))
    assert (await fleet.broker.config_fields()) == RunConfig(sample_concurrency=6, n=3).fields()


async def test_configure_keeps_what_it_was_not_given(fleet: Fleet):
    await fleet.broker.configure(RunConfig(sample_concurrency=4))
    assert (await fleet.broker.config()).n == 2
    await fleet.broker.configure(RunConfig(n=7))
    assert (await fleet.broker.config()).n == 7


async def test_configure_changes_only_what_it_was_given(fleet: Fleet):
    await fleet.configure(max_attempts=3)
    config = await fleet.broker.config()
    assert (config.sample_concurrency, config.n, config.max_attempts) == (4, 2, 3)


async def test_configure_answers_how_many_fields_are_new(fleet: Fleet):
    assert await fleet.broker.calls.step("configure", "set", "n", 3, "of_a_newer_version", 9) == 1
    assert await fleet.broker.calls.step("configure", "default", "n", 4, "of_a_newer_version", 1) == 0
    assert (await fleet.broker.config()).n == 3


async def test_a_setting_that_does_not_fit_the_others_changes_nothing(fleet: Fleet):
    await fleet.configure(retry_cap_seconds=2)
    with pytest.raises(ValueError, match="retry_cap_seconds is shorter"):
        await fleet.configure(retry_seconds=3, n=9)
    assert (await fleet.broker.config()).n == 2


async def test_the_consumer_group_starts_before_the_first_entry(fleet: Fleet):
    await fleet.do("XADD", fleet.key("completed"), "*", "id", "a", "born", "1")
    assert [entry.id for entry in await fleet.take()] == ["a"]


async def test_two_producers_of_one_ledger_store_each_group_once(real_fleet: Fleet):
    ids = [f"g{number}" for number in range(50)]
    words = await asyncio.gather(*(real_fleet.submit(*ids) for _ in range(4)))
    assert sum(word == "queued" for some in words for word in some) == 50
    assert await real_fleet.broker.queued() == 50
    await real_fleet.configure(sample_concurrency=1000)
    await real_fleet.finish_all()
