# SPDX-License-Identifier: Apache-2.0
"""Assembly and lifecycle of the API's parts."""

import asyncio
import dataclasses
import logging
from collections.abc import Sequence
from typing import Any, Final, Protocol

from litestar import Litestar, Request
from litestar.config.compression import CompressionConfig
from litestar.datastructures import MutableScopeHeaders, State
from litestar.openapi import OpenAPIConfig
from litestar.openapi.spec import Components, SecurityScheme
from litestar.types import Message, Scope
from prometheus_client import CollectorRegistry

from gpupack_apiserver import metrics, page, parameters, problems
from gpupack_apiserver.bodies import StrictRequest
from gpupack_apiserver.config import Config, ConfigFile
from gpupack_apiserver.cost_forwarding import CostForwarder
from gpupack_apiserver.events.feed import Feed
from gpupack_apiserver.events.frames import Frames
from gpupack_apiserver.events.limits import StreamLimits
from gpupack_apiserver.history import History, sample_of
from gpupack_apiserver.node_views import NodeViews
from gpupack_apiserver.questions import Questions
from gpupack_apiserver.quota_history import QuotaHistory
from gpupack_apiserver.read_model import ReadModel
from gpupack_apiserver.readings.assembly import build_readings
from gpupack_apiserver.rights import Rights
from gpupack_apiserver.routes import (
    allocations,
    cluster,
    config,
    cost,
    events,
    explain,
    holders,
    jobs,
    lifecycle,
    quotas,
    reservations,
    setups,
    snapshot,
    validation,
    what_if,
    workloads,
)
from gpupack_apiserver.routes.parts import TOKEN_HEADER, Parts
from gpupack_apiserver.settings import CostService, Settings
from gpupack_crds.kinds import GpuQuota
from gpupack_httpserver.certificate import ServedCertificate
from gpupack_httpserver.client_certificates import ClientCertificates
from gpupack_httpserver.handshakes import Handshakes
from gpupack_httpserver.peer_limits import ConnectionLimits
from gpupack_httpserver.process import essential, serve
from gpupack_httpserver.server import Server, configured
from gpupack_kubeclient.client import Api
from gpupack_kubeclient.clock import steady
from gpupack_kubeclient.reflector import Reflector
from gpupack_restapi import PREFIX
from gpupack_restapi.nodes import Sample

VERSION: Final = "1.0.0"
"""Version of the calls."""

IDLE_SECONDS: Final = 30
"""Seconds for which a connection without a call is kept."""

CALLS: Final = (
    cluster.status,
    cluster.nodes,
    cluster.monitoring,
    events.events,
    cluster.health,
    cluster.ready,
    jobs.jobs,
    jobs.job,
    jobs.queue,
    quotas.quotas,
    quotas.history,
    reservations.reservations,
    holders.holders,
    snapshot.snapshot,
    validation.validate,
    allocations.allocate,
    allocations.allocation,
    allocations.release,
    workloads.run_workload,
    setups.setup_tensorflow,
    setups.setup_pytorch,
    cost.cost,
    what_if.what_if,
    explain.explain,
    explain.explain_pod,
    lifecycle.suspend,
    lifecycle.resume,
    lifecycle.rerun,
    config.reload,
)


class Task(Protocol):
    """A task that runs for as long as the process."""

    async def run(self) -> None:
        """Run until cancelled."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class App:
    """All running parts."""

    feed: Feed
    reflectors: dict[str, Reflector[Any]]
    tasks: dict[str, Task]
    """Tasks by their purpose."""
    servers: tuple[Server, ...]
    """The server for tokens, and where enabled the one for certificates."""
    registry: CollectorRegistry
    """Registry of the metrics."""


def application(
    parts: Parts, cost_service: CostService | None = None, dashboard: page.Page | None = None
) -> Litestar:
    """Return the application: calls with their description, and the dashboard, which has none.

    Cost queries are forwarded to the cost service.
    """
    state = {"parts": parts, "cost": CostForwarder(parts, cost_service)}
    return cluster_application(state | {"page": dashboard or page.Page()}, parts.registry)


def cluster_application(state: dict[str, Any], registry: CollectorRegistry) -> Litestar:
    """Return the application of the cluster's calls."""
    return create_application(
        CALLS,
        state,
        registry,
        description="State and holders of the cluster's GPUs, and the queue.",
        token_description="A token of the Kubernetes API server.",  # noqa: S106 - says what it is
    )


def create_application(
    calls: Sequence[Any],
    state: dict[str, Any],
    registry: CollectorRegistry,
    *,
    description: str,
    token_description: str,
) -> Litestar:
    """Return an application of these calls, /metrics and the dashboard.

    `token_description` describes the credentials of callers.
    """
    counted = metrics.Metrics(registry)
    made = Litestar(
        route_handlers=[*calls, metrics.show_metrics, page.index, page.asset],
        middleware=[counted],
        guards=[parameters.require_valid_parameters],
        state=State(state),
        exception_handlers=problems.HANDLERS,
        before_send=[add_default_headers, complete_allow_header],
        request_class=StrictRequest,
        compression_config=CompressionConfig(
            backend="gzip",
            minimum_size=4096,
            gzip_compress_level=1,
            exclude_opt_key=events.NOT_COMPRESSED,
        ),
        openapi_config=OpenAPIConfig(
            title="gpupack",
            version=VERSION,
            description=f"{description} {PARAMETERS_TEXT}",
            path=f"{PREFIX}/openapi",
            render_plugins=(),
            components=Components(
                security_schemes={
                    "token": SecurityScheme(
                        type="http",
                        scheme="bearer",
                        description=token_description,
                    ),
                    "proxied": SecurityScheme(
                        type="apiKey",
                        name=TOKEN_HEADER,
                        security_scheme_in="header",
                        description="As Authorization, where a proxy removes that header.",
                    ),
                }
            ),
            security=[{"token": []}, {"proxied": []}],
        ),
        logging_config=None,
    )
    counted.expose(made.routes)
    return made


