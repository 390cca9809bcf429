"""The page at `/`: one document, one style sheet, a few small modules, served as they lie here.

Invariants: the files are read once; nothing is loaded from another host, and the browser is told to refuse it; every
address in them is relative, so the page works behind a path of a proxy.
"""

import gzip
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, HTTPException, Request
from fastapi import Path as PathParameter
from fastapi.responses import Response

FOLDER = Path(__file__).parent
KINDS: Mapping[str, str] = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": (
        "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",  # asks each time, and is answered 304: a new version is seen at once
}


@dataclass(frozen=True, slots=True)
class PageFile:
    """One file as it is sent."""

    body: bytes
    packed: bytes  # the body in gzip: a third of it
    media_type: str
    etag: str


def page_files() -> dict[str, PageFile]:
    """File name -> file, of all that the page is made of."""
    found = sorted(path for path in FOLDER.iterdir() if path.suffix in KINDS)
    return {path.name: _read(path) for path in found}


def page_router() -> APIRouter:
    """Serves the page at `/` and what it is made of under `/page/`."""
    files = page_files()
    router = APIRouter(include_in_schema=False)

    @router.api_route("/", methods=["GET", "HEAD"])
    async def index(request: Request) -> Response:  # pyright: ignore[reportUnusedFunction]
        return _answer(request, files["index.html"])

    @router.api_route("/page/{name}", methods=["GET", "HEAD"])
    async def part(  # pyright: ignore[reportUnusedFunction]
        request: Request, name: Annotated[str, PathParameter(max_length=64)]
    ) -> Response:
        if name not in files:
            raise HTTPException(404, f"the page has no file {name!r}")
        return _answer(request, files[name])

    return router


def _read(path: Path) -> PageFile:
    body = path.read_bytes()
    etag = f'W/"{hashlib.sha256(body).hexdigest()[:32]}"'
    return PageFile(body, gzip.compress(body, mtime=0), KINDS[path.suffix], etag)


def _answer(request: Request, file: PageFile) -> Response:
    headers = {**HEADERS, "ETag": file.etag, "Vary": "Accept-Encoding"}
    if request.headers.get("If-None-Match") == file.etag:
        return Response(status_code=304, headers=headers)
    if "gzip" in request.headers.get("Accept-Encoding", ""):
        return Response(file.packed, media_type=file.media_type, headers={**headers, "Content-Encoding": "gzip"})
    return Response(file.body, media_type=file.media_type, headers=headers)
