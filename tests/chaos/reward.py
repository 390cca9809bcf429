"""A reward service over HTTP that can go away: its port refuses connections then."""

from typing import Any

from aiohttp import web

from tests.chaos.hooks import checksum


class RewardService:
    """Answers {"reward": checksum of the sample's ids}. `port` stays the same while it comes and goes."""

    def __init__(self) -> None:
        self.port = 0
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    async def start(self) -> None:
        app = web.Application(client_max_size=64 * 2**20)
        app.router.add_post("/", _reward)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None


async def _reward(request: web.Request) -> web.Response:
    asked: dict[str, Any] = await request.json()
    return web.json_response({"reward": checksum(token for row in asked["ids"] for token in row)})
