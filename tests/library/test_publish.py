"""publish and update: versions, and whose turn it is to load weights."""

import asyncio

import pytest

from rolloutfleet.broker import Broker
from rolloutfleet.errors import ProtocolMismatch, RunMissing
from rolloutfleet.policy import Policy, Publication
from tests.fakes.broker import Fleet

A, B, C = "pod-a/1", "pod-b/1", "pod-c/1"


async def test_versions_are_the_broker_s_and_only_rise(fleet: Fleet):
    assert [await fleet.publish(f"/w/{number}") for number in range(3)] == [1, 2, 3]
    assert await fleet.do("HGET", fleet.key("state"), "updates") == b"3"


async def test_what_was_published_is_the_policy(fleet: Fleet):
    await fleet.publish("/w/1", mode="abort", at_once=3)
    await fleet.turn("begin", 1)
    await fleet.turn("loaded", 1)
    await fleet.publish("/w/2", label="step 2", mode="drain", at_once=1, manifest="abc")
    policy = await fleet.broker.policy()
    assert policy is not None
    assert policy.published_ms > 0
    assert policy == Policy(2, "/w/2", "step 2", "drain", 1, "abc", 0, policy.published_ms)


async def test_nothing_is_the_policy_before_the_first(fleet: Fleet):
    assert await fleet.broker.policy() is None


async def test_a_call_that_is_repeated_gets_its_version_again(fleet: Fleet):
    assert [await fleet.publish("/w/1", token="first") for _ in range(2)] == [1, 1]
    assert await fleet.do("HGET", fleet.key("state"), "updates") == b"1"


async def test_a_call_that_comes_late_does_not_bring_its_weights_back(fleet: Fleet):
    await fleet.publish("/w/1", token="first")
    await fleet.publish("/w/2", token="second")
    assert await fleet.publish("/w/1", token="first") == 1
    policy = await fleet.broker.policy()
    assert policy is not None
    assert (policy.version, policy.path) == (2, "/w/2")


async def test_a_part_of_a_token_is_another_token(fleet: Fleet):
    assert await fleet.publish(token="abcd") == 1
    assert [await fleet.publish(token=token) for token in ("abc", "bcd", "bc")] == [2, 3, 4]


async def test_only_the_last_tokens_are_remembered(fleet: Fleet):
    for number in range(40):
        await fleet.publish(token=f"t{number}")
    fields = await fleet.hash(fleet.key("policy"))
    assert fields["recent"].split() == [b"%d=t%d" % (number + 1, number) for number in range(39, 23, -1)]


async def test_where_the_last_weights_lie_is_remembered(fleet: Fleet):
    for number in range(70):
        await fleet.publish(f"/w/{number + 1}")
    fields = await fleet.hash(fleet.key("policy"))
    paths = {name: path for name, path in fields.items() if name.startswith("path:")}
    assert paths == {f"path:{version}": b"/w/%d" % version for version in range(7, 71)}


async def test_without_config_nothing_is_published(fleet: Fleet):
    await fleet.do("DEL", fleet.key("config"))
    assert await fleet.broker.calls.step("publish", "token", "", "/w", "retract", 0, "") == b"no_run"
    assert await fleet.do("EXISTS", fleet.key("policy")) == 0
    with pytest.raises(RunMissing):
        await fleet.publish()


async def test_a_publication_wakes(fleet: Fleet):
    await fleet.sleep()
    await fleet.publish()
    assert await fleet.is_woken()


async def test_publishers_at_once_get_versions_of_their_own(real_fleet: Fleet):
    publishers = [Broker(real_fleet.client, real_fleet.broker.keys.run) for _ in range(8)]
    calls = [publisher.publish(f"token-{at}", Publication(f"/w/{at}")) for at, publisher in enumerate(publishers)]
    assert sorted(await asyncio.gather(*calls)) == list(range(1, 9))


@pytest.mark.parametrize("wrong", [{"mode": "in_place"}, {"at_once": -1}, {"path": ""}])
def test_what_can_t_be_published_says_what_to_mend(wrong: dict[str, object]):
    with pytest.raises(ValueError, match="give"):
        Publication(**{"path": "/w", **wrong})  # pyright: ignore[reportArgumentType]


def test_a_policy_of_another_mode_is_refused():
    with pytest.raises(ProtocolMismatch, match="in_place"):
        Policy.from_fields({"version": "1", "mode": "in_place"})


# Turns


async def test_all_workers_load_at_once_unless_told_otherwise(fleet: Fleet):
    await fleet.publish()
    assert [await fleet.turn("begin", 1, worker) for worker in (A, B, C)] == ["go", "go", "go"]


async def test_at_most_so_many_workers_load_at_a_time(fleet: Fleet):
    await fleet.publish(at_once=2)
    assert [await fleet.turn("begin", 1, worker) for worker in (A, B, C)] == ["go", "go", "wait"]
    await fleet.turn("loaded", 1, A)
    assert await fleet.turn("begin", 1, C) == "go"


async def test_a_turn_that_is_asked_for_again_is_the_same(fleet: Fleet):
    await fleet.publish(at_once=1)
    assert [await fleet.turn("begin", 1) for _ in range(2)] == ["go", "go"]
    assert await fleet.do("ZCARD", fleet.key("updating")) == 1


async def test_a_turn_is_kept_though_fewer_may_load_by_now(fleet: Fleet):
    await fleet.publish(at_once=2)
    assert [await fleet.turn("begin", 1, worker) for worker in (A, B)] == ["go", "go"]
    await fleet.publish(at_once=1)
    assert [await fleet.turn("begin", 1, worker) for worker in (A, B)] == ["go", "go"]


