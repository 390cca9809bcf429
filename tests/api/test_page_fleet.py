"""The page over the real service and a real Valkey: what the fleet, the broker and an operator do."""

from collections.abc import AsyncGenerator, Iterator

import pytest
import pytest_asyncio

from api.app import create_app
from api.settings import ApiSettings
from deploy.embedded import EmbeddedServer
from rolloutfleet.broker import Broker
from rolloutfleet.redis import connect
from rolloutfleet.status import read_status
from tests.api.page_browser import Opens, Tab, listening
from tests.fakes.broker import group
from tests.fakes.worker import InstantWorker, make_run, until

pytest_plugins = ("tests.api.page_fixtures",)
pytestmark = pytest.mark.asyncio(loop_scope="session")

TOKEN = "open-sesame"
RUN = "math"


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedServer]:
    with EmbeddedServer() as server:
        yield server


@pytest_asyncio.fixture(loop_scope="session")
async def broker(server: EmbeddedServer) -> AsyncGenerator[Broker, None]:
    """A run of an empty server."""
    async with connect(server.url) as client:
        await client.flushall()
        yield await make_run(client, RUN)


@pytest_asyncio.fixture(loop_scope="session")
async def address(server: EmbeddedServer, broker: Broker) -> AsyncGenerator[str, None]:
    """Of the service, which has seen the run."""
    app = create_app(ApiSettings.model_validate({"redis_url": server.url, "token": TOKEN}))
    async with listening(app) as url:
        yield url
        app.state.service.publisher.close()


async def opened(opens: Opens, address: str, *, may_fail: bool = False) -> Tab:
    tab = await opens(f"{address}?run={RUN}", may_fail=may_fail)
    await tab.page.wait_for_selector("#run:not([hidden])")
    return tab


async def confirm(tab: Tab, button: str) -> None:
    await tab.page.get_by_role("dialog").get_by_role("button", name=button, exact=True).click()


async def give_token(tab: Tab, token: str) -> None:
    await tab.page.fill("#dialog input[type=password]", token)
    await confirm(tab, "Use this token")


async def test_what_the_fleet_does_is_seen_as_it_happens(broker: Broker, address: str, open_tab: Opens) -> None:
    tab = await opened(open_tab, address)
    await tab.shows("h1", "no prompt group waits")
    await broker.submit([group(f"g{index}") for index in range(3)])
    await tab.shows("#flow li:nth-child(1)", "In line3")
    await InstantWorker(broker).step(8)

    await tab.shows("#flow li:nth-child(3)", "3 of 100")
    assert await tab.text("#link-word") == "live"


async def test_redis_goes_away_and_comes_back_and_the_last_data_stays_meanwhile(
    server: EmbeddedServer, broker: Broker, address: str, open_tab: Opens
) -> None:
    await broker.submit([group(f"g{index}") for index in range(3)])
    tab = await opened(open_tab, address, may_fail=True)
    await tab.shows("#flow li:nth-child(1)", "In line3")
    server.stop()
    await tab.shows("#banner", "Redis is away")
    assert (await tab.text("#flow li:nth-child(1)")).startswith("In line 3")
    server.start()

    await tab.shows("#link-word", "live")
    assert await tab.page.locator("#banner").is_hidden()


async def test_a_frozen_redis_is_away_too(
    server: EmbeddedServer, broker: Broker, address: str, open_tab: Opens
) -> None:
    tab = await opened(open_tab, address, may_fail=True)
    await tab.shows("#link-word", "live")
    server.freeze()
    try:
        await tab.shows("#banner", "Redis is away")
    finally:
        server.thaw()

    await tab.shows("#link-word", "live")


