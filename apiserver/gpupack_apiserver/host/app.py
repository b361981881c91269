# SPDX-License-Identifier: Apache-2.0
"""Assembly and lifecycle of the parts of one machine's server."""

import asyncio
import contextlib
import dataclasses
import ssl
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from litestar import Litestar, route
from litestar.datastructures import State

from gpupack.config import GpuConfig
from gpupack.host.inventory import Gpus
from gpupack.host.opening import gpus_of, open_host
from gpupack.host.reservations import Reservations
from gpupack_apiserver import app, page
from gpupack_apiserver.config import Config
from gpupack_apiserver.errors import ClusterNeeded
from gpupack_apiserver.history import History
from gpupack_apiserver.host import routes
from gpupack_apiserver.host.machine import Machine
from gpupack_apiserver.host.parts import AllocationThreads, HostParts, host_parts_of
from gpupack_apiserver.host.settings import HostSettings
from gpupack_apiserver.host.token import token_at
from gpupack_apiserver.routes import cluster, setups, validation
from gpupack_apiserver.routes.parts import Call
from gpupack_httpserver.certificate import ServedCertificate, ServerFiles
from gpupack_httpserver.handshakes import Handshakes
from gpupack_httpserver.peer_limits import ConnectionLimits
from gpupack_httpserver.process import essential, serve
from gpupack_httpserver.server import Server, configured
from gpupack_placement import policy_named
from gpupack_scheduler.errors import NotReady

CALLS: Final = (
    cluster.status,
    cluster.nodes,
    cluster.monitoring,
    cluster.health,
    cluster.ready,
    routes.holders,
    validation.validate,
    routes.allocate,
    routes.allocation,
    routes.release,
    setups.setup_tensorflow,
    setups.setup_pytorch,
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class HostApp:
    """All running parts."""

    tasks: Mapping[str, app.Task]
    """Tasks by their purpose."""
    machine: Machine
    allocations: AllocationThreads
    gpus: Gpus
    server: Server


def application(parts: HostParts, dashboard: page.Page) -> Litestar:
    """Return the application of one machine; calls that need a cluster say so."""
    return app.create_application(
        [*CALLS, *_cluster_calls()],
        {"parts": parts, "page": dashboard},
        parts.registry,
        description="State and holders of this machine's GPUs.",
        token_description="The content of this server's file `token`.",  # noqa: S106 - says what it is
    )


def build(settings: HostSettings, config: GpuConfig) -> HostApp:
    """Assemble the parts.

    Raises:
        TokenUnusable: the token's file cannot be used.
        PageInvalid: a page is configured, and there is none.
        ConfigInvalid: the simulated GPUs have another form.
    """
    gpus = gpus_of(config)
    host = open_host(config, gpus)
    seconds = Config().sample_seconds
    machine = Machine(host.ledger, policy_named(config.this_machine.policy), seconds=seconds)
    history = History(machine.sample, seconds=seconds)
    allocations = AllocationThreads(Reservations(host.folder, host.ledger))
    parts = HostParts(
        model=machine, history=history, allocations=allocations, token=token_at(settings.token)
    )
    calls = application(parts, page.Page.read(settings.page_folder))
    served = configured(calls, host=settings.address, port=settings.port)
    served.timeout_keep_alive = app.IDLE_SECONDS
    return HostApp(
        tasks={"ledger": machine, "history": history},
        machine=machine,
        allocations=allocations,
        gpus=gpus,
        server=Server(served, ConnectionLimits(), Handshakes(), _tls(settings)),
    )


def _tls(settings: HostSettings) -> Callable[[], ssl.SSLContext] | None:
    """Return a function that makes a connection's context; None: plain HTTP."""
    if not settings.tls_cert:
        return None
    return ServedCertificate(ServerFiles(settings.tls_cert, settings.tls_key)).context


async def run(built: HostApp, stop: asyncio.Event) -> None:
    """Run everything until `stop`, or until an essential task ends.

    Raises:
        ExceptionGroup: an essential task failed; the others were cancelled.
    """
    try:
        with contextlib.suppress(NotReady):  # health reports it
            await built.machine.read()
        async with asyncio.TaskGroup() as group:
            working = [
                group.create_task(essential(name, each.run())) for name, each in built.tasks.items()
            ]
            serving = group.create_task(serve(built.server, stop))
            await stop.wait()
            built.server.should_exit = True
            await serving
            for task in working:
                task.cancel()
    finally:
        built.allocations.close()
        built.gpus.close()


def _cluster_calls() -> Iterator[Any]:
    """Yield the calls of the cluster's server that this one lacks, by path and method."""
    served = {
        (path, method) for call in CALLS for path in call.paths for method in call.http_methods
    }
    for call in app.CALLS:
        methods = [each for each in call.http_methods if (min(call.paths), each) not in served]
        if methods:
            yield route(sorted(call.paths), http_method=methods, include_in_schema=False)(_refuse)


async def _refuse(request: Call, state: State) -> None:
    """Refuse a call that needs a cluster, with that reason for authenticated callers.

    Raises:
        ClusterNeeded: always.
        Denied: the token is not sent.
    """
    await host_parts_of(state).require_metrics_access(request)
    raise ClusterNeeded(
        f"{request.url.path} needs a cluster (for GPUJobs, the queue, quotas or costs), and this "
        "server is one machine's; docs/install.md describes the installation in a cluster"
    )