async def test_a_dead_worker_s_turn_ends_by_itself(fleet: Fleet):
    await fleet.publish(at_once=1)
    await fleet.turn("begin", 1, A)
    await fleet.pass_time(60_001)
    assert await fleet.turn("begin", 1, B) == "go"


async def test_an_evicted_worker_s_turn_ends_at_once(fleet: Fleet):
    await fleet.publish(at_once=1)
    await fleet.turn("begin", 1, A)
    await fleet.broker.evict(A, counts=True)
    assert await fleet.turn("begin", 1, B) == "go"


async def test_an_eviction_ends_nobody_else_s_turn(fleet: Fleet):
    await fleet.publish(at_once=1)
    await fleet.turn("begin", 1, A)
    await fleet.broker.evict(A[:-1], counts=True)
    assert await fleet.turn("begin", 1, B) == "wait"


async def test_an_evicted_worker_gets_no_turn(fleet: Fleet):
    await fleet.publish(at_once=1)
    await fleet.broker.evict(A, counts=True)
    assert await fleet.turn("begin", 1, A) == "gone"
    assert await fleet.turn("begin", 1, B) == "go"


async def test_a_turn_that_is_prolonged_does_not_end(fleet: Fleet):
    await fleet.publish(at_once=1)
    await fleet.turn("begin", 1, A)
    await fleet.pass_time(40_000)
    await fleet.turn("begin", 1, A)
    await fleet.pass_time(40_000)
    assert await fleet.turn("begin", 1, B) == "wait"


async def test_a_worker_that_serves_nothing_needs_not_wait(fleet: Fleet):
    await fleet.publish(at_once=1)
    await fleet.turn("begin", 1, A)
    assert await fleet.turn("begin", 1, B, serves=False) == "go"


async def test_two_workers_never_load_into_one_engine_at_once(fleet: Fleet):
    await fleet.publish()
    assert await fleet.turn("begin", 1, A, engine="http://shared") == "go"
    assert await fleet.turn("begin", 1, B, engine="http://shared", serves=False) == "wait"
    await fleet.turn("left", 1, A, engine="http://shared")
    assert await fleet.turn("begin", 1, B, engine="http://shared") == "go"


async def test_nobody_begins_to_load_what_is_the_policy_no_more(fleet: Fleet):
    await fleet.publish()
    await fleet.turn("begin", 1, A)
    await fleet.publish()
    assert await fleet.turn("begin", 1, B) == "newer"
    assert await fleet.turn("begin", 1, A) == "go"  # it goes on with what it loads


async def test_who_has_loaded_is_counted_once(fleet: Fleet):
    await fleet.publish()
    await fleet.turn("begin", 1, A)
    assert [await fleet.turn("loaded", 1, A) for _ in range(2)] == ["ok", "ok"]
    policy = await fleet.broker.policy()
    assert policy is not None
    assert policy.loaded == 1


async def test_what_was_loaded_too_late_is_not_counted(fleet: Fleet):
    await fleet.publish()
    await fleet.turn("begin", 1, A)
    await fleet.publish()
    await fleet.turn("loaded", 1, A)
    policy = await fleet.broker.policy()
    assert policy is not None
    assert policy.loaded == 0


async def test_who_gives_up_is_not_counted(fleet: Fleet):
    await fleet.publish()
    await fleet.turn("begin", 1, A)
    await fleet.turn("left", 1, A)
    policy = await fleet.broker.policy()
    assert policy is not None
    assert policy.loaded == 0


async def test_a_rolling_update_stops_where_its_first_worker_fails(fleet: Fleet):
    await fleet.publish(at_once=1)
    await fleet.turn("begin", 1, A)
    for _ in range(3):
        await fleet.pass_time(40_000)
        assert await fleet.turn("failed", 1, A) == "held"
    assert await fleet.turn("begin", 1, B) == "wait"


async def test_weights_that_somebody_has_loaded_are_not_held_up_by_one_that_fails(fleet: Fleet):
    await fleet.publish(at_once=1)
    await fleet.turn("begin", 1, A)
    await fleet.turn("loaded", 1, A)
    await fleet.turn("begin", 1, B)
    assert await fleet.turn("failed", 1, B) == "ok"
    assert await fleet.turn("begin", 1, C) == "go"


async def test_a_newer_publication_ends_the_turn_of_one_that_failed(fleet: Fleet):
    await fleet.publish(at_once=1)
    await fleet.turn("begin", 1, A)
    await fleet.turn("failed", 1, A)
    await fleet.publish(at_once=1)
    assert await fleet.turn("failed", 1, A) == "ok"
    assert await fleet.turn("begin", 2, B) == "go"


async def test_a_worker_s_turn_at_older_weights_ends_when_it_begins_with_newer_ones(fleet: Fleet):
    await fleet.publish(at_once=2)
    await fleet.turn("begin", 1, A)
    await fleet.publish(at_once=2)
    assert [await fleet.turn("begin", 2, worker) for worker in (A, B, C)] == ["go", "go", "wait"]


async def test_who_fails_without_a_turn_gets_none_by_it(fleet: Fleet):
    await fleet.publish(at_once=1)
    assert await fleet.turn("failed", 1, A) == "ok"
    assert await fleet.turn("begin", 1, B) == "go"


async def test_without_config_there_are_no_turns(fleet: Fleet):
    await fleet.publish()
    await fleet.do("DEL", fleet.key("config"))
    assert await fleet.turn("begin", 1) == "no_run"
