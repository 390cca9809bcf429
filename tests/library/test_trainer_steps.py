"""take, touch, adopt, ack, recycle: what becomes of a completed group."""

from tests.fakes.broker import CONSUMER, Fleet

OTHER = "rank-1"


# take


async def test_completed_groups_are_taken_in_order_and_at_most_so_many(fleet: Fleet):
    await fleet.configure(sample_concurrency=10)
    await fleet.run_through("a", "b", "c")
    assert [entry.id for entry in await fleet.take(2)] == ["a", "b"]
    assert [entry.id for entry in await fleet.take(2)] == ["c"]
    assert await fleet.take(2) == []


async def test_two_consumers_take_different_groups(fleet: Fleet):
    await fleet.run_through("a", "b")
    mine = await fleet.take(1)
    others = await fleet.take(1, OTHER)
    assert [entry.id for entry in mine + others] == ["a", "b"]


async def test_a_take_tells_the_newest_entry_to_wait_beyond(fleet: Fleet):
    assert await fleet.broker.take(CONSUMER, 1) == ("0-0", [])
    await fleet.run_through("a", "b")
    newest, (entry,) = await fleet.broker.take(CONSUMER, 1)
    assert newest == (await fleet.take())[0].entry
    assert newest != entry.entry


async def test_what_a_consumer_holds_is_handed_out_again_from_the_start(fleet: Fleet):
    await fleet.run_through("a", "b")
    held = await fleet.take()
    assert await fleet.take(position="0-0") == held
    assert await fleet.take(position=held[0].entry) == held[1:]
    assert await fleet.take(position="0-0", consumer=OTHER) == []


async def test_a_group_that_is_taken_waits_no_more(fleet: Fleet):
    await fleet.run_through("a", "b")
    await fleet.submit("c")
    assert (await fleet.claim()).reason == "completed_full"
    await fleet.take()
    await fleet.hold()


async def test_an_entry_that_was_deleted_while_it_was_held_is_handed_out_no_more(fleet: Fleet):
    await fleet.run_through("a", "b")
    first, second = await fleet.take()
    await fleet.do("XDEL", fleet.key("completed"), first.entry)
    assert await fleet.take(position="0-0") == [second]
    assert set(await fleet.pending()) == {second.entry.encode()}


async def test_a_stream_without_its_consumer_group_gets_one_from_the_start(fleet: Fleet):
    await fleet.run_through("a")
    await fleet.do("XGROUP", "DESTROY", fleet.key("completed"), "trainer")
    assert [entry.id for entry in await fleet.take()] == ["a"]


async def test_a_run_that_nobody_made_has_nothing_to_take(fleet: Fleet):
    await fleet.do("DEL", fleet.key("completed"), fleet.key("config"))
    assert await fleet.broker.take(CONSUMER, 1) == ("0-0", [])


async def test_what_was_completed_can_be_taken_though_the_config_is_gone(fleet: Fleet):
    await fleet.run_through("a")
    await fleet.do("DEL", fleet.key("config"))
    assert [entry.id for entry in await fleet.take()] == ["a"]


# touch and adopt


async def test_a_touched_entry_has_been_idle_for_no_time(real_fleet: Fleet):
    await real_fleet.run_through("a")
    (entry,) = await real_fleet.take()
    await real_fleet.do("XCLAIM", real_fleet.key("completed"), "trainer", CONSUMER, 0, entry.entry, "IDLE", 60_000)
    assert await real_fleet.broker.touch(CONSUMER, [entry.entry]) == []
    assert (await real_fleet.pending())[entry.entry.encode()] < 30_000
    await real_fleet.take_and_ack()
    await real_fleet.broker.ack([entry.entry])


async def test_a_touch_names_what_is_another_s_or_over(fleet: Fleet):
    await fleet.run_through("a", "b")
    mine, over = await fleet.take()
    await fleet.broker.ack([over.entry])
    assert await fleet.broker.touch(CONSUMER, [mine.entry, over.entry]) == [over.entry]
    assert await fleet.broker.touch(OTHER, [mine.entry]) == [mine.entry]
    assert await fleet.take(position="0-0") == [mine]


