"""What the page shows of what it is told, in a real browser. The service is a fake: its snapshots are the test's."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from api.group_models import DeadLetterRow
from api.models import Rate, Rates, RedisView, Slots, Stuck
from tests.api.page_browser import Opens, Scheme, Tab, listening
from tests.api.page_data import gate, now_ms, run_status, worker
from tests.api.page_service import FakeService

pytest_plugins = ("tests.api.page_fixtures",)
pytestmark = pytest.mark.asyncio(loop_scope="session")

EVIL = '<img src=x onerror="window.evil=1"><script>window.evil=1</script>'


@pytest_asyncio.fixture(loop_scope="session")
async def service() -> AsyncGenerator[FakeService, None]:
    service = FakeService()
    async with listening(service.app) as service.url:
        yield service
        service.is_closing = True


async def shown(opens: Opens, service: FakeService, query: str = "", **options: Any) -> Tab:
    """The page, once it shows a run."""
    tab = await opens(service.url + query, **options)
    await tab.page.wait_for_selector("#run:not([hidden])")
    return tab


def letter(**changes: Any) -> DeadLetterRow:
    known = {
        "entry": "1764433380000-0",
        "id": "gsm8k-17",
        "reason": "lease expired",
        "attempts": 5,
        "at_ms": now_ms(),
        "text": '{"prompt": "6 * 7?"}',
    }
    return DeadLetterRow.model_validate({**known, **changes})


# What is seen first


async def test_the_first_heading_says_what_holds_the_fleet_back(service: FakeService, open_tab: Opens) -> None:
    tab = await shown(open_tab, service)

    first = await tab.evaluate("document.querySelector('main :is(h1, h2, h3)').textContent")
    assert first == "the trainer is the bottleneck: completed groups wait to be taken."
    assert "fewer GPUs for rollouts" in await tab.text("#gate-advice")


async def test_a_stuck_run_names_the_group_and_leads_to_it(service: FakeService, open_tab: Opens) -> None:
    sentence = "group gsm8k-17 has been held by pod-3/1700000000000 for 42 min"
    stuck = Stuck(cause="slow_group", sentence=sentence, seconds=2520, group="gsm8k-17")
    service.says(run_status(gate=gate("stuck"), stuck=stuck))
    tab = await shown(open_tab, service)

    assert await tab.evaluate("document.querySelector('h1').textContent") == f"{sentence}."
    assert "Where is group gsm8k-17?" in await tab.text("#attention a >> nth=0")


async def test_without_a_run_in_the_address_the_one_that_needs_a_person_is_shown(
    service: FakeService, open_tab: Opens
) -> None:
    service.says(run_status("calm", gate=gate("open")), run_status("sick", gate=gate("no_capacity")))
    tab = await shown(open_tab, service)

    assert await tab.text("#runs [aria-current]") == "sick: no workers"


async def test_the_page_follows_the_stream_and_says_the_change_aloud(service: FakeService, open_tab: Opens) -> None:
    tab = await shown(open_tab, service)
    service.says(run_status(gate=gate("paused"), queues=run_status().queues))

    await tab.shows("h1", "the run is paused")
    assert await tab.text("#live") == "math: Paused. the run is paused"
    assert await tab.evaluate("document.getElementById('live').getAttribute('aria-live')") == "polite"


# What is not known, old or gone


async def test_what_is_unknown_is_never_shown_as_zero(service: FakeService, open_tab: Opens) -> None:
    nothing = Rate(groups=None, samples=None, tokens=None)
    silent = worker(0, busy=None, held=None, weight_version=None)
    service.says(
        run_status(
            rates=Rates(minute=nothing, five_minutes=nothing, fifteen_minutes=nothing),
            slots=Slots(busy=None, total=32, utilisation=None, utilisation_5_minutes=None, with_refill_sample=None),
            workers=[silent],
            eta_seconds=None,
            desired_workers=None,
        )
    )
    tab = await shown(open_tab, service)

    assert await tab.text("#rates tbody") == " ".join(f"{span} min unknown unknown unknown" for span in (1, 5, 15))
    figures = await tab.text("#figures")
    assert "Slots busy unknown utilisation unknown" in figures
    assert "Done in about unknown" in figures
    cells = await tab.evaluate(
        "Array.from(document.querySelectorAll('#workers td.num')).map((it) => it.innerText.trim())"
    )
    assert cells == ["unknown of 32", "unknown", "unknown", "3.2 s ago"]


async def test_the_age_of_the_data_grows_while_the_stream_stands_still(service: FakeService, open_tab: Opens) -> None:
    tab = await shown(open_tab, service, has_clock=True)
    service.is_silent = True
    await tab.page.clock.fast_forward(8000)

    await tab.shows("#banner", "No new data comes")
    assert await tab.text("#link-word") == "stalled"
    assert (await tab.text("#gate-word")).startswith("Last seen:")


async def test_a_stream_that_stays_silent_is_opened_again(service: FakeService, open_tab: Opens) -> None:
    tab = await shown(open_tab, service, has_clock=True)
    service.is_silent = True
    await tab.page.clock.fast_forward(12_000)
    await tab.shows("#link-word", "connection lost")
    service.is_silent = False
    await tab.page.clock.fast_forward(2000)

    await tab.shows("#link-word", "live")


async def test_a_service_that_went_away_is_asked_again_until_it_is_back(service: FakeService, open_tab: Opens) -> None:
    tab = await shown(open_tab, service, may_fail=True)
    service.is_down = True
    await tab.shows("#banner", "No connection to this service")
    assert await tab.text("h1") == "The trainer is the bottleneck: completed groups wait to be taken."
    service.is_down = False

    await tab.shows("#link-word", "live")


async def test_while_redis_is_away_the_last_data_stays_with_its_age(service: FakeService, open_tab: Opens) -> None:
    tab = await shown(open_tab, service)
    away = RedisView(state="away", reason="connection refused", age_seconds=42)
    service.says(run_status(age_seconds=42), redis=away)

    await tab.shows("#banner", "Redis is away: connection refused.")
    await tab.shows("#banner", "What you see is 42 s old.")
    assert "1,203" in await tab.text("#flow")


async def test_before_redis_ever_answered_nothing_is_claimed_to_be_known(service: FakeService, open_tab: Opens) -> None:
    away = RedisView(state="away", reason="connection refused", age_seconds=None)
    service.reply = lambda: page_reply_without_runs(away)
    tab = await open_tab(service.url)

    await tab.shows("#empty", "Nothing is known of any run")
    assert await tab.text("#age") == "no data yet"


def page_reply_without_runs(redis: RedisView) -> Any:
    from tests.api.page_data import reply

    return reply().model_copy(update={"runs": [], "redis": redis})


async def test_a_run_that_is_not_there_is_said_and_the_others_are_offered(
    service: FakeService, open_tab: Opens
) -> None:
    tab = await open_tab(service.url + "?run=maths")

    await tab.shows("#empty", "There is no run “maths” here.")
    assert await tab.text("#runs") == "math: trainer is behind"


# Tables and filters


async def test_workers_that_need_a_look_come_first(service: FakeService, open_tab: Opens) -> None:
    tab = await shown(open_tab, service)

    names = await tab.evaluate("Array.from(document.querySelectorAll('#workers tbody tr')).map((it) => it.innerText)")
    assert [name.split("/")[0] for name in names[:4]] == ["pod-2", "pod-5", "pod-6", "pod-0"]


async def test_filters_come_from_the_address_and_go_there(service: FakeService, open_tab: Opens) -> None:
    tab = await shown(open_tab, service, "?run=math&state=draining&q=POD-2")
    assert await tab.page.locator("#workers tbody tr").count() == 1

    await tab.page.fill("#filter-text", "pod-3")
    await tab.page.select_option("#filter-state", "ready")
    await tab.shows("#filter-shown", "1 of 8 shown")
    assert tab.page.url.endswith("?run=math&state=ready&q=pod-3")


async def test_a_large_fleet_is_shown_a_hundred_workers_at_a_time(service: FakeService, open_tab: Opens) -> None:
    service.says(run_status(workers=[worker(number) for number in range(250)]))
    tab = await shown(open_tab, service)
    rows = tab.page.locator("#workers tbody tr")
    assert await rows.count() == 100
    await tab.page.click("text=Show 100 more of 250 workers")

    assert await rows.count() == 200
    assert await tab.text("#workers-count") == "250"


async def test_every_table_has_its_twin_as_data(service: FakeService, open_tab: Opens) -> None:
    tab = await shown(open_tab, service)

    links = await tab.evaluate("Array.from(document.querySelectorAll('a.json')).map((it) => it.getAttribute('href'))")
    assert set(links) >= {
        "status/math",
        "status/math/workers",
        "status/math/pods",
        "status/math/history",
        "status/math/dead",
        "status/math/groups?state=queued",
        "status/math/groups?state=waiting",
    }


async def test_what_a_run_says_is_text_and_never_markup(service: FakeService, open_tab: Opens) -> None:
    service.letters = [letter(id=EVIL, reason=EVIL, text=EVIL)]
    service.says(
        run_status(
            gate=gate("open", sentence=EVIL, advice=EVIL),
            problem=EVIL,
            weight_label=EVIL,
            workers=[worker(0, name=EVIL, host=EVIL, state=EVIL, reason=EVIL, engine="javascript:window.evil=1")],
        ),
        run_status("other", gate=gate("open")),
        redis=RedisView(state="ok", reason=EVIL, age_seconds=0.3),
    )
    tab = await shown(open_tab, service, f"?run=math&q={EVIL}")
    await tab.shows("#letters", "<script>")

    assert EVIL in await tab.text("h1")
    assert await tab.evaluate("window.evil") is None
    assert await tab.evaluate("document.querySelectorAll('img:not(.brand img), body script').length") == 0
    hrefs = await tab.evaluate("Array.from(document.links, (it) => it.protocol)")
    assert set(hrefs) == {"http:"}


async def test_without_a_token_configured_nothing_can_be_done(service: FakeService, open_tab: Opens) -> None:
    service.letters = [letter()]
    tab = await shown(open_tab, service)
    await tab.shows("#letters", "gsm8k-17")

    buttons = await tab.evaluate(
        "Array.from(document.querySelectorAll('main button'))"
        ".filter((it) => it.checkVisibility()).map((it) => it.innerText)"
    )
    assert buttons == ["Where is it?"]


# Keyboard


async def test_the_skip_link_is_first_and_leads_to_the_run(service: FakeService, open_tab: Opens) -> None:
    tab = await shown(open_tab, service)
    await tab.page.keyboard.press("Tab")
    assert await tab.focused() == "Skip to the state of the run"
    await tab.page.keyboard.press("Enter")

    assert await tab.focused() == "main"


async def test_all_that_can_be_used_is_reached_by_tab_and_shows_it(service: FakeService, open_tab: Opens) -> None:
    service.says(run_status(), has_actions=True)
    tab = await shown(open_tab, service)
    reachable = await tab.evaluate(
        "Array.from(document.querySelectorAll('a[href], button, input, select, #chart'))"
        ".filter((it) => it.checkVisibility()).length"
    )
    seen = 0
    await tab.page.keyboard.press("Tab")
    while await tab.evaluate("document.activeElement !== document.body") and seen <= reachable + 5:
        seen += 1
        assert await tab.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none", (
            await tab.focused()
        )
        await tab.page.keyboard.press("Tab")

    assert seen >= reachable


async def test_the_focus_survives_the_next_snapshot(service: FakeService, open_tab: Opens) -> None:
    service.says(run_status(), has_actions=True)
    tab = await shown(open_tab, service)
    await tab.page.focus("[aria-label='Drain pod-0/1700000000000']")
    late = worker(0, heartbeat_seconds=50, lease_seconds=10)  # its row moves to the top
    service.says(run_status(gate=gate("busy"), workers=[worker(5), late]), has_actions=True)
    await tab.shows("h1", "every worker's own places are full")

    assert await tab.evaluate("document.activeElement.ariaLabel") == "Drain pod-0/1700000000000"


async def test_the_chart_is_read_with_the_arrow_keys(service: FakeService, open_tab: Opens) -> None:
    tab = await shown(open_tab, service)
    await tab.shows("#legend", "Trainer is behind")
    await tab.page.focus("#chart")
    await tab.page.keyboard.press("Home")

    assert await tab.evaluate("document.querySelector('#chart .cursor').getAttribute('visibility')") == "visible"
    assert "of 192 slots busy" in await tab.text("#readout")


# Looks


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (360, "light")])
async def test_it_looks_right(
    service: FakeService, open_tab: Opens, tmp_path: Path, width: int, scheme: Scheme
) -> None:
    service.letters = [letter(), letter(entry="1764433380000-1", id="x" * 200, text="y" * 1024)]
    service.says(run_status("a-run-whose-name-is-" + "long" * 12), run_status(gate=gate("open")), has_actions=True)
    tab = await shown(open_tab, service, width=width, scheme=scheme)
    await tab.shows("#legend", "Trainer is behind")
    await tab.shows("#letters", "gsm8k-17")
    picture = tmp_path / f"{scheme}-{width}.png"
    await tab.page.screenshot(path=picture, full_page=True)

    assert await tab.evaluate("document.documentElement.scrollWidth") == width
    data = picture.read_bytes()
    assert int.from_bytes(data[16:20]) == width  # of the PNG's header
    assert int.from_bytes(data[20:24]) > 2000
    assert len(data) > 50_000
    red, green, blue = await tab.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
    assert (red + green + blue < 200) == (scheme == "dark")
