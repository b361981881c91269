# SPDX-License-Identifier: Apache-2.0
"""Metrics of the API: calls by route, status and time, calls in progress, its watches.

Routes have their path templates as names, without the callers' values, so that their number is that
of the calls.
"""

import itertools
import time
from collections.abc import Iterable, Iterator, Mapping
from http import HTTPStatus
from typing import Any, Final

import prometheus_client as prometheus
from litestar import HttpMethod, Response, get
from litestar.datastructures import State
from litestar.enums import ScopeType
from litestar.middleware import ASGIMiddleware
from litestar.routes import BaseRoute, HTTPRoute
from litestar.types import ASGIApp, Message, Receive, Scope, Send
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from gpupack_apiserver.routes.parts import Call, shared_parts_of
from gpupack_httpserver.certificate import CertificateMetrics, ServedCertificate
from gpupack_kubeclient.client import Api
from gpupack_kubeclient.metrics import KubeRequests, UnreadableObjects
from gpupack_kubeclient.reflector import Reflector

_BUCKETS: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 15)

PATH: Final = "/metrics"

UNKNOWN_ROUTE: Final = "none"

ENDED: Final = 499
"""Status for a caller that closed the connection before the answer, as web servers write it."""


class Metrics(ASGIMiddleware):
    """A counter of every call that reaches a route, including streams."""

    scopes = (ScopeType.HTTP,)

    def __init__(self, registry: prometheus.CollectorRegistry) -> None:
        self._calls = prometheus.Counter(
            "gpupack_api_calls",
            "Answered calls, by route, method and status. 499: the caller closed the connection "
            "before the answer.",
            ["route", "method", "status"],
            registry=registry,
        )
        self._seconds = prometheus.Histogram(
            "gpupack_api_call_seconds",
            "Time until an answer begins, by route.",
            ["route"],
            buckets=_BUCKETS,
            registry=registry,
        )
        self._under_way = prometheus.Gauge(
            "gpupack_api_calls_under_way",
            "Calls in progress, by route, including open event streams.",
            ["route"],
            registry=registry,
        )

    def expose(self, routes: Iterable[BaseRoute]) -> None:
        """Expose each call from the start, with the statuses in its description."""
        for route in routes:
            if not isinstance(route, HTTPRoute):
                continue
            self._seconds.labels(route.path_format)
            for handler in route.route_handlers:
                if HttpMethod.OPTIONS in handler.http_methods:
                    continue
                described = handler.responses or {}
                statuses = {handler.status_code, HTTPStatus.INTERNAL_SERVER_ERROR, *described}
                for method, status in itertools.product(handler.http_methods, statuses):
                    self._calls.labels(route.path_format, str(method), int(status))

    async def handle(self, scope: Scope, receive: Receive, send: Send, next_app: ASGIApp) -> None:
        """Measure one call."""
        route = scope.get("path_template") or UNKNOWN_ROUTE
        method = str(scope.get("method", ""))
        began, status = time.perf_counter(), ENDED

        async def sent(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                self._seconds.labels(route).observe(time.perf_counter() - began)
            await send(message)

        with self._under_way.labels(route).track_inprogress():
            try:
                await next_app(scope, receive, sent)
            finally:
                self._calls.labels(route, method, status).inc()


class WatchAges(Collector):
    """A collector of the age of the API's data."""

    def __init__(self, watches: Mapping[str, Reflector[Any]]) -> None:
        self._watches = watches

    def collect(self) -> Iterator[Metric]:
        """Yield one number for each watch."""
        family = GaugeMetricFamily(
            "gpupack_api_watch_age_seconds",
            "Seconds since the last data of the watch, by kind.",
            labels=["kind"],
        )
        for kind, watch in self._watches.items():
            family.add_metric([kind], watch.age_seconds())
        yield family


def register(
    registry: prometheus.CollectorRegistry,
    *,
    watches: Mapping[str, Reflector[Any]],
    api: Api,
    certificate: ServedCertificate,
) -> None:
    """Register the collectors that every component has."""
    for collector in (
        WatchAges(watches),
        UnreadableObjects(watches),
        KubeRequests(api),
        CertificateMetrics(certificate),
    ):
        registry.register(collector)


@get(PATH, include_in_schema=False)
async def show_metrics(request: Call, state: State) -> Response[bytes]:
    """Return all metrics to a caller that may get /metrics."""
    parts = shared_parts_of(state)
    await parts.require_metrics_access(request)
    text = prometheus.generate_latest(parts.registry)
    return Response(text, media_type=CONTENT_TYPE_PLAIN_0_0_4)
