# SPDX-License-Identifier: Apache-2.0
"""A scripted API server on loopback: what the real one will not do on demand (drop, expire)."""

import contextlib

import pytest
from aiohttp import web
from fake_api import connected


@pytest.fixture
def serve():
    """Start a server with one handler for all paths and connect an Api to it."""

    @contextlib.asynccontextmanager
    async def started(handler):
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", handler)
        async with connected(app) as (api, _):
            yield api

    return started
