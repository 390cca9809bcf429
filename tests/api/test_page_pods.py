"""The page's table of pods: the reason, what to do, and how old that is."""

from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio

from tests.api.page_browser import Opens, Tab, listening
from tests.api.page_data import fleet, run_status
from tests.api.page_service import FakeService

pytest_plugins = ("tests.api.page_fixtures",)
pytestmark = pytest.mark.asyncio(loop_scope="session")

EVIL = "<img src=x onerror=window.evil=1>"


@pytest_asyncio.fixture(loop_scope="session")
async def service() -> AsyncGenerator[FakeService, None]:
    service = FakeService()
    async with listening(service.app) as service.url:
        yield service
        service.is_closing = True


async def shown(opens: Opens, service: FakeService) -> Tab:
    """The page, once it shows a run."""
    tab = await opens(service.url)
    await tab.page.wait_for_selector("#run:not([hidden])")
    return tab


async def test_a_pod_says_why_it_waits_and_what_to_do(service: FakeService, open_tab: Opens) -> None:
    service.says(run_status(fleets=[fleet()]))
    tab = await shown(open_tab, service)
    rows = await tab.evaluate("Array.from(document.querySelectorAll('#pods tbody tr')).map((it) => it.innerText)")
    assert "needs gpu" in rows[0]
    assert "To do: add GPU nodes" in rows[0]
    assert "reported by operator-0" in await tab.text("#fleets")


async def test_an_operator_that_has_stopped_reporting_is_the_news(service: FakeService, open_tab: Opens) -> None:
    service.says(run_status(fleets=[fleet(is_old=True, age_seconds=300.0)]))
    tab = await shown(open_tab, service)
    assert "has stopped reporting" in await tab.text("#fleets")


async def test_without_an_operator_the_page_says_so(service: FakeService, open_tab: Opens) -> None:
    service.says(run_status())
    tab = await shown(open_tab, service)
    assert "No operator reports" in await tab.text("#pods-none")
    assert await tab.text("#pods-count") == ""


async def test_what_a_cluster_says_is_text(service: FakeService, open_tab: Opens) -> None:
    evil = fleet().pods[0].model_copy(update={"sentence": EVIL, "name": EVIL, "advice": EVIL})
    service.says(run_status(fleets=[fleet(sentence=EVIL, pods=[evil.model_dump()])]))
    tab = await shown(open_tab, service)
    assert EVIL in await tab.text("#pods")
    assert await tab.evaluate("window.evil") is None
