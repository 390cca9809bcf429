"""The browser and its pages, for tests that name this module in `pytest_plugins`. All live in the session's loop."""

from collections.abc import AsyncGenerator
from importlib.util import find_spec
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
import pytest_asyncio

from tests.api.page_browser import ARGUMENTS, CHROMIUM, WAIT_MS, Opens, Scheme, Tab

if TYPE_CHECKING:
    from playwright.async_api import Browser


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def chromium(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator["Browser", None]:
    if find_spec("playwright") is None:
        pytest.skip("playwright is not installed: it drives the browser that the page is tested in")
    if not CHROMIUM.exists():
        pytest.skip(f"{CHROMIUM} is not installed: apt-get install chromium")
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=str(CHROMIUM), args=list(ARGUMENTS))
        yield browser
        await browser.close()


@pytest_asyncio.fixture(loop_scope="session")
async def open_tab(chromium: "Browser") -> AsyncGenerator[Opens, None]:
    """Opens an address in a browser profile of its own; afterwards no page may have spoken to another host, or failed.

    `may_fail`: the test takes the service away, so the console tells of requests that failed. `has_clock`: the page's
    time can be forwarded.
    """
    opened: list[tuple[Tab, bool]] = []

    async def opens(
        url: str, *, width: int = 1280, scheme: Scheme = "light", may_fail: bool = False, has_clock: bool = False
    ) -> Tab:
        context = await chromium.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
        context.set_default_timeout(WAIT_MS)
        tab = Tab(await context.new_page(), urlsplit(url).netloc)
        tab.watch()
        opened.append((tab, may_fail))
        if has_clock:
            await tab.page.clock.install()
        await tab.page.goto(url)
        return tab

    yield opens
    for tab, _ in opened:
        await tab.page.context.close()
    assert [tab.strays for tab, _ in opened] == [[] for _ in opened]
    failures = [
        error for tab, may_fail in opened for error in tab.errors if not (may_fail and "load resource" in error)
    ]
    assert failures == []
