"""claim: what is granted, to whom, and the word for why not."""

import asyncio

from rolloutfleet.broker import Broker
from tests.fakes.broker import WORKER, Fleet, fake_client


async def test_a_grant_says_all_that_a_worker_needs(fleet: Fleet):
    await fleet.submit("a")
    claim = await fleet.broker.claim(WORKER, f"{WORKER}/7", 1)
    (grant,) = claim.grants
    assert claim.reason == "open"
    assert (grant.token, grant.id, grant.n, grant.attempt) == (f"{WORKER}/7/0", "a", 2, 1)
    assert grant.text == b'{"id":"a","prompt":"question a"}'
    assert (grant.stored, grant.missing) == (frozenset(), [0, 1])


async def test_a_granted_group_is_leased_to_its_token(fleet: Fleet):
    await fleet.submit("a")
    (grant,) = await fleet.hold()
    assert await fleet.do("HGETALL", fleet.key("grants")) in (
        [grant.token.encode(), b"a"],
        {grant.token.encode(): b"a"},
    )
    assert (await fleet.group("a"))["token"].decode() == grant.token
    assert await fleet.deadline(grant) == await fleet.run_ms() + 60_000
    assert (await fleet.active(), await fleet.outstanding()) == (1, 2)
    assert await fleet.waits("prompts") == []


async def test_a_claim_grants_up_to_k_in_order(fleet: Fleet):
    await fleet.configure(sample_concurrency=100)
    await fleet.submit(*"abcd")
    assert [grant.id for grant in (await fleet.claim(3)).grants] == ["a", "b", "c"]
    assert await fleet.waits("prompts") == [b"@d"]
    assert await fleet.stat("claimed") == 3


async def test_a_claim_grants_what_there_is_when_that_is_less(fleet: Fleet):
    await fleet.submit("a")
    claim = await fleet.claim(2)
    assert (claim.reason, len(claim.grants)) == ("open", 1)


async def test_without_config_there_is_no_run(run: str):
    async with fake_client() as client:
        broker = Broker(client, run)
        assert (await broker.claim(WORKER, f"{WORKER}/1", 1)).reason == "no_run"


async def test_nothing_in_line_is_no_prompts(fleet: Fleet):
    assert (await fleet.claim()).reason == "no_prompts"


async def test_a_full_window_is_active_full(fleet: Fleet):
    await fleet.submit(*"abc")
    await fleet.hold(2)
    claim = await fleet.claim()
    assert (claim.reason, claim.grants) == ("active_full", ())
    assert await fleet.waits("prompts") == [b"@c"]


async def test_untaken_groups_are_completed_full(fleet: Fleet):
    await fleet.run_through("a", "b")
    await fleet.submit("c")
    assert (await fleet.claim()).reason == "completed_full"
    await fleet.take(1)
    await fleet.hold()


async def test_a_paused_run_grants_nothing_and_goes_on_when_resumed(fleet: Fleet):
    await fleet.submit("a")
    await fleet.broker.pause()
    assert (await fleet.claim()).reason == "paused"
    await fleet.broker.resume()
    await fleet.hold()


async def test_a_pause_leaves_those_who_hold_alone(fleet: Fleet):
    await fleet.submit("a")
    (grant,) = await fleet.hold()
    await fleet.broker.pause()
    await fleet.finish(grant)
    assert await fleet.take_and_ack() == ["a"]


async def test_an_automatic_window_without_workers_has_no_capacity(fleet: Fleet):
    await fleet.configure(sample_concurrency="auto")
    await fleet.submit("a")
    assert (await fleet.claim()).reason == "no_capacity"


async def test_a_claim_of_nothing_says_only_why(fleet: Fleet):
    assert (await fleet.claim(0)).reason == "no_prompts"
    await fleet.submit("a")
    claim = await fleet.claim(0)
    assert (claim.reason, claim.grants) == ("busy", ())
    assert await fleet.waits("prompts") == [b"@a"]


async def test_a_draining_worker_claims_nothing_and_others_do(fleet: Fleet):
    await fleet.submit("a", "b")
    assert await fleet.broker.drain([WORKER]) == 1
    assert (await fleet.claim()).reason == "draining"
    await fleet.hold(worker="other/1")
    assert await fleet.broker.undrain([WORKER]) == 1
    await fleet.hold()