async def test_entries_of_a_deleted_consumer_are_adopted(fleet: Fleet):
    await fleet.run_through("a", "b")
    (lost,) = await fleet.take(1, OTHER)
    await fleet.do("XGROUP", "DELCONSUMER", fleet.key("completed"), "trainer", OTHER)
    assert await fleet.broker.adopt(CONSUMER) == 1
    assert await fleet.take(position="0-0") == [lost]


async def test_adopting_takes_nothing_that_is_held_or_still_new(fleet: Fleet):
    await fleet.run_through("a", "b")
    await fleet.take(1, OTHER)
    assert await fleet.broker.adopt(CONSUMER) == 0
    assert [entry.id for entry in await fleet.take()] == ["b"]


async def test_adopting_makes_a_consumer_group_where_there_is_none(fleet: Fleet):
    await fleet.do("DEL", fleet.key("completed"))
    assert await fleet.broker.adopt(CONSUMER) == 0
    assert len(await fleet.do("XINFO", "GROUPS", fleet.key("completed"))) == 1


async def test_adopting_goes_through_a_long_stream_in_slices(fleet: Fleet):
    for number in range(7):
        await fleet.do("XADD", fleet.key("completed"), "*", "id", f"g{number}", "born", "x")
    await fleet.take(6, OTHER)
    await fleet.do("XGROUP", "DELCONSUMER", fleet.key("completed"), "trainer", OTHER)
    position, counts = "-", list[int]()
    while position:
        answer, adopted = await fleet.broker.calls.step("adopt", CONSUMER, position, 2)
        position = answer.decode()
        counts.append(adopted)
    assert counts == [2, 2, 2, 0]


# ack


async def test_an_acked_group_leaves_nothing_but_its_id(fleet: Fleet):
    (grant,) = await fleet.run_through("a")
    (entry,) = await fleet.take()
    assert await fleet.broker.ack([entry.entry]) == ["ok"]
    assert await fleet.group("a") == {}
    assert await fleet.do("EXISTS", fleet.broker.keys.samples("a", grant.born)) == 0
    assert await fleet.do("ZSCORE", fleet.key("done"), "a")
    assert await fleet.completed() == 0
    assert await fleet.stat("acked") == 1


async def test_acking_twice_is_gone_the_second_time_and_counted_once(fleet: Fleet):
    await fleet.run_through("a")
    (entry,) = await fleet.take()
    assert await fleet.broker.ack([entry.entry, entry.entry]) == ["ok", "gone"]
    assert await fleet.broker.ack([entry.entry]) == ["gone"]
    assert await fleet.stat("acked") == 1


async def test_a_late_ack_after_a_recycle_leaves_the_new_incarnation_alone(fleet: Fleet):
    await fleet.run_through("a")
    (entry,) = await fleet.take()
    await fleet.broker.recycle(entry.entry)
    assert await fleet.broker.ack([entry.entry]) == ["gone"]
    (again,) = await fleet.hold()
    await fleet.put(again, 0)
    assert await fleet.broker.ack([entry.entry]) == ["gone"]
    assert (await fleet.group("a"))["token"].decode() == again.token


async def test_an_ack_of_an_entry_whose_group_was_made_anew_ends_no_other_incarnation(fleet: Fleet):
    await fleet.run_through("a")
    (entry,) = await fleet.take()
    await fleet.do("DEL", fleet.broker.keys.group("a"))
    await fleet.submit("a")
    assert await fleet.broker.ack([entry.entry]) == ["ok"]
    assert await fleet.waits("prompts") == [b"@a"]
    assert await fleet.group("a") != {}
    assert await fleet.stat("acked") == 0


async def test_an_entry_may_be_acked_by_another_than_its_taker(fleet: Fleet):
    await fleet.run_through("a")
    (entry,) = await fleet.take(consumer=OTHER)
    assert await fleet.broker.ack([entry.entry]) == ["ok"]
    assert await fleet.pending() == {}


async def test_many_acks_are_answered_in_order(fleet: Fleet):
    await fleet.configure(sample_concurrency=10)
    await fleet.run_through("a", "b", "c")
    a, b, c = await fleet.take()
    await fleet.broker.ack([b.entry])
    assert await fleet.broker.ack([c.entry, b.entry, a.entry]) == ["ok", "gone", "ok"]


# recycle


