# SPDX-License-Identifier: Apache-2.0
"""A scripted API server on loopback: what the real one will not do on demand (drop, expire)."""

import contextlib

import pytest
from aiohttp import web

from gpupack_kube.client import Api


@pytest.fixture
def serve(tmp_path):
    """Start a server with one handler for all paths and connect an Api to it."""

    @contextlib.asynccontextmanager
    async def started(handler):
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", handler)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(
            "{apiVersion: v1, kind: Config, current-context: x,"
            "contexts: [{name: x, context: {cluster: c, user: u}}],"
            f"clusters: [{{name: c, cluster: {{server: 'http://127.0.0.1:{port}'}}}}],"
            "users: [{name: u, user: {token: secret}}]}"
        )
        async with Api.connect({"KUBECONFIG": str(kubeconfig)}) as api:
            yield api
        await runner.cleanup()

    return started
