"""The reader behind the page: nonsense in one run's keys, runs that come, and what a fault of its own leads to."""

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from api.publisher import Publisher
from api.sampler import RunBook, Sampler
from api.settings import ApiSettings
from rolloutfleet.broker import Broker
from tests.api.served import Served
from tests.fakes.broker import WORKER, Fleet, fake_client
from tests.fakes.worker import until

SETTINGS = ApiSettings.model_validate({"redis_url": "redis://127.0.0.1:1"})

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=5)
values = scalars | st.lists(scalars, max_size=2) | st.dictionaries(st.text(max_size=3), scalars, max_size=2)
names = st.sampled_from(["state", "reason", "busy", "held", "slots", "pod", "host", "engine", "weight_version"])
facts = st.dictionaries(names, values) | values
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
fields = st.tuples(
    st.sampled_from(["config", "state", "stats", "policy", "capacity"]),
    st.sampled_from(["n", "sample_concurrency", "gate", "gate_at", "epoch", "shift", "completed", "version", WORKER]),
    texts,
)


@given(facts, st.lists(fields, max_size=2))
@settings(max_examples=60, deadline=None)
async def test_nonsense_in_the_keys_of_a_run_never_takes_another_from_the_page(
    told: Any, written: list[tuple[str, str, str]]
):
    async with fake_client() as client:
        await Fleet.make(client, "sound")
        broken = await Fleet.make(client, "broken")
        await broken.beat(slots=4)
        await broken.do("HSET", broken.key("capacity"), f"{WORKER}:facts", json.dumps(told))
        for key, name, value in written:
            await broken.do("HSET", broken.key(key), name, value)
        sampler = Sampler(client, stuck_seconds=600)
        sampler.books |= {run: RunBook(Broker(client, run)) for run in ("sound", "broken")}
        for book in list(sampler.books.values()):
            await sampler.look_at(book)
        snapshot = Publisher(sampler, SETTINGS).make()
    assert "sound" in [run.name for run in snapshot.reply.runs]
    assert snapshot.encoded()


async def test_a_key_of_another_type_is_a_problem_of_that_run(served: Served, fleet: Fleet, run: str):
    await fleet.do("DEL", fleet.key("config"))
    await fleet.do("SET", fleet.key("config"), "x")
    await served.service.sampler.look()
    assert "can't be read" in (served.service.sampler.books[run].problem or "")


async def test_a_run_that_is_made_later_is_found_by_its_name(served: Served, fleet: Fleet, run: str):
    later = await Fleet.make(fleet.client, f"{run}-later")
    assert (await served.run(f"{run}-later"))["name"] == f"{run}-later"
    await later.delete()


async def test_a_run_that_is_made_later_comes_up_by_itself(served: Served, fleet: Fleet, run: str):
    later = await Fleet.make(fleet.client, f"{run}-later")

    async def is_there() -> bool:
        return f"{run}-later" in [one["name"] for one in (await served.get("/status"))["runs"]]

    await until(is_there, "the run is in the snapshot")
    await later.delete()


async def test_a_service_whose_reader_failed_is_not_healthy(served: Served, run: str, caplog: pytest.LogCaptureFixture):
    task = served.service.sampler.task
    assert task is not None
    assert (await served.http.get("/healthz")).status_code == 200
    served.service.sampler.books["x"] = None  # pyright: ignore[reportArgumentType]  # any fault will do
    await asyncio.wait([task], timeout=10)
    assert (await served.http.get("/healthz")).status_code == 503
    assert "has to be started again" in caplog.text
    del served.service.sampler.books["x"]
