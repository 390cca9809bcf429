"""What can never work becomes a dead letter with its reason, and the line goes on; letters can have another life."""

import json
from typing import Any

import pytest

from tests.fakes.broker import Fleet

MIB = 2**20

BAD: dict[str, tuple[bytes, bytes]] = {
    "no JSON": (b"what is 2 + 2?", b"not a JSON object"),
    "nothing": (b"", b"not a JSON object"),
    "cut off": (b'{"prompt": "2+2', b"not a JSON object"),
    "an array": (b'["2+2"]', b"not a JSON object"),
    "an array after blanks": (b' \n["2+2"]', b"not a JSON object"),
    "a string": (b'"2+2"', b"not a JSON object"),
    "a number": (b"4", b"not a JSON object"),
    "null": (b"null", b"not a JSON object"),
    "n of nothing": (b'{"prompt": "2+2", "n": 0}', b"n must be an integer from 1 to 4096"),
    "n below nothing": (b'{"prompt": "2+2", "n": -1}', b"n must be an integer from 1 to 4096"),
    "half an n": (b'{"prompt": "2+2", "n": 1.5}', b"n must be an integer from 1 to 4096"),
    "a huge n": (b'{"prompt": "2+2", "n": 4097}', b"n must be an integer from 1 to 4096"),
    "n in words": (b'{"prompt": "2+2", "n": "8"}', b"n must be an integer from 1 to 4096"),
    "n that is true": (b'{"prompt": "2+2", "n": true}', b"n must be an integer from 1 to 4096"),
    "an id of 257 bytes": (json.dumps({"id": "x" * 257, "prompt": "2+2"}).encode(), b"id must be a string of 1"),
    "an empty id": (b'{"id": "", "prompt": "2+2"}', b"id must be a string of 1"),
    "a number as id": (b'{"id": 7, "prompt": "2+2"}', b"id must be a string of 1"),
    "a list as id": (b'{"id": ["7"], "prompt": "2+2"}', b"id must be a string of 1"),
}
"""Name -> what was RPUSHed, beginning of the reason."""


async def check_bad_entry(fleet: Fleet, entry: bytes, reason: bytes) -> None:
    """It is a dead letter with its reason and its first KiB, and the next in line is granted at once."""
    await fleet.push(entry)
    await fleet.submit("next")
    (grant,) = await fleet.hold()
    (letter,) = await fleet.letters()
    assert grant.id == "next"
    assert letter["reason"].startswith(reason)
    assert letter["text"] == entry[:1024]
    await fleet.finish(grant)
    await fleet.take_and_ack()


@pytest.mark.parametrize("name", BAD)
async def test_a_bad_raw_entry_is_a_dead_letter_and_the_line_goes_on(fleet: Fleet, name: str):
    await check_bad_entry(fleet, *BAD[name])


@pytest.mark.parametrize("name", BAD)
async def test_a_real_server_sees_the_same_in_a_bad_raw_entry(real_fleet: Fleet, name: str):
    await check_bad_entry(real_fleet, *BAD[name])