async def test_a_draining_worker_may_repeat_the_claim_that_it_was_granted(fleet: Fleet):
    await fleet.submit("a")
    first = await fleet.broker.claim(WORKER, f"{WORKER}/1", 1)
    await fleet.broker.drain([WORKER])
    assert await fleet.broker.claim(WORKER, f"{WORKER}/1", 1) == first


async def test_draining_twice_changes_one_mark(fleet: Fleet):
    assert await fleet.broker.drain([WORKER, "other/1"]) == 2
    assert await fleet.broker.drain([WORKER]) == 0
    assert await fleet.broker.undrain([WORKER, "third/1"]) == 1


async def test_draining_again_keeps_since_when(fleet: Fleet):
    await fleet.broker.drain([WORKER])
    since = float(await fleet.do("ZINCRBY", fleet.key("draining"), -5000, WORKER))
    await fleet.broker.drain([WORKER])
    assert float(await fleet.do("ZSCORE", fleet.key("draining"), WORKER)) == since


async def test_a_barred_worker_is_gone(fleet: Fleet):
    await fleet.submit("a")
    await fleet.broker.evict(WORKER, counts=True)
    assert (await fleet.claim()).reason == "gone"


async def test_a_repeated_claim_gets_the_same_grants_and_no_more(fleet: Fleet):
    await fleet.configure(sample_concurrency=6)
    await fleet.submit(*"abc")
    first = await fleet.broker.claim(WORKER, f"{WORKER}/1", 2)
    assert await fleet.broker.claim(WORKER, f"{WORKER}/1", 2) == first
    assert (await fleet.active(), await fleet.outstanding()) == (2, 4)


async def test_a_repeated_claim_extends_its_leases(fleet: Fleet):
    await fleet.submit("a")
    (grant,) = (await fleet.broker.claim(WORKER, f"{WORKER}/1", 1)).grants
    await fleet.expire(grant)
    await fleet.broker.claim(WORKER, f"{WORKER}/1", 1)
    assert await fleet.deadline(grant) == await fleet.run_ms() + 60_000


async def test_a_repeated_claim_is_answered_while_the_run_is_paused(fleet: Fleet):
    await fleet.submit("a")
    first = await fleet.broker.claim(WORKER, f"{WORKER}/1", 1)
    await fleet.broker.pause()
    assert await fleet.broker.claim(WORKER, f"{WORKER}/1", 1) == first


async def test_a_repeated_claim_tells_of_samples_that_came_meanwhile(fleet: Fleet):
    await fleet.submit("a")
    (grant,) = (await fleet.broker.claim(WORKER, f"{WORKER}/1", 1)).grants
    await fleet.put(grant, 1)
    (again,) = (await fleet.broker.claim(WORKER, f"{WORKER}/1", 1)).grants
    assert (again.stored, again.missing) == (frozenset({1}), [0])


async def test_the_next_holder_is_told_which_samples_are_stored(fleet: Fleet):
    await fleet.submit("a")
    (grant,) = await fleet.hold()
    await fleet.put(grant, 0)
    await fleet.broker.release(grant.token, "free")
    (again,) = await fleet.hold(worker="other/1")
    assert (again.stored, again.missing) == (frozenset({0}), [1])
    assert await fleet.outstanding() == 1


async def test_what_was_given_back_comes_before_what_waits(fleet: Fleet):
    await fleet.submit("old", "new")
    (grant,) = await fleet.hold()
    await fleet.broker.release(grant.token, "free")
    assert (await fleet.hold())[0].id == "old"


async def delayed(fleet: Fleet, group_id: str) -> None:
    await fleet.submit(group_id)
    (grant,) = await fleet.hold()
    await fleet.broker.release(grant.token, "fail", "unlucky")


async def test_who_finds_no_prompts_is_told_when_a_delay_is_over_but_only_the_first_who_asks(fleet: Fleet):
    await fleet.configure(retry_seconds=8)
    assert (await fleet.claim()).due_seconds is None
    await delayed(fleet, "a")
    first = [(await fleet.claim(worker=name)).due_seconds for name in ("one/1", "two/1", "one/1")]
    assert first[1] is None
    assert 3 < (first[0] or 0) <= 8
    assert 3 < (first[2] or 0) <= 8


async def test_an_earlier_end_of_a_delay_is_told_to_the_next_who_asks(fleet: Fleet):
    await fleet.configure(retry_seconds=60)
    await delayed(fleet, "a")
    await fleet.claim(worker="one/1")
    await fleet.configure(retry_seconds=8)
    await delayed(fleet, "b")
    assert ((await fleet.claim(worker="two/1")).due_seconds or 60) <= 8


