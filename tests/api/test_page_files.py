"""How the page is served: what it may load, how large it is, and that a browser asks for nothing twice."""

import httpx
import pytest
from fastapi import FastAPI

from api.page import page_files, page_router

MOST_BYTES = 60_000


@pytest.fixture
def client() -> httpx.AsyncClient:
    app = FastAPI()
    app.include_router(page_router())
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://page")


async def test_all_of_the_page_is_small(client: httpx.AsyncClient) -> None:
    sent = 0
    for path in ("/", *(f"/page/{name}" for name in page_files() if name != "index.html")):
        async with client.stream("GET", path, headers={"Accept-Encoding": "gzip"}) as answer:
            sent += sum([len(part) async for part in answer.aiter_raw()])

    assert 0 < sent < MOST_BYTES


async def test_a_browser_that_knows_no_compression_is_served_too(client: httpx.AsyncClient) -> None:
    answer = await client.get("/", headers={"Accept-Encoding": "identity"})

    assert answer.content == page_files()["index.html"].body


@pytest.mark.parametrize("name", page_files())
def test_no_file_names_another_host_or_makes_markup_out_of_text(name: str) -> None:
    text = page_files()[name].body.decode().replace("http://www.w3.org/2000/svg", "")

    for word in ("http://", "https://", "innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
        assert word not in text


async def test_the_browser_is_told_to_load_only_from_here(client: httpx.AsyncClient) -> None:
    answer = await client.get("/")

    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["content-security-policy"].startswith("default-src 'self';")
    assert "unsafe" not in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"


async def test_modules_are_served_as_scripts(client: httpx.AsyncClient) -> None:
    answer = await client.get("/page/main.js")

    assert answer.headers["content-type"] == "text/javascript; charset=utf-8"


async def test_a_file_that_did_not_change_is_not_sent_again(client: httpx.AsyncClient) -> None:
    first = await client.get("/page/page.css")
    again = await client.get("/page/page.css", headers={"If-None-Match": first.headers["etag"]})

    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize("name", ["__init__.py", "..%2fmodels.py", "nothing.js"])
async def test_nothing_but_the_page_is_served(client: httpx.AsyncClient, name: str) -> None:
    assert (await client.get(f"/page/{name}")).status_code == 404
