"""Where the groups are: pages by state, one group in each place, and the dead letters."""

import pytest

from tests.api.served import Served
from tests.fakes.broker import WORKER, Fleet


async def group_page(served: Served, run: str, state: str, **query: object) -> list[dict[str, object]]:
    return (await served.get(f"/status/{run}/groups", state=state, **query))["groups"]


async def test_queued_groups_come_in_the_order_of_the_line(served: Served, fleet: Fleet, run: str):
    await fleet.submit("a", "b", "c")
    assert [row["id"] for row in await group_page(served, run, "queued")] == ["a", "b", "c"]
    await fleet.finish_all()


async def test_pages_follow_each_other_to_the_end(served: Served, fleet: Fleet, run: str):
    await fleet.submit("a", "b", "c")
    first = await served.get(f"/status/{run}/groups", state="queued", limit=2)
    second = await served.get(f"/status/{run}/groups", state="queued", limit=2, after=first["next"])
    assert [row["id"] for row in first["groups"] + second["groups"]] == ["a", "b", "c"]
    assert (first["total"], second["next"]) == (3, None)
    await fleet.finish_all()


async def test_raw_entries_are_shown_as_far_as_they_say(served: Served, fleet: Fleet, run: str):
    await fleet.push({"id": "raw", "prompt": "x", "n": 4}, {"prompt": "y"}, "no JSON")
    rows = await group_page(served, run, "queued")
    assert [(row["id"], row["n"]) for row in rows] == [("raw", 4), (None, None), (None, None)]
    await fleet.finish_all()


async def test_an_active_group_says_its_holder_and_what_is_finished(served: Served, fleet: Fleet, run: str):
    await fleet.submit("a")
    (grant,) = await fleet.hold()
    await fleet.put(grant, 0)
    (row,) = await group_page(served, run, "active")
    assert (row["id"], row["holder"], row["finished"], row["n"]) == ("a", WORKER, 1, 2)
    assert 0 < float(str(row["due_seconds"])) <= 60
    await fleet.finish_all()


async def test_a_group_that_failed_says_why_and_when_it_is_due(served: Served, fleet: Fleet, run: str):
    await fleet.submit("a")
    (grant,) = await fleet.hold()
    await fleet.broker.release(grant.token, "fail", "engine: 500")
    (row,) = await group_page(served, run, "again")
    assert (row["reason"], row["attempts"]) == ("engine: 500", 1)
    assert 0 <= float(str(row["due_seconds"])) <= 1
    await fleet.finish_all()


async def test_waiting_and_taken_groups_are_told_apart(served: Served, fleet: Fleet, run: str):
    await fleet.run_through("a", "b")
    await fleet.take(1, consumer="rank-0")
    (waiting,), (taken,) = await group_page(served, run, "waiting"), await group_page(served, run, "taken")
    assert (waiting["id"], waiting["holder"]) == ("b", None)
    assert (taken["id"], taken["holder"]) == ("a", "rank-0")
    await fleet.broker.ack([str(waiting["entry"]), str(taken["entry"])])


@pytest.mark.parametrize("state", ["waiting", "taken"])
async def test_pages_of_the_stream_follow_each_other(served: Served, fleet: Fleet, run: str, state: str):
    await fleet.configure(sample_concurrency=100)
    await fleet.run_through("a", "b", "c")
    entries = await fleet.take() if state == "taken" else []
    first = await served.get(f"/status/{run}/groups", state=state, limit=2)
    second = await served.get(f"/status/{run}/groups", state=state, limit=2, after=first["next"])
    assert [row["id"] for row in first["groups"] + second["groups"]] == ["a", "b", "c"]
    assert (first["total"], second["next"]) == (3, None)
    await fleet.broker.ack([entry.entry for entry in entries or await fleet.take()])


@pytest.mark.parametrize(
    ("state", "after"), [("queued", "1-0"), ("queued", "-1"), ("waiting", "7"), ("taken", "x-y"), ("again", "²")]
)
async def test_a_position_of_another_list_is_refused(served: Served, run: str, state: str, after: str):
    answer = await served.http.get(f"/status/{run}/groups", params={"state": state, "after": after})
    assert answer.status_code == 422
    assert "take `next` of the page before" in answer.json()["detail"]


# One group


async def place(served: Served, run: str, group_id: str) -> tuple[str, str | None, list[str]]:
    found = await served.get(f"/status/{run}/groups/{group_id}")
    return found["place"], found["holder"], [event["what"] for event in found["history"]]


async def test_a_queued_group_was_only_submitted(served: Served, fleet: Fleet, run: str):
    await fleet.submit("a")
    assert await place(served, run, "a") == ("queued", None, ["submitted"])
    await fleet.finish_all()


async def test_an_active_group_is_at_its_holder(served: Served, fleet: Fleet, run: str):
    await fleet.submit("a")
    await fleet.hold()
    assert await place(served, run, "a") == ("active", WORKER, ["submitted", "claimed"])
    await fleet.finish_all()