async def test_who_only_says_why_is_not_told_when_a_delay_is_over(fleet: Fleet):
    await delayed(fleet, "a")
    assert (await fleet.claim(0)).due_seconds is None


async def test_what_was_granted_comes_with_when_the_next_delay_is_over(fleet: Fleet):
    await delayed(fleet, "a")
    await fleet.submit("b")
    claim = await fleet.claim(2)
    assert ([grant.id for grant in claim.grants], claim.due_seconds is None) == (["b"], False)


async def test_a_group_with_a_delay_is_passed_over_until_it_is_due(fleet: Fleet):
    await fleet.submit("old", "new")
    (grant,) = await fleet.hold()
    await fleet.broker.release(grant.token, "fail", "engine")
    assert (await fleet.hold())[0].id == "new"
    await fleet.fall_due()
    assert (await fleet.hold())[0].id == "old"


async def test_a_stale_hint_in_a_list_is_passed_over(fleet: Fleet):
    await fleet.do("ZADD", fleet.key("again"), 0, "nobody")
    await fleet.push("@nobody")
    await fleet.submit("a")
    assert [grant.id for grant in (await fleet.claim()).grants] == ["a"]
    assert await fleet.waits("again") == []


async def test_a_group_that_is_held_is_not_granted_by_a_second_hint(fleet: Fleet):
    await fleet.submit("a")
    await fleet.hold()
    await fleet.push("@a")
    assert (await fleet.claim()).reason == "no_prompts"
    assert await fleet.active() == 1


async def test_a_completed_group_is_not_granted_by_a_late_hint(fleet: Fleet):
    await fleet.run_through("a")
    await fleet.push("@a")
    assert (await fleet.claim()).reason == "no_prompts"
    assert await fleet.take_and_ack() == ["a"]


async def test_a_claim_passes_over_a_bounded_number_and_says_again(fleet: Fleet):
    await fleet.push(*[f"@nobody{number}" for number in range(70)])
    await fleet.submit("a")
    assert (await fleet.claim()).reason == "again"
    assert len(await fleet.waits("prompts")) == 7
    assert (await fleet.claim()).reason == "open"


async def test_a_claim_reaps_a_few_expired_leases_and_grants_their_places(fleet: Fleet):
    await fleet.submit(*"abc")
    held = await fleet.hold(2)
    await fleet.expire(*held)
    assert [grant.id for grant in (await fleet.claim()).grants] == ["c"]
    assert await fleet.stat("reaped") == 2


async def test_a_claim_reaps_at_most_eight(fleet: Fleet):
    await fleet.configure(sample_concurrency=40)
    await fleet.submit(*[f"g{number}" for number in range(12)])
    await fleet.expire(*await fleet.hold(12))
    await fleet.claim(0)
    assert await fleet.active() == 4


async def test_the_most_active_groups_are_remembered(fleet: Fleet):
    await fleet.submit("a", "b")
    await fleet.finish(*await fleet.hold(2))
    await fleet.take_and_ack()
    await fleet.run_through("c")
    assert await fleet.stat("most_active") == 2


async def test_time_is_put_down_to_the_reason_that_held(fleet: Fleet):
    await fleet.claim()
    await fleet.do("HINCRBY", fleet.key("state"), "gate_at", -3000)
    await fleet.submit("a")
    await fleet.claim()
    assert 3000 <= await fleet.stat("behind:no_prompts") < 5000


async def test_at_most_five_seconds_are_put_down_to_a_reason(fleet: Fleet):
    await fleet.claim()
    await fleet.do("HINCRBY", fleet.key("state"), "gate_at", -60_000)
    await fleet.claim()
    assert await fleet.stat("behind:no_prompts") == 5000


async def test_two_hundred_claimers_at_once_stay_within_the_window(real_fleet: Fleet):
    await real_fleet.configure(sample_concurrency=20)
    await real_fleet.submit(*[f"g{number}" for number in range(60)])
    claims = await asyncio.gather(*(real_fleet.claim(worker=f"pod{number}/1") for number in range(200)))
    assert sum(len(claim.grants) for claim in claims) == 10
    assert {claim.reason for claim in claims} == {"open", "active_full"}
    await real_fleet.finish(*[grant for claim in claims for grant in claim.grants])
    await real_fleet.take_and_ack()
    await real_fleet.finish_all()
