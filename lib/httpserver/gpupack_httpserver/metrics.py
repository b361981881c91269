# SPDX-License-Identifier: Apache-2.0
"""/metrics over HTTPS for authorized callers, with the same checks as controller-runtime's filter.

    GET /metrics ─► TokenReview, SubjectAccessReview (get /metrics) ─► the registry's text

It is for components that serve nothing else. They share one certificate: a scraper connects by a
pod's address and sends the name in the certificate.
"""

import asyncio
import contextlib
import http
import logging
import time
from collections.abc import AsyncIterator, Iterable
from typing import Final

import prometheus_client
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector
from uvicorn._types import ASGIReceiveCallable, ASGISendCallable, HTTPScope, Scope

from gpupack_httpserver.access import Access, Caller
from gpupack_httpserver.certificate import CertificateMetrics, ServedCertificate, ServerFiles
from gpupack_httpserver.errors import Denied, TaskEnded
from gpupack_httpserver.handshakes import Handshakes
from gpupack_httpserver.peer_limits import ConnectionLimits
from gpupack_httpserver.server import Server, configured
from gpupack_httpserver.settings import MetricsSettings
from gpupack_kubeclient.client import Api
from gpupack_kubeclient.errors import KubeError
from gpupack_kubeclient.metrics import KubeRequests

log = logging.getLogger(__name__)

PATH: Final = "/metrics"

TICK_SECONDS: Final = 1.0
"""Seconds between checks for the end: uvicorn's ten a second cost an idle agent CPU time."""

IDLE_SECONDS: Final = 65
"""Prometheus scrapes every 15 to 60 s on its open connection."""

CONNECTIONS: Final = 32
PEER_CONNECTIONS: Final = 8
"""Two Prometheus servers and a user need four."""


class MetricsApp:
    """The ASGI application; a framework would cost each agent megabytes for one path.

    Args:
        registry: metrics to expose; read on the loop, whose state it reports, within milliseconds.
        access: authorizes callers.
    """

    def __init__(self, registry: prometheus_client.CollectorRegistry, access: Access) -> None:
        self._registry, self._access = registry, access

    async def __call__(
        self, scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable
    ) -> None:
        """Answer one call."""
        del receive
        status, body = await self._answer(scope)
        content = CONTENT_TYPE_PLAIN_0_0_4 if status == http.HTTPStatus.OK else "text/plain"
        headers = [
            (b"content-type", content.encode()),
            (b"content-length", str(len(body)).encode()),
        ]
        await send({"type": "http.response.start", "status": int(status), "headers": headers})
        await send({"type": "http.response.body", "body": body, "more_body": False})

    async def _answer(self, scope: Scope) -> tuple[http.HTTPStatus, bytes]:
        if scope["type"] != "http" or scope["path"] != PATH:
            return http.HTTPStatus.NOT_FOUND, b"there is /metrics alone"
        if scope["method"] not in {"GET", "HEAD"}:
            return http.HTTPStatus.METHOD_NOT_ALLOWED, b"GET /metrics"
        try:
            await self._access.may_get(_caller(scope), path=PATH)
        except Denied as error:
            return error.status, str(error).encode()
        except KubeError as error:
            log.warning("cannot ask who wants metrics: %s", error)
            return http.HTTPStatus.SERVICE_UNAVAILABLE, b"the API server cannot be asked who calls"
        return http.HTTPStatus.OK, prometheus_client.generate_latest(self._registry)


class RestingServer(Server):
    """A server that uses nearly no CPU time while there are no calls."""

    async def main_loop(self) -> None:
        """Run until the server has to end; the `Date` of answers is at most this old."""
        while not await self.on_tick(0):  # noqa: ASYNC110 - uvicorn signals the end with a flag
            await asyncio.sleep(TICK_SECONDS)


@contextlib.asynccontextmanager
async def shown(
    collectors: Iterable[Collector], *, api: Api, settings: MetricsSettings
) -> AsyncIterator[asyncio.Task[None]]:
    """Answer GET /metrics inside the context; yield a task that ends only when listening failed.

    Args:
        collectors: collectors in addition to those of the connection and the certificate.
        api: the API server that authorizes callers.
        settings: port and certificate.

    Raises:
        OSError: the port is taken, or a file of the certificate cannot be read.
        ValueError: the certificate is not valid.
    """
    if not settings.port:
        idle = asyncio.create_task(_nothing(), name="no metrics")
        yield idle
        await _cancelled(idle)
        return
    registry = prometheus_client.CollectorRegistry()
    certificate = ServedCertificate(ServerFiles(settings.tls_cert, settings.tls_key))
    for collector in (*collectors, KubeRequests(api), CertificateMetrics(certificate)):
        registry.register(collector)
    served = _server(registry, api, settings.port, certificate)
    serving = asyncio.create_task(_serve(served), name="metrics")
    try:
        await _until_listening(served, serving)
        log.info("metrics are at port %d, over HTTPS", settings.port)
        yield serving
    finally:
        served.should_exit = True
        await asyncio.wait({serving}, timeout=2 * TICK_SECONDS)
        served.close()
        await _cancelled(serving)


def _server(
    registry: prometheus_client.CollectorRegistry,
    api: Api,
    port: int,
    certificate: ServedCertificate,
) -> RestingServer:
    handshakes = Handshakes()
    access = Access(api, clock=time.monotonic, on_allowed=handshakes.welcome)
    config = configured(MetricsApp(registry, access), host="", port=port)
    config.timeout_keep_alive = IDLE_SECONDS
    limits = ConnectionLimits(most=CONNECTIONS, per_peer=PEER_CONNECTIONS)
    return RestingServer(config, limits, handshakes, certificate.context)


async def _serve(server: Server) -> None:
    await server.serve()
    raise TaskEnded(f"no server listens at port {server.config.port} for metrics any more")


async def _until_listening(server: Server, serving: asyncio.Task[None]) -> None:
    while not server.started:
        if serving.done():
            serving.result()
        await asyncio.sleep(0.01)


async def _nothing() -> None:
    await asyncio.Event().wait()


async def _cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def _caller(scope: HTTPScope) -> Caller:
    sent = dict(scope["headers"])
    client = scope["client"]
    return Caller(
        authorization=sent.get(b"authorization", b"").decode("latin-1"),
        address=client[0] if client else "",
    )
