# SPDX-License-Identifier: Apache-2.0
import gzip
import importlib
import pathlib
import re
import types

import httpx
import pytest
from prometheus_client import CollectorRegistry

from gpupack_apiserver.app import application
from gpupack_apiserver.errors import PageInvalid
from gpupack_apiserver.page import Page

ROOT = pathlib.Path(__file__).parents[3]
SCRIPT = b"render(1);" * 1000


def parts():
    return types.SimpleNamespace(registry=CollectorRegistry())


@pytest.fixture
def built(tmp_path):
    """Return a folder like the output of apiserver/dashboard/build.ts."""
    (tmp_path / "assets").mkdir()
    (tmp_path / "index.html").write_bytes(b"<!doctype html>")
    (tmp_path / "assets/main-0123.js").write_bytes(SCRIPT)
    (tmp_path / "assets/main-0123.js.gz").write_bytes(gzip.compress(SCRIPT))
    (tmp_path / "assets/main-0123.js.br").write_bytes(b"brotli")
    (tmp_path / "assets/notes.txt").write_bytes(b"no part of a page")
    return str(tmp_path)


@pytest.fixture
async def ask(built):
    """Return a function that requests a path without a token."""
    transport = httpx.ASGITransport(application(parts(), dashboard=Page.read(built)))
    async with httpx.AsyncClient(transport=transport, base_url="https://api") as client:

        async def get(path, *, method="GET", **headers):
            return await client.request(method, path, headers=headers)

        yield get


async def test_browsers_cache_assets_and_not_the_page(ask):
    page, script = await ask("/"), await ask("/assets/main-0123.js")
    assert (page.status_code, page.headers["cache-control"]) == (200, "no-store")
    assert "immutable" in script.headers["cache-control"]
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert script.headers["content-type"] == "text/javascript; charset=utf-8"


async def test_precompressed_files_are_served(ask):
    script = await ask("/assets/main-0123.js", **{"Accept-Encoding": "gzip"})
    assert script.headers["content-encoding"] == "gzip"
    assert script.content == SCRIPT
    assert int(script.headers["content-length"]) < len(SCRIPT)


@pytest.mark.parametrize(
    ("accepted", "encoding"),
    [("br;q=0, gzip", "gzip"), ("identity", None), ("br;q=0, gzip;q=0", None), ("GZIP", "gzip")],
)
async def test_only_accepted_encodings_are_sent(ask, accepted, encoding):
    script = await ask("/assets/main-0123.js", **{"Accept-Encoding": accepted})
    assert script.headers.get("content-encoding") == encoding
    assert script.content == SCRIPT


async def test_the_best_encoding_is_sent(ask):
    script = await ask("/assets/main-0123.js", method="HEAD", **{"Accept-Encoding": "gzip, br"})
    assert script.headers["content-encoding"] == "br"


@pytest.mark.parametrize("path", ["/", "/assets/main-0123.js"])
async def test_the_content_security_policy_permits_only_the_pages_own_files(ask, path):
    headers = (await ask(path)).headers
    policy = dict(part.split(" ", 1) for part in headers["content-security-policy"].split("; "))
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"


@pytest.mark.parametrize(
    "path",
    [
        "/assets/index.html",
        "/assets/notes.txt",
        "/assets/main-0123.js.gz",
        "/assets/..%2findex.html",
        "/assets/",
        "/index.html",
    ],
)
async def test_other_files_are_answered_404(ask, path):
    assert (await ask(path)).status_code == 404


async def test_the_page_is_not_in_the_openapi_document(ask):
    paths = (await ask("/api/v1/gpu/openapi/openapi.json")).json()["paths"]
    assert paths
    assert all(path.startswith("/api/v1/gpu/") for path in paths)


async def test_without_a_page_the_calls_work():
    transport = httpx.ASGITransport(application(parts()))
    async with httpx.AsyncClient(transport=transport, base_url="https://api") as client:
        answer = await client.get("/")
    assert answer.status_code == 404
    assert "set GPUPACK_PAGE_FOLDER" in answer.json()["detail"]


def test_a_folder_without_a_page_prevents_the_start(tmp_path):
    with pytest.raises(PageInvalid, match=str(tmp_path)):
        Page.read(str(tmp_path))


def test_the_page_offers_the_choices_of_the_api_schemas(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "apiserver/dashboard"))
    choices = importlib.import_module("choices")
    assert (ROOT / "apiserver/dashboard/src/choices.ts").read_text() == choices.render()


@pytest.mark.parametrize("file", ["index.html", "api.ts"])
def test_addresses_of_assets_and_calls_are_relative(file):
    text = (ROOT / "apiserver/dashboard/src" / file).read_text()
    assert re.findall(r"""["'`]/(?:assets|api)/""", text) == []
