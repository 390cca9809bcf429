"""What an operator may do, and that nobody else may."""

import logging
from typing import Any

import pytest

from tests.api.served import BEARER, Served, serving
from tests.api.test_groups import die
from tests.fakes.broker import WORKER, Fleet

BODIES: dict[str, dict[str, Any] | None] = {
    "pause": None,
    "resume": None,
    "window": {"sample_concurrency": 8},
    "drain": {"workers": [WORKER]},
    "undrain": {"workers": [WORKER]},
    "requeue": {"all": True},
    "drop": {"all": True},
}


@pytest.mark.parametrize("action", BODIES)
async def test_without_a_configured_token_every_action_is_off_and_says_how_to_turn_it_on(
    redis_url: str, fleet: Fleet, run: str, action: str
):
    async with serving(redis_url) as served:
        answer = await served.http.post(f"/actions/{run}/{action}", json=BODIES[action], headers=BEARER)
    assert answer.status_code == 403
    assert "set ROLLOUTFLEET_API_TOKEN" in answer.json()["detail"]


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic abc"}])
@pytest.mark.parametrize("action", BODIES)
async def test_without_the_right_token_nothing_is_done(
    served: Served, fleet: Fleet, run: str, action: str, headers: dict[str, str]
):
    before = await fleet.hash(fleet.key("config"))
    answer = await served.http.post(f"/actions/{run}/{action}", json=BODIES[action], headers=headers)
    assert answer.status_code == 401
    assert await fleet.hash(fleet.key("config")) == before


async def test_a_token_with_other_letters_is_refused_and_breaks_nothing(served: Served, run: str):
    headers = {b"Authorization": "Bearer schlüssel".encode("latin-1")}
    answer = await served.http.post(f"/actions/{run}/pause", headers=headers)
    assert answer.status_code == 401


async def test_a_status_says_whether_actions_are_possible(served: Served, redis_url: str):
    async with serving(redis_url) as read_only:
        assert (await read_only.get("/status"))["has_actions"] is False
    assert (await served.get("/status"))["has_actions"] is True


async def test_pause_and_resume(served: Served, fleet: Fleet, run: str):
    await served.post(f"/actions/{run}/pause")
    assert (await fleet.broker.config()).paused
    await served.post(f"/actions/{run}/resume")
    assert not (await fleet.broker.config()).paused


async def test_window_settings_change_what_is_given_and_nothing_else(served: Served, fleet: Fleet, run: str):
    await served.post(f"/actions/{run}/window", {"sample_concurrency": "auto", "refill": "sample"})
    config = await fleet.broker.config()
    assert (config.sample_concurrency, config.refill, config.n) == ("auto", "sample", 2)


@pytest.mark.parametrize(
    "change", [{}, {"n": 0}, {"sample_concurrency": 0}, {"refill": "never"}, {"paused": True}, {"sample_concurency": 8}]
)
async def test_a_wrong_window_setting_changes_nothing(served: Served, fleet: Fleet, run: str, change: dict[str, Any]):
    before = await fleet.hash(fleet.key("config"))
    answer = await served.http.post(f"/actions/{run}/window", json=change, headers=BEARER)
    assert answer.status_code == 422
    assert await fleet.hash(fleet.key("config")) == before


async def test_a_drained_worker_claims_no_more_until_it_is_undrained(served: Served, fleet: Fleet, run: str):
    await fleet.submit("a")
    assert (await served.post(f"/actions/{run}/drain", {"workers": [WORKER]}))["changed"] == 1
    assert (await fleet.claim()).reason == "draining"
    assert (await served.post(f"/actions/{run}/undrain", {"workers": [WORKER]}))["changed"] == 1
    assert len((await fleet.claim()).grants) == 1
    await fleet.finish_all()


async def test_a_letter_that_is_requeued_lives_again(served: Served, fleet: Fleet, run: str):
    await die(fleet, "a", "b")
    letters = await fleet.letters()
    done = await served.post(f"/actions/{run}/requeue", {"entries": [letters[0]["entry"].decode()]})
    assert (done["changed"], done["results"]) == (1, {"ok": 1})
    assert await fleet.waits("again") == [b"a"]
    await fleet.finish_all()


async def test_all_letters_are_requeued(served: Served, fleet: Fleet, run: str):
    await die(fleet, *(f"g{number}" for number in range(3)))
    assert (await served.post(f"/actions/{run}/requeue", {"all": True}))["changed"] == 3
    assert await fleet.letters() == []
    await fleet.finish_all()


async def test_a_letter_that_is_dropped_stays_over(served: Served, fleet: Fleet, run: str):
    await die(fleet, "a", "b")
    entry = (await fleet.letters())[0]["entry"].decode()
    assert (await served.post(f"/actions/{run}/drop", {"entries": [entry]}))["changed"] == 1
    assert [letter["id"] for letter in await fleet.letters()] == [b"b"]
    assert await fleet.submit("a") == ["done"]


async def test_all_letters_are_dropped(served: Served, fleet: Fleet, run: str):
    await die(fleet, "a", "b")
    assert (await served.post(f"/actions/{run}/drop", {"all": True}))["changed"] == 2
    assert await fleet.letters() == []


async def test_to_drop_all_of_none_drops_none(served: Served, run: str):
    assert (await served.post(f"/actions/{run}/drop", {"all": True}))["changed"] == 0


@pytest.mark.parametrize("body", [{}, {"all": True, "entries": ["1-0"]}, {"entries": ["yesterday"]}])
async def test_letters_must_be_named_or_all(served: Served, run: str, body: dict[str, Any]):
    answer = await served.http.post(f"/actions/{run}/drop", json=body, headers=BEARER)
    assert answer.status_code == 422


async def test_an_action_on_a_wrong_run_makes_none(served: Served, fleet: Fleet, run: str):
    answer = await served.http.post(f"/actions/{run}-misspelt/pause", headers=BEARER)
    assert answer.status_code == 404
    assert await fleet.do("EXISTS", f"rf1:{{{run}-misspelt}}:config") == 0


async def audit(served: Served) -> list[dict[str, Any]]:
    answer = await served.http.get("/audit", headers=BEARER)
    assert answer.status_code == 200
    return answer.json()["records"]


async def test_each_action_leaves_a_record_newest_first(served: Served, run: str):
    await served.post(f"/actions/{run}/pause")
    await served.post(f"/actions/{run}/window", {"n": 4})
    first, second = await audit(served)
    assert (first["action"], first["arguments"], second["action"]) == ("window", {"n": 4}, "pause")


async def test_an_action_is_logged(served: Served, run: str, caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.INFO, "api.audit"):
        await served.post(f"/actions/{run}/pause")
    assert f"action=pause run={run}" in caplog.text


async def test_who_has_no_token_leaves_no_record(served: Served, run: str):
    await served.http.post(f"/actions/{run}/pause")
    assert await audit(served) == []


async def test_the_records_need_the_token(served: Served):
    assert (await served.http.get("/audit")).status_code == 401


async def test_no_more_than_a_hundred_records_are_kept(served: Served, run: str):
    for _ in range(103):
        await served.post(f"/actions/{run}/resume")
    assert len(await audit(served)) == 100
