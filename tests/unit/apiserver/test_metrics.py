# SPDX-License-Identifier: Apache-2.0
"""Metrics of the API's calls."""

import dataclasses

import httpx
import pytest
from aiohttp import web
from api_server import ApiServer
from fake_api import connected
from litestar import get
from litestar.response import Stream
from prometheus_client import CollectorRegistry

from gpupack_apiserver import app as api_app
from gpupack_apiserver.app import application
from gpupack_apiserver.rights import Rights
from gpupack_apiserver.routes.parts import Parts

CALL = {"route": "/api/v1/gpu/health", "method": "GET", "status": "200"}


class Scraped(ApiServer):
    """An API server with a scraper, which may get /metrics, and a tenant, which may not."""

    def __init__(self):
        super().__init__()
        self.users = {f"{name}-token": (name, []) for name in ("scraper", "tenant")}

    async def review(self, request):
        spec = (await request.json())["spec"]
        wanted = {"verb": "get", "path": "/metrics"}
        allowed = spec["user"] == "scraper" and spec["nonResourceAttributes"] == wanted
        return web.json_response({"status": {"allowed": allowed}}, status=201)


@pytest.fixture
def registry():
    return CollectorRegistry()


@pytest.fixture
async def client(model, registry):
    async with connected(Scraped().app()) as (api, _):
        parts = parts_of(model=model, rights=Rights(api), api=api, registry=registry)
        transport = httpx.ASGITransport(application(parts))
        async with httpx.AsyncClient(transport=transport, base_url="https://api") as client:
            yield client


def parts_of(**own):
    """Return the parts that the calls of these tests need."""
    return Parts(**{each.name: None for each in dataclasses.fields(Parts)} | own)


def bearer(user):
    return {"Authorization": f"Bearer {user}-token"}


async def test_calls_are_counted_by_route_method_and_status(client, registry):
    for _ in range(2):
        await client.get("/api/v1/gpu/health")
    await client.get("/api/v1/gpu/nodes")
    assert registry.get_sample_value("gpupack_api_calls_total", CALL) == 2
    refused = {"route": "/api/v1/gpu/nodes", "method": "GET", "status": "401"}
    assert registry.get_sample_value("gpupack_api_calls_total", refused) == 1
    timed = {"route": CALL["route"]}
    assert registry.get_sample_value("gpupack_api_call_seconds_count", timed) == 2
    assert registry.get_sample_value("gpupack_api_calls_under_way", timed) == 0


async def test_values_in_a_path_create_no_time_series(client, registry):
    for name in ("a", "b", "c"):
        await client.get(f"/api/v1/gpu/jobs/team/{name}", headers=bearer("tenant"))
        await client.get(f"/nowhere/{name}")
    routes = {
        sample.labels["route"]
        for family in registry.collect()
        for sample in family.samples
        if "route" in sample.labels
    }
    assert "/api/v1/gpu/jobs/{namespace}/{name}" in routes
    assert [route for route in routes if "team" in route or "nowhere" in route] == []


async def test_metrics_need_the_permission_to_get_them(client):
    assert (await client.get("/metrics")).status_code == 401
    assert (await client.get("/metrics", headers=bearer("tenant"))).status_code == 403
    await client.get("/api/v1/gpu/health")
    shown = await client.get("/metrics", headers=bearer("scraper"))
    assert shown.status_code == 200
    assert shown.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert 'gpupack_api_calls_total{method="GET",route="/api/v1/gpu/health"' in shown.text


async def test_a_listener_counts_while_it_listens(model, registry, monkeypatch):
    seen = []

    @get("/stream")
    async def stream() -> Stream:
        async def lines():
            of_stream = {"route": "/stream"}
            seen.append(registry.get_sample_value("gpupack_api_calls_under_way", of_stream))
            yield b"line"

        return Stream(lines())

    monkeypatch.setattr(api_app, "CALLS", (stream,))
    parts = parts_of(model=model, registry=registry)
    transport = httpx.ASGITransport(application(parts))
    async with httpx.AsyncClient(transport=transport, base_url="https://api") as client:
        await client.get("/stream")
    assert seen == [1]
    ended = {"route": "/stream"}
    assert registry.get_sample_value("gpupack_api_calls_under_way", ended) == 0