async def test_a_run_is_paused_with_the_keyboard_alone(broker: Broker, address: str, open_tab: Opens) -> None:
    tab = await opened(open_tab, address)
    await tab.page.focus("#act-pause")
    await tab.page.keyboard.press("Enter")
    await tab.shows("#dialog", "Pause math?")
    await tab.page.keyboard.press("Enter")
    await tab.shows("#dialog", "Who may do this?")
    await tab.page.keyboard.type(TOKEN)
    await tab.page.keyboard.press("Enter")

    await tab.shows("#result", "paused: nothing is claimed any more")
    await tab.shows("#records", "pause math")
    await tab.shows("h1", "the run is paused")
    assert (await read_status(broker)).config.paused
    await until_focused(tab, "act-resume")


async def until_focused(tab: Tab, name: str) -> None:
    await tab.page.wait_for_function("(name) => document.activeElement.id === name", arg=name)


async def test_escape_is_no(broker: Broker, address: str, open_tab: Opens) -> None:
    tab = await opened(open_tab, address)
    await tab.page.click("#act-pause")
    await tab.page.keyboard.press("Escape")
    await tab.page.wait_for_selector("#dialog", state="hidden")

    assert not (await read_status(broker)).config.paused
    await until_focused(tab, "act-pause")


async def test_a_wrong_token_is_refused_and_asked_for_again(broker: Broker, address: str, open_tab: Opens) -> None:
    tab = await opened(open_tab, address, may_fail=True)
    await tab.page.click("#act-pause")
    await confirm(tab, "Pause")
    await give_token(tab, "wrong-token")
    await tab.shows("#result", "Refused (401)")
    assert not (await read_status(broker)).config.paused
    await tab.page.click("#act-pause")
    await confirm(tab, "Pause")
    await give_token(tab, TOKEN)

    await tab.shows("#result", "paused")


async def test_a_worker_drains_and_is_called_back_with_one_token(broker: Broker, address: str, open_tab: Opens) -> None:
    await InstantWorker(broker).beat()
    tab = await opened(open_tab, address)
    await tab.page.click("#workers [aria-label='Drain pod/1000']")
    await confirm(tab, "Drain")
    await give_token(tab, TOKEN)
    await tab.shows("#workers .pill", "draining")
    await tab.page.click("#workers [aria-label='Undrain pod/1000']")
    await confirm(tab, "Undrain")

    await tab.shows("#workers .pill", "ready")
    assert await tab.text("#result") == "1 of 1 were draining: they claim again"


async def test_a_dead_letter_is_requeued(broker: Broker, address: str, open_tab: Opens) -> None:
    await broker.submit([group("bad")])
    await InstantWorker(broker, rejects={"bad": "no such prompt"}).step()
    tab = await opened(open_tab, address)
    await tab.shows("#letters", "no such prompt")
    await tab.page.click("#letters [aria-label='Requeue bad']")
    await confirm(tab, "Requeue")
    await give_token(tab, TOKEN)

    await tab.shows("#dead-none", "No group was given up.")

    async def is_in_line() -> bool:
        return (await read_status(broker)).queued == 1

    await until(is_in_line)


async def test_the_window_is_changed_after_a_look_at_what_changes(
    broker: Broker, address: str, open_tab: Opens
) -> None:
    tab = await opened(open_tab, address)
    await tab.page.click("#act-settings")
    await tab.page.fill("#dialog [name=sample_concurrency]", "64")
    await tab.page.select_option("#dialog [name=refill]", "sample")
    await confirm(tab, "Change")
    await tab.shows("#dialog", "sample_concurrency: 200 becomes 64")
    await confirm(tab, "Change it")
    await give_token(tab, TOKEN)

    await tab.shows("#formula", "64 samples (set in the config)")
    assert (await read_status(broker)).config.refill == "sample"


async def test_a_group_is_found_and_its_way_is_told(broker: Broker, address: str, open_tab: Opens) -> None:
    await broker.submit([group("g1")])
    tab = await opened(open_tab, address)
    await tab.page.fill("#find-id", "g1")
    await tab.page.keyboard.press("Enter")

    await tab.shows("#dialog .events", "submitted")
