"""A hub of models: what huggingface_hub asks before it downloads a file, and the file."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web
from aiohttp.test_utils import TestServer

COMMIT = "0" * 40


@asynccontextmanager
async def hub(folder: Path) -> AsyncGenerator[str]:
    """The address of a hub where each model is the one in `folder`."""

    async def resolve(request: web.Request) -> web.StreamResponse:
        path = folder / request.match_info["file"]
        if not path.is_file():
            return web.Response(status=404, headers={"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT})
        # The cache keeps one file for one tag.
        return web.Response(body=path.read_bytes(), headers={"ETag": f'"{path.name}"', "X-Repo-Commit": COMMIT})

    app = web.Application()
    app.router.add_get("/{owner}/{name}/resolve/{revision}/{file:.+}", resolve)
    async with TestServer(app) as server:
        yield f"http://{server.host}:{server.port}"