async def test_a_recycled_group_is_made_again_from_nothing(fleet: Fleet):
    (before,) = await fleet.run_through("a")
    await fleet.submit("b")
    (entry,) = await fleet.take()
    assert await fleet.broker.recycle(entry.entry) == "ok"
    assert await fleet.waits("prompts") == [b"@b", b"@a"]
    _, again = await fleet.hold(2)
    assert (again.id, again.attempt, again.missing) == ("a", 1, [0, 1])
    assert again.born != before.born
    assert await fleet.do("EXISTS", fleet.broker.keys.samples("a", before.born)) == 0


async def test_a_recycled_group_is_weighed_by_all_of_its_samples(fleet: Fleet):
    await fleet.configure(refill="sample")
    await fleet.submit("a", n=3)
    await fleet.finish(*await fleet.hold())
    (entry,) = await fleet.take()
    await fleet.submit("first", n=2)
    await fleet.broker.recycle(entry.entry)
    assert [grant.id for grant in (await fleet.claim(5)).grants] == ["first"]


async def test_a_recycled_group_at_its_limit_is_a_dead_letter_where_a_reason_is_given(fleet: Fleet):
    await fleet.configure(recycle_limit=0)
    (grant,) = await fleet.run_through("a")
    (entry,) = await fleet.take()
    assert await fleet.broker.recycle(entry.entry, "unsound") == "dead"
    (letter,) = await fleet.letters()
    assert (letter["id"], letter["reason"], letter["text"]) == (b"a", b"unsound", grant.text)
    assert (await fleet.completed(), await fleet.group("a")) == (0, {})
    assert await fleet.do("EXISTS", fleet.broker.keys.samples("a", grant.born)) == 0


async def test_a_recycled_group_goes_through_and_says_how_often(fleet: Fleet):
    await fleet.run_through("a")
    (entry,) = await fleet.take()
    await fleet.broker.recycle(entry.entry)
    await fleet.finish(*await fleet.hold())
    (again,) = await fleet.take()
    assert again.fields["recycled"] == b"1"
    assert await fleet.broker.ack([again.entry]) == ["ok"]


async def test_a_group_is_recycled_at_most_so_often(fleet: Fleet):
    await fleet.configure(recycle_limit=1)
    await fleet.run_through("a")
    (first,) = await fleet.take()
    assert await fleet.broker.recycle(first.entry) == "ok"
    await fleet.finish(*await fleet.hold())
    (second,) = await fleet.take()
    assert await fleet.broker.recycle(second.entry) == "limit"
    assert await fleet.take(position="0-0") == [second]
    assert await fleet.broker.ack([second.entry]) == ["ok"]


async def test_recycling_twice_is_gone_the_second_time(fleet: Fleet):
    await fleet.run_through("a")
    (entry,) = await fleet.take()
    await fleet.broker.recycle(entry.entry)
    assert await fleet.broker.recycle(entry.entry) == "gone"
    assert await fleet.waits("prompts") == [b"@a"]
    assert await fleet.stat("recycled") == 1


async def test_a_late_recycle_after_an_ack_brings_nothing_back(fleet: Fleet):
    await fleet.run_through("a")
    (entry,) = await fleet.take()
    await fleet.broker.ack([entry.entry])
    assert await fleet.broker.recycle(entry.entry) == "gone"
    assert await fleet.waits("prompts") == []


async def test_recycling_an_entry_whose_group_was_made_anew_only_removes_the_entry(fleet: Fleet):
    await fleet.run_through("a")
    (entry,) = await fleet.take()
    await fleet.do("DEL", fleet.broker.keys.group("a"))
    await fleet.submit("a")
    born = (await fleet.group("a"))["born"]
    assert await fleet.broker.recycle(entry.entry) == "gone"
    assert ((await fleet.group("a"))["born"], await fleet.completed()) == (born, 0)
    assert await fleet.waits("prompts") == [b"@a"]


async def test_a_recycled_entry_is_pending_nowhere(fleet: Fleet):
    await fleet.run_through("a")
    (entry,) = await fleet.take()
    await fleet.broker.recycle(entry.entry)
    assert await fleet.pending() == {}


async def test_what_a_run_leaves_behind_is_its_memory_only(fleet: Fleet):
    await fleet.run_through("a", "b")
    first, second = await fleet.take()
    await fleet.broker.recycle(first.entry)
    await fleet.broker.ack([second.entry])
    await fleet.finish_all()
    assert await fleet.names() == {"state", "config", "stats", "done", "completed", "wake"}