async def test_a_group_given_back_waits_for_another_attempt(served: Served, fleet: Fleet, run: str):
    await fleet.submit("a")
    (grant,) = await fleet.hold()
    await fleet.broker.release(grant.token, "free")
    assert (await place(served, run, "a"))[0] == "again"
    await fleet.finish_all()


async def test_a_completed_group_waits_until_a_trainer_takes_it(served: Served, fleet: Fleet, run: str):
    await fleet.run_through("a")
    assert await place(served, run, "a") == ("waiting", None, ["submitted", "claimed", "completed"])
    await fleet.take_and_ack()


async def test_a_taken_group_is_at_its_consumer(served: Served, fleet: Fleet, run: str):
    await fleet.run_through("a")
    entries = await fleet.take(consumer="rank-3")
    assert (await place(served, run, "a"))[:2] == ("taken", "rank-3")
    await fleet.broker.ack([entry.entry for entry in entries])


async def test_an_acked_group_is_over(served: Served, fleet: Fleet, run: str):
    await fleet.run_through("a")
    await fleet.take_and_ack()
    assert await place(served, run, "a") == ("over", None, ["over"])


async def test_a_dead_group_says_why(served: Served, fleet: Fleet, run: str):
    await fleet.submit("a")
    (grant,) = await fleet.hold()
    await fleet.broker.release(grant.token, "reject", "too long")
    found = await served.get(f"/status/{run}/groups/a")
    assert (found["place"], found["reason"]) == ("dead", "too long")


async def test_the_finished_samples_of_a_group_are_named(served: Served, fleet: Fleet, run: str):
    await fleet.submit("a")
    (grant,) = await fleet.hold()
    await fleet.put(grant, 1)
    assert (await served.get(f"/status/{run}/groups/a"))["finished"] == [1]
    await fleet.finish_all()


async def test_an_id_may_hold_slashes_and_blanks(served: Served, fleet: Fleet, run: str):
    await fleet.submit("epoch 1/question 7")
    assert (await place(served, run, "epoch%201/question%207"))[0] == "queued"
    await fleet.finish_all()


async def test_an_unknown_group_is_404(served: Served, run: str):
    answer = await served.http.get(f"/status/{run}/groups/never-heard-of")
    assert answer.status_code == 404
    assert "never-heard-of" in answer.json()["detail"]


# Dead letters


async def die(fleet: Fleet, *ids: str) -> None:
    for group_id in ids:
        await fleet.submit(group_id)
        (grant,) = await fleet.hold()
        await fleet.broker.release(grant.token, "reject", f"{group_id} is bad")


async def test_dead_letters_come_newest_first_in_pages(served: Served, fleet: Fleet, run: str):
    await die(fleet, "a", "b", "c")
    first = await served.get(f"/status/{run}/dead", limit=2)
    second = await served.get(f"/status/{run}/dead", limit=2, after=first["next"])
    assert [letter["id"] for letter in first["letters"] + second["letters"]] == ["c", "b", "a"]
    assert (first["total"], second["next"]) == (3, None)


async def test_a_dead_letter_says_its_reason_and_the_beginning_of_its_text(served: Served, fleet: Fleet, run: str):
    await die(fleet, "a")
    (letter,) = (await served.get(f"/status/{run}/dead"))["letters"]
    assert letter["reason"] == "a is bad"
    assert "question a" in letter["text"]


async def test_a_position_that_is_no_letter_is_refused(served: Served, run: str):
    answer = await served.http.get(f"/status/{run}/dead", params={"after": "yesterday"})
    assert answer.status_code == 422


async def test_each_failed_attempt_has_its_time_and_its_reason(served: Served, fleet: Fleet, run: str):
    await fleet.submit("a")
    for reason in ("engine: 500", "lease\nexpired"):
        (grant,) = await fleet.hold()
        await fleet.broker.release(grant.token, "fail", reason)
        await fleet.fall_due()
    found = await served.get(f"/status/{run}/groups/a")
    failed = [event for event in found["history"] if event["what"] == "failed"]
    assert [event["detail"] for event in failed] == ["engine: 500", "lease expired"]
    assert all(event["at_ms"] > 1_700_000_000_000 for event in failed)
    await fleet.finish_all()


async def test_the_history_of_failed_attempts_is_bounded(served: Served, fleet: Fleet, run: str):
    await fleet.configure(max_attempts=99)
    await fleet.submit("a")
    for number in range(20):
        (grant,) = await fleet.hold()
        await fleet.broker.release(grant.token, "fail", f"{number} {'x' * 500}")
        await fleet.fall_due()
    failed = (await fleet.group("a"))["failed"].decode().splitlines()
    assert 0 < len("\n".join(failed)) <= 2048
    assert failed[-1].split()[1] == "19"
    await fleet.finish_all()
