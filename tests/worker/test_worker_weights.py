"""A worker brings its engine to the weights that were published: what it says to the engine, and when it serves."""

import asyncio
import errno
from pathlib import Path
from typing import Any

import pytest

from rolloutfleet.policy import Publication
from rolloutfleet.weights import seal
from tests.fakes.engine import FakeEngine, Json, Reply, Script, never, said
from tests.worker.fleet import Fleet, until

QUICK = 0.05


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worker.weights.POLICY_SECONDS", QUICK)
    monkeypatch.setattr("worker.watches.LEAST_PROBE_SECONDS", QUICK)
    monkeypatch.setattr("worker.watches.COUNT_SECONDS", QUICK)
    monkeypatch.setattr("worker.weights.FIRST_SECONDS", QUICK)
    monkeypatch.setattr("worker.weights.LONGEST_SECONDS", QUICK)


@pytest.fixture(autouse=True)
async def answers_by_its_weights(engine: FakeEngine) -> None:
    engine.script = lambda _: said([1, 2], version=engine.weight_version)


async def publish(fleet: Fleet, path: str = "/w", **fields: Any) -> int:
    return await fleet.broker.publish(f"{path} {len(fleet.engine.calls)} {fields}", Publication(path, **fields))


async def versions(fleet: Fleet, count: int = 1) -> list[str]:
    return [entry.fields["versions"].decode() for entry in await fleet.completed(count)]


async def is_serving(fleet: Fleet, version: int) -> bool:
    """Whether the only worker claims, with these weights."""
    return await fleet.facts('"ready"') and await fleet.facts(f'"weight_version":"{version}"')


async def test_an_engine_loads_what_was_published_before_its_worker_claims(fleet: Fleet, engine: FakeEngine) -> None:
    await fleet.configure(n=1)
    await publish(fleet, "/w/1")
    await fleet.submit("g")
    async with fleet.worker():
        assert await versions(fleet) == ["[1, 1]"]
    assert engine.calls == ["pause retract", "load 1", "continue"]


async def test_without_a_publication_the_engine_s_own_weights_serve(fleet: Fleet, engine: FakeEngine) -> None:
    await fleet.configure(n=1)
    await fleet.submit("g")
    async with fleet.worker():
        assert await versions(fleet) == ["[7, 7]"]
    assert engine.calls == []


async def test_an_engine_that_has_the_weights_needs_not_load_them(fleet: Fleet, engine: FakeEngine) -> None:
    await fleet.configure(n=1)
    engine.weight_version, engine.model_path = "1", "/w/1"
    await publish(fleet, "/w/1")
    await fleet.submit("g")
    async with fleet.worker():
        assert await versions(fleet) == ["[1, 1]"]
    assert engine.calls == ["continue"]


async def test_the_same_number_of_another_run_is_another_version(fleet: Fleet, engine: FakeEngine) -> None:
    await fleet.configure(n=1)
    engine.weight_version, engine.model_path = "1", "/w/of/yesterday"
    await publish(fleet, "/w/1")
    async with fleet.worker():
        await until(lambda: is_serving(fleet, 1))
    assert engine.calls == ["pause retract", "load 1", "continue"]


async def test_a_worker_that_serves_goes_to_the_next_version(fleet: Fleet, engine: FakeEngine) -> None:
    await fleet.configure(n=1)
    await publish(fleet, "/w/1")
    await fleet.submit("g")
    async with fleet.worker():
        assert await versions(fleet) == ["[1, 1]"]
        await publish(fleet, "/w/2", mode="abort")
        await until(lambda: is_serving(fleet, 2))
        await fleet.submit("h")
        assert await versions(fleet) == ["[2, 2]"]
        await until(lambda: fleet.stat("updates_loaded"))
        await until(lambda: fleet.stat("updating_ms"))
    assert engine.calls[3:] == ["pause abort", "load 2", "continue"]