# Those whose parsers differ: only a real server's counts.
@pytest.mark.parametrize("group_id", [b"a\xff", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf4\x90\x80\x80", b"\xe2\x82"])
async def test_an_id_that_is_no_utf_8_is_a_dead_letter(real_fleet: Fleet, group_id: bytes):
    await check_bad_entry(real_fleet, b'{"id": "' + group_id + b'", "prompt": "2+2"}', b"id is not UTF-8")


async def test_a_lone_surrogate_is_a_dead_letter(real_fleet: Fleet):
    await check_bad_entry(real_fleet, rb'{"prompt": "\ud800"}', b"not a JSON object")


async def test_an_entry_nested_two_thousand_deep_is_a_dead_letter(real_fleet: Fleet):
    await check_bad_entry(real_fleet, b'{"prompt": ' + b"[" * 2000 + b"]" * 2000 + b"}", b"not a JSON object")


async def test_an_entry_of_64_mib_is_a_dead_letter_that_keeps_one_kib(real_fleet: Fleet):
    entry = b'{"prompt": "' + b"x" * (64 * MIB) + b'"}'
    await check_bad_entry(real_fleet, entry, b"longer than max_bytes = 8388608: ")


@pytest.mark.parametrize("group_id", ["\u00fc", "\u0800\ud7ff\ue000\uffff", "\U00010000\U0010ffff", "a\u4e2d?"])
async def test_an_id_beyond_ascii_is_granted(real_fleet: Fleet, group_id: str):
    await real_fleet.push(json.dumps({"id": group_id, "prompt": "2+2"}, ensure_ascii=False).encode())

    (grant,) = await real_fleet.hold()

    assert grant.id == group_id
    await real_fleet.finish(grant)
    await real_fleet.take_and_ack()


async def test_an_entry_of_just_max_bytes_is_granted(fleet: Fleet):
    await fleet.configure(max_bytes=1024)
    text = json.dumps({"id": "a", "prompt": "x" * 997})
    assert len(text) == 1024 - 2
    await fleet.push(text + "  ", text + "   ")
    assert [grant.id for grant in (await fleet.claim(2)).grants] == ["a"]
    assert (await fleet.letters())[0]["reason"].startswith(b"longer than max_bytes = 1024")


async def test_a_bad_entry_does_not_cost_the_good_ones_before_and_behind_it(fleet: Fleet):
    await fleet.configure(sample_concurrency=10)
    await fleet.push({"id": "a", "prompt": "1"}, "bad", {"id": "b", "prompt": "2"}, "worse")
    assert [grant.id for grant in (await fleet.claim(5)).grants] == ["a", "b"]
    assert len(await fleet.letters()) == 2
    assert await fleet.stat("dead") == 2


async def test_a_bad_entry_waits_in_line_like_any_other(fleet: Fleet):
    await fleet.broker.pause()
    await fleet.push("bad")
    await fleet.claim()
    assert await fleet.letters() == []


# Good raw entries


async def test_a_raw_entry_is_stored_as_it_came(real_fleet: Fleet):
    fleet = real_fleet
    text = b' {"prompt": "2+2", "metadata": {"list": [], "big": 12345678901234567890}, "id": "a", "n": 3}\n'
    await fleet.push(text)
    (grant,) = await fleet.hold()
    assert (grant.id, grant.n, grant.text) == ("a", 3, text)
    await fleet.finish_all()
    assert await fleet.stat("submitted") == 1


@pytest.mark.parametrize("entry", [{"prompt": "2+2"}, {"prompt": "2+2", "id": None, "n": None}])
async def test_a_raw_entry_without_id_is_named_by_its_born(fleet: Fleet, entry: dict[str, Any]):
    await fleet.push(entry, entry)
    first, second = await fleet.hold(2)
    assert (first.id, first.n) == (first.born, 2)
    assert first.id != second.id


async def test_a_raw_entry_whose_id_is_known_or_done_is_passed_over(fleet: Fleet):
    await fleet.run_through("done")
    await fleet.take_and_ack()
    await fleet.submit("known")
    await fleet.push({"id": "done", "prompt": "1"}, {"id": "known", "prompt": "1"}, {"id": "new", "prompt": "1"})
    assert [grant.id for grant in (await fleet.claim(5)).grants] == ["known", "new"]
    assert await fleet.stat("duplicates") == 2
    assert await fleet.letters() == []


async def test_an_id_may_hold_whatever_json_can_say(fleet: Fleet):
    names = ["a:b", "@a", "ä{}*[]", "x" * 256, "a b\n\t\u0000c", "../../etc"]
    await fleet.configure(sample_concurrency=100)
    await fleet.push(*[{"id": name, "prompt": "1"} for name in names])
    grants = await fleet.hold(6)
    assert [grant.id for grant in grants] == names
    await fleet.finish(*grants)
    assert await fleet.take_and_ack() == names


# Requeue


async def letter_of(fleet: Fleet, group_id: str) -> str:
    await fleet.submit(group_id)
    (grant,) = await fleet.hold()
    await fleet.put(grant, 0)
    await fleet.broker.release(grant.token, "reject", "bad reward")
    (letter,) = [letter for letter in await fleet.letters() if letter["id"].decode() == group_id]
    return letter["entry"].decode()


async def test_a_dead_letter_has_another_life_from_nothing(fleet: Fleet):
    letter = await letter_of(fleet, "a")
    await fleet.submit("b")
    assert await fleet.broker.requeue_dead([letter]) == ["ok"]
    (grant,) = await fleet.hold()
    assert (grant.id, grant.attempt, grant.n, grant.missing) == ("a", 1, 2, [0, 1])
    assert grant.text == b'{"id":"a","prompt":"question a"}'
    assert await fleet.letters() == []
    await fleet.finish(grant)
    assert await fleet.take_and_ack() == ["a"]


async def test_a_requeued_group_is_done_no_more(fleet: Fleet):
    letter = await letter_of(fleet, "a")
    await fleet.broker.requeue_dead([letter])
    assert await fleet.submit("a") == ["known"]
    assert await fleet.do("ZSCORE", fleet.key("done"), "a") is None


async def test_a_letter_whose_id_is_in_the_run_again_only_goes(fleet: Fleet):
    letter = await letter_of(fleet, "a")
    await fleet.do("ZREM", fleet.key("done"), "a")
    await fleet.submit("a")
    born = (await fleet.group("a"))["born"]
    assert await fleet.broker.requeue_dead([letter]) == ["known"]
    assert (await fleet.group("a"))["born"] == born
    assert (await fleet.waits("again"), await fleet.letters()) == ([], [])


async def test_a_letter_requeued_twice_is_gone_the_second_time(fleet: Fleet):
    letter = await letter_of(fleet, "a")
    assert await fleet.broker.requeue_dead([letter, letter]) == ["ok", "gone"]
    assert await fleet.stat("requeued") == 1


async def test_a_letter_of_what_never_was_a_group_stays(fleet: Fleet):
    await fleet.push("bad")
    await fleet.claim()
    (letter,) = await fleet.letters()
    assert await fleet.broker.requeue_dead([letter["entry"].decode()]) == ["cut"]
    assert len(await fleet.letters()) == 1


async def test_each_life_of_a_group_has_a_born_of_its_own(fleet: Fleet):
    borns = list[str]()
    letter = await letter_of(fleet, "a")
    for _ in range(2):
        await fleet.broker.requeue_dead([letter])
        (grant,) = await fleet.hold()
        borns.append(grant.born)
        await fleet.broker.release(grant.token, "reject", "still bad")
        letter = (await fleet.letters())[0]["entry"].decode()
    assert borns[0] != borns[1]


async def test_a_late_sample_of_the_life_before_is_gone(fleet: Fleet):
    await fleet.submit("a")
    (before,) = await fleet.hold()
    await fleet.broker.release(before.token, "reject", "bad")
    await fleet.broker.requeue_dead([(await fleet.letters())[0]["entry"].decode()])
    (now,) = await fleet.hold()
    assert before.born != now.born
    assert await fleet.put(before, 0) == ["gone"]
    assert await fleet.complete(before) == "gone"
