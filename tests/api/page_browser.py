"""Pages in a headless Chromium that tell when they did what no page may do, and applications for them to talk to."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from playwright.async_api import ConsoleMessage, Error, Page, Request

CHROMIUM = Path("/usr/bin/chromium")
ARGUMENTS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
WAIT_MS = 15_000

type Scheme = Literal["light", "dark"]
type Opens = Callable[..., Awaitable["Tab"]]


@dataclass  # without slots: playwright keeps its own attribute on whose method listens
class Tab:
    """One page, and what it did beside being looked at: errors on its console, requests to other hosts."""

    page: "Page"
    host: str
    errors: list[str] = field(default_factory=list[str])
    strays: list[str] = field(default_factory=list[str])

    def watch(self) -> None:
        self.page.on("console", self._console)
        self.page.on("pageerror", self._page_error)
        self.page.on("request", self._request)

    def _console(self, message: "ConsoleMessage") -> None:
        if message.type in ("error", "warning"):
            self.errors.append(message.text)

    def _page_error(self, error: "Error") -> None:
        self.errors.append(str(error))

    def _request(self, request: "Request") -> None:
        if urlsplit(request.url).netloc != self.host:
            self.strays.append(request.url)

    async def text(self, selector: str) -> str:
        """What a person reads there, blanks folded."""
        return " ".join((await self.page.inner_text(selector)).split())

    async def shows(self, selector: str, text: str) -> None:
        """Waits until the element contains the text."""
        await self.page.locator(selector, has_text=text).first.wait_for(timeout=WAIT_MS)

    async def evaluate(self, script: str) -> Any:
        return await self.page.evaluate(script)

    async def focused(self) -> str:
        """Id, or else the text, of what has the focus."""
        return await self.evaluate("document.activeElement.id || document.activeElement.textContent.trim()")


@asynccontextmanager
async def listening(app: Any, port: int = 0) -> AsyncGenerator[str, None]:
    """The application on a loopback port of this process: its address."""
    import uvicorn

    class Server(uvicorn.Server):
        @contextmanager
        def capture_signals(self) -> Generator[None, None, None]:
            yield  # signals belong to pytest

    config = uvicorn.Config(app, "127.0.0.1", port, log_config=None, access_log=False, timeout_graceful_shutdown=1)
    server = Server(config)
    task = asyncio.create_task(server.serve())
    try:
        async with asyncio.timeout(60):
            while not server.started:
                if task.done():
                    await task
                await asyncio.sleep(0.01)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/"
    finally:
        server.should_exit = True
        await task