async def test_groups_that_new_weights_make_room_for_are_not_begun_with_the_old_ones(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("worker.weights.POLICY_SECONDS", 3600)  # whoever wants to know more must ask
    await fleet.configure(n=1, max_staleness=0, groups_per_update=1)
    await publish(fleet, "/w/1")
    await fleet.submit("g", "h")
    async with fleet.worker():
        assert await versions(fleet) == ["[1, 1]"]
        await publish(fleet, "/w/2")
        assert await versions(fleet) == ["[2, 2]"]


async def test_no_request_is_sent_while_weights_are_loaded(fleet: Fleet, engine: FakeEngine) -> None:
    await fleet.configure(n=1)
    loaded = asyncio.Event()

    async def load(body: Json) -> Json:
        await loaded.wait()
        engine.weight_version, engine.model_path = body["weight_version"], body["model_path"]
        return {"success": True}

    engine.load = load
    await publish(fleet)
    await fleet.submit("g")
    async with fleet.worker():
        await until(lambda: "load 1" in engine.calls)
        await until(lambda: fleet.facts('"loading"'))
        sent = len(engine.requests)
        loaded.set()
        await fleet.completed(1)
    assert sent == 0


async def test_drain_lets_running_requests_finish_first(fleet: Fleet, engine: FakeEngine) -> None:
    await fleet.configure(n=1)
    await publish(fleet, "/w/1")
    go = asyncio.Event()

    async def slow(_: Json) -> Json:
        version = engine.weight_version
        await go.wait()
        return said([1], version=version)

    engine.script = slow
    await fleet.submit("g")
    async with fleet.worker():
        await until(lambda: engine.running == 1)
        await publish(fleet, "/w/2", mode="drain")
        await until(lambda: fleet.facts('"updating"'))
        assert len(engine.calls) == 3
        go.set()
        assert await versions(fleet) == ["[1, 1]"]
        await until(lambda: is_serving(fleet, 2))
    assert engine.calls[3:] == ["pause retract", "load 2", "continue"]


def refuses(_: Json) -> int:
    return 400


def did_not_flush(_: Json) -> Json:
    return {"success": False, "message": "Weights were updated, but the cache was not flushed"}


def says_the_other_version(_: Json) -> Json:
    return {"success": True}


@pytest.mark.parametrize("bad", [refuses, did_not_flush, says_the_other_version])
async def test_an_update_that_is_not_certain_leaves_the_worker_out_and_a_good_one_brings_it_back(
    fleet: Fleet, engine: FakeEngine, bad: Script
) -> None:
    await fleet.configure(n=1)
    await publish(fleet, "/w/1")
    async with fleet.worker():
        await until(lambda: is_serving(fleet, 1))
        loads = engine.load
        engine.load = lambda body: (bad if body["weight_version"] == "2" else loads)(body)
        await publish(fleet, "/w/2")
        await until(lambda: fleet.facts('"weights_failed","reason":"version 2 is not loaded from /w/2: '))
        await fleet.submit("g")
        sent = len(engine.requests)
        await until(lambda: fleet.stat("updates_failed"))
        await publish(fleet, "/w/3")
        assert await versions(fleet) == ["[3, 3]"]
    assert sent == 0
    assert engine.calls[-1] == "continue"


async def test_weights_that_end_the_engine_are_not_loaded_into_the_next_one(fleet: Fleet, engine: FakeEngine) -> None:
    await fleet.configure(n=1)
    engine.load = lambda _: Reply(close=True)
    await publish(fleet, "/w/1", at_once=1)
    async with fleet.worker():
        await until(lambda: fleet.facts("did not survive it"))
        assert await fleet.broker.update("begin", "other/1", 1, "other engine") == "wait"


async def test_what_is_held_is_given_back_when_the_engine_s_weights_are_in_doubt(
    fleet: Fleet, engine: FakeEngine
) -> None:
    await fleet.configure(n=1)
    await publish(fleet, "/w/1")
    engine.script = never
    await fleet.submit("g")
    async with fleet.worker():
        await until(lambda: engine.running == 1)
        engine.load = refuses
        await publish(fleet, "/w/2")
        await until(lambda: fleet.stat("released:free"))
        await until(lambda: "all" in engine.aborted)
        assert await fleet.active() == 0
    await finish(fleet, engine)


async def finish(fleet: Fleet, engine: FakeEngine) -> None:
    """Another worker does what is left, with an engine that has the newest weights."""
    policy = await fleet.broker.policy()
    assert policy is not None
    engine.weight_version, engine.model_path = str(policy.version), policy.path
    engine.script = lambda _: said([1], version=engine.weight_version)
    async with fleet.worker(pod="another"):
        await fleet.completed(1)


async def test_weights_that_were_changed_are_refused_and_what_runs_is_finished(
    fleet: Fleet, engine: FakeEngine, tmp_path: Path
) -> None:
    await fleet.configure(n=1)
    await publish(fleet, "/w/1")
    go = asyncio.Event()

    async def slow(_: Json) -> Json:
        await go.wait()
        return said([1], version="1")

    engine.script = slow
    (tmp_path / "weights").write_text("x")
    manifest = seal(tmp_path)
    (tmp_path / "weights").write_text("other")
    await fleet.submit("g")
    async with fleet.worker():
        await until(lambda: engine.running == 1)
        await publish(fleet, str(tmp_path), manifest=manifest)
        await until(lambda: fleet.facts("was changed after it was published"))
        go.set()
        assert await versions(fleet) == ["[1, 1]"]
    assert engine.calls == ["pause retract", "load 1", "continue"]


async def test_weights_on_a_volume_that_went_away_leave_the_worker_out_until_it_is_back(
    fleet: Fleet, engine: FakeEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: Any, **__: Any) -> None:
        raise OSError(errno.ESTALE, "Stale file handle")

    await fleet.configure(n=1)
    (tmp_path / "weights").write_text("x")
    await publish(fleet, str(tmp_path), manifest=seal(tmp_path))
    with monkeypatch.context() as away:
        away.setattr("worker.weights.check", gone)
        async with fleet.worker():
            await until(lambda: fleet.facts("Stale file handle"))
            assert engine.calls == []
            away.undo()
            await until(lambda: is_serving(fleet, 1))


@pytest.mark.parametrize("check", ["sizes", "hashes"])
async def test_sealed_weights_are_loaded(fleet: Fleet, engine: FakeEngine, tmp_path: Path, check: str) -> None:
    await fleet.configure(n=1)
    (tmp_path / "weights").write_text("x")
    await publish(fleet, str(tmp_path), manifest=seal(tmp_path))
    async with fleet.worker(weights_check=check):
        await until(lambda: is_serving(fleet, 1))
    assert engine.model_path == str(tmp_path)


async def test_an_engine_that_was_started_anew_loads_before_anything_is_claimed(
    fleet: Fleet, engine: FakeEngine
) -> None:
    await fleet.configure(n=1)
    await publish(fleet, "/w/1")
    async with fleet.worker():
        await until(lambda: is_serving(fleet, 1))
        await engine.stop()
        engine.weight_version, engine.model_path = "default", "/launched"
        await engine.start()
        await until(lambda: engine.calls.count("load 1") == 2)
        await fleet.submit("g")
        assert await versions(fleet) == ["[1, 1]"]


async def test_an_answer_by_older_weights_is_made_again_once_the_engine_has_the_right_ones(
    fleet: Fleet, engine: FakeEngine
) -> None:
    await fleet.configure(n=1)
    await publish(fleet, "/w/1")
    async with fleet.worker(engine_probe_seconds=1000):
        await until(lambda: is_serving(fleet, 1))
        engine.weight_version, engine.model_path = "default", "/launched"
        await fleet.submit("g")
        assert await versions(fleet) == ["[1, 1]"]
    assert len(engine.requests) == 2
    assert engine.calls.count("load 1") == 2


async def test_a_worker_whose_trainer_updates_the_engine_takes_versions_from_answers_alone(
    fleet: Fleet, engine: FakeEngine
) -> None:
    await fleet.configure(n=1)
    await publish(fleet, "", mode="external")
    engine.weight_version = "beside"
    engine.script = lambda _: said([1, 2], version="5")
    await fleet.submit("g")
    async with fleet.worker():
        assert await versions(fleet) == ["[5, 5]"]
        await until(lambda: fleet.facts('"weight_version":"5"'))
        engine.script = lambda _: said([1, 2], version="what")
        await fleet.submit("h")
        assert await versions(fleet) == ["[-1, -1]"]
    assert engine.calls == []


async def test_a_worker_that_is_told_so_leaves_the_engine_alone(fleet: Fleet, engine: FakeEngine) -> None:
    await fleet.configure(n=1)
    await publish(fleet)
    await fleet.submit("g")
    async with fleet.worker(weights_mode="external"):
        assert await versions(fleet) == ["[7, 7]"]
    assert engine.calls == []


async def test_a_paused_engine_that_a_dead_worker_left_goes_on(fleet: Fleet, engine: FakeEngine) -> None:
    await fleet.configure(n=1)
    await publish(fleet)
    engine.was_left_paused = True
    await fleet.submit("g")
    async with fleet.worker():
        assert await versions(fleet) == ["[1, 1]"]
    assert engine.calls == ["continue", "pause retract", "load 1", "continue"]


async def test_a_worker_that_stops_in_the_middle_of_a_load_leaves_no_engine_paused(
    fleet: Fleet, engine: FakeEngine
) -> None:
    await fleet.configure(n=1)
    await publish(fleet)
    engine.load = never
    async with fleet.worker() as worked:
        await until(lambda: "load 1" in engine.calls)
        worked.stop.ask()
        assert await worked.ended() == 0
    assert engine.calls[-1] == "continue"


async def test_at_most_so_many_workers_load_at_a_time(fleet: Fleet, engine: FakeEngine) -> None:
    await fleet.configure(n=1)
    await publish(fleet, "/w/1")
    async with FakeEngine() as second, fleet.worker(), fleet.worker(pod="second", engine_url=second.url):
        await until(lambda: engine.weight_version == second.weight_version == "1")
        await until(lambda: fleet.stat("updates_loaded"))
        engine.load = second.load = never
        await publish(fleet, "/w/2", at_once=1)
        await until(lambda: "load 2" in engine.calls + second.calls)
        waits = second if "load 2" in engine.calls else engine
        waits.script = lambda _: said([1], version="1")
        await fleet.submit("g")
        assert await versions(fleet) == ["[1, 1]"]  # by the one that still serves
        assert "load 2" not in waits.calls