PARAMETERS_TEXT: Final = (
    "A call with an unknown query parameter is answered 400, with the known parameters; so is a "
    "call that repeats one."
)
HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
}
"""Headers of answers, which are only for the caller, and are not documents."""


async def complete_allow_header(message: Message, scope: Scope) -> None:
    """Name every method of a path: Litestar names only those of its first handler."""
    if message["type"] != "http.response.start" or scope.get("method") != "OPTIONS":
        return
    if allowed := problems.methods(Request(scope)):
        MutableScopeHeaders.from_message(message)["Allow"] = ", ".join(sorted(allowed))


async def add_default_headers(message: Message, _: Scope) -> None:
    """Add these headers to every answer that lacks them."""
    if message["type"] == "http.response.start":
        headers = MutableScopeHeaders.from_message(message)
        for name, value in HEADERS.items():
            headers.setdefault(name, value)


def build(settings: Settings, api: Api) -> App:
    """Assemble the parts."""
    model = ReadModel(settings, now=steady(api.clock))
    reflectors = model.reflectors(api)
    reading = build_readings(settings.readings, api, model.ledger.cluster)
    poller, agents = reading.poller, reading.reflectors
    views = NodeViews(model.ledger, poller)
    seconds = Config().sample_seconds
    history = History(lambda: _sample(model, views), seconds=seconds)
    quota_history = QuotaHistory(lambda: _quotas(model), seconds=seconds)
    certificate = ServedCertificate(settings.files)
    certificates = ClientCertificates(api, settings.files) if settings.certificates_port else None
    rights, streams = Rights(api, certificates), StreamLimits()
    reloadable = ReloadableParts(history, quota_history, rights, streams, settings.log_level)
    config_file = ConfigFile(settings.config, reloadable.apply)
    feed = Feed(model, views, history)
    questions = Questions(model.queue_copy, is_known=lambda: not model.missing())
    parts = Parts(
        model=model,
        feed=feed,
        frames=Frames(feed, model, history),
        streams=streams,
        config=config_file,
        nodes=views,
        history=history,
        quota_history=quota_history,
        questions=questions,
        rights=rights,
        api=api,
        placeholder=settings.placeholder,
    )
    metrics.register(parts.registry, watches=reflectors, api=api, certificate=certificate)
    dashboard = page.Page.read(settings.page_folder)
    calls = application(parts, settings.cost_service, dashboard)
    return App(
        feed=feed,
        reflectors={**reflectors, **agents},
        tasks=({"readings": poller} if poller else {})
        | ({"client certificates": certificates} if certificates else {})
        | {
            "history": history,
            "quota history": quota_history,
            "policies": model.policies,
            "events": feed,
            "questions": questions,
            "configuration": config_file,
        },
        servers=_servers(settings, calls, certificate, certificates),
        registry=parts.registry,
    )


def _servers(
    settings: Settings,
    calls: Litestar,
    certificate: ServedCertificate,
    certificates: ClientCertificates | None,
) -> tuple[Server, ...]:
    """Return the servers, which share the limits of one server.

    Certificates have a separate port: a browser that is asked for one lets its user choose, and
    then sends it whichever page causes the call.
    """
    limits, handshakes = ConnectionLimits(), Handshakes()
    served = configured(calls, host="", port=settings.port)
    served.timeout_keep_alive = IDLE_SECONDS
    by_token = Server(served, limits, handshakes, certificate.context)
    if certificates is None:
        return (by_token,)
    other = configured(calls, host="", port=settings.certificates_port)
    other.timeout_keep_alive = IDLE_SECONDS
    return by_token, Server(other, limits, handshakes, lambda: certificates.context)


@dataclasses.dataclass(frozen=True, slots=True)
class ReloadableParts:
    """The parts that the configuration file may change."""

    history: History
    quota_history: QuotaHistory
    rights: Rights
    streams: StreamLimits
    log_level: str
    """Log level at the start."""

    def apply(self, config: Config) -> None:
        """Apply a configuration."""
        logging.getLogger().setLevel(config.log_level or self.log_level)
        self.history.set_interval(config.sample_seconds)
        self.quota_history.set_interval(config.sample_seconds)
        self.rights.limit(at_once=config.call_burst, per_second=config.calls_per_second)
        self.streams.max_per_user = config.streams_per_user


async def run(app: App, stop: asyncio.Event) -> None:
    """Run everything until `stop`, or until an essential task ends.

    Raises:
        ExceptionGroup: an essential task failed; the others were cancelled.
    """
    async with asyncio.TaskGroup() as group:
        running: dict[str, Task] = {**app.reflectors, **app.tasks}
        working = [group.create_task(essential(name, each.run())) for name, each in running.items()]
        serving = [group.create_task(serve(each, stop)) for each in app.servers]
        await stop.wait()
        app.feed.end("the server stops")
        for each in app.servers:
            each.should_exit = True
        await asyncio.gather(*serving)
        for task in working:
            task.cancel()


def _sample(model: ReadModel, views: NodeViews) -> Sample | None:
    if model.missing():
        return None
    known = model.jobs.by_key.values()
    return sample_of(
        views.totals(),
        running_jobs=sum(each.status.phase == "Running" for each in known),
        waiting_jobs=sum(each.status.phase == "Pending" and each.may_wait for each in known),
    )


def _quotas(model: ReadModel) -> list[GpuQuota] | None:
    return None if model.missing() else list(model.quotas.quotas.items.values())
