# SPDX-License-Identifier: Apache-2.0
"""Assembly and lifecycle of the cost service's parts."""

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import Mapping
from typing import Any

from litestar import Litestar, get
from litestar.datastructures import State

from gpupack_apiserver import parameters, problems
from gpupack_apiserver.accounts.claim_tracker import ClaimTracker
from gpupack_apiserver.accounts.cost_queries import CostQueries
from gpupack_apiserver.accounts.inventory import Inventory
from gpupack_apiserver.accounts.meter import Meter
from gpupack_apiserver.accounts.readings import AgentReadings, NoReadings
from gpupack_apiserver.accounts.settings import FILE_NAME, SECONDS_PER_DAY, CostServiceSettings
from gpupack_apiserver.accounts.store import Store
from gpupack_apiserver.accounts.stores import GpuJobStore, GpuStore, NodeStore, PodStore
from gpupack_apiserver.accounts.usage_recorder import UsageRecorder
from gpupack_apiserver.app import IDLE_SECONDS, add_default_headers
from gpupack_apiserver.freshness import missing_of
from gpupack_apiserver.readings.agent_poller import AgentPoller
from gpupack_apiserver.readings.assembly import build_readings
from gpupack_apiserver.rights import Rights
from gpupack_apiserver.routes.cost import CostBackend, cost
from gpupack_apiserver.shown_job import SHOWN_JOBS
from gpupack_cost import Prices
from gpupack_crds.gpuquota import QUOTA_NAME
from gpupack_crds.kinds import GPUNODES, GPUQUOTAS
from gpupack_httpserver.certificate import ServedCertificate, ServerFiles
from gpupack_httpserver.handshakes import Handshakes
from gpupack_httpserver.peer_limits import ConnectionLimits
from gpupack_httpserver.process import essential, serve
from gpupack_httpserver.server import Server, configured
from gpupack_kubeclient.client import Api
from gpupack_kubeclient.reflector import Reflector
from gpupack_kubeclient.resources import NODES
from gpupack_restapi import PREFIX
from gpupack_restapi.nodes import Health
from gpupack_scheduler.errors import NotReady
from gpupack_scheduler.ledger.ledger import Ledger
from gpupack_scheduler.ledger.watched_pod import WATCHED_PODS
from gpupack_scheduler.queueing.quotas.quota_stores import ObservedStore


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CostServiceApp:
    """All running parts.

    `reflectors` are in their starting order: GPUs and cohorts are known before the first pod is
    seen, and pods before the GPUJobs of their workers.
    """

    reflectors: Mapping[str, Reflector[Any]]
    recorder: UsageRecorder
    meter: Meter
    poller: AgentPoller | None
    server: Server

    def tasks(self) -> dict[str, UsageRecorder | Meter | AgentPoller]:
        """Return the tasks that always run, by name."""
        always: dict[str, UsageRecorder | Meter | AgentPoller] = {
            "usage recorder": self.recorder,
            "meter": self.meter,
        }
        return always | ({"readings": self.poller} if self.poller else {})


@get(f"{PREFIX}/health", tags=["health"], security=[{}])
async def health(state: State) -> Health:
    """Return whether the state of all holders is known; needs no token."""
    missing: str = state["missing"]()
    return Health("stale" if missing else "ok", missing)


@get(f"{PREFIX}/health/ready", tags=["health"], security=[{}], responses=problems.STALE)
async def ready(state: State) -> Health:
    """Return 200 where the state of all holders is known, else 503."""
    if missing := state["missing"]():
        raise NotReady(f"what is held is not known: {missing}")
    return Health("ok")


def application(costs: CostBackend, missing: Any) -> Litestar:
    """Return the application with its calls; gpupack-api, which clients call, describes them."""
    return Litestar(
        route_handlers=[cost, health, ready],
        guards=[parameters.require_valid_parameters],
        state=State({"cost": costs, "missing": missing}),
        exception_handlers=problems.HANDLERS,
        before_send=[add_default_headers],
        openapi_config=None,
        logging_config=None,
    )


def build(settings: CostServiceSettings, api: Api) -> CostServiceApp:
    """Assemble the parts.

    Raises:
        StoreUnusable: its file cannot be used.
    """

    def now() -> float:
        return api.clock.now().timestamp()

    ledger = Ledger(
        time.monotonic,
        observed_resources=settings.observed_resources,
        acceptance=settings.acceptance,
    )
    quotas = ObservedStore[Any](lambda: None)

    def cohort_of(namespace: str) -> str:
        quota = quotas.items.get((namespace, QUOTA_NAME))
        return (quota.spec.cohort or "") if quota else ""

    tracker = ClaimTracker(
        Inventory(ledger.cluster), cohort_of, settings.observed_resources, now=now
    )
    reflectors: dict[str, Reflector[Any]] = {
        "nodes": Reflector(api, NODES, NodeStore(ledger, tracker)),
        "gpunodes": Reflector(api, GPUNODES, GpuStore(ledger, tracker)),
        "gpuquotas": Reflector(api, GPUQUOTAS, quotas),
        "pods": Reflector(api, WATCHED_PODS, PodStore(tracker)),
        "gpujobs": Reflector(api, SHOWN_JOBS, GpuJobStore(tracker)),
    }

    def missing() -> str:
        return missing_of(reflectors, settings.stale_after_seconds)

    store = Store(settings.folder / FILE_NAME)
    tariffs = store.update_tariffs(
        settings.cost.currency, Prices(settings.cost.prices), time.time()
    )
    recorder = UsageRecorder(
        tracker,
        store,
        tariffs,
        retention_seconds=settings.cost.retention_days * SECONDS_PER_DAY,
        now=now,
        is_fresh=lambda: not missing(),
    )
    recorder.restore()
    reading = build_readings(settings.readings, api, ledger.cluster)
    readings = AgentReadings(reading.poller) if reading.poller else NoReadings()
    meter = Meter(recorder, ledger.cluster, readings, seconds=settings.meter_seconds)
    queries = CostQueries(recorder, Rights(api), missing=missing, now=now)
    config = configured(application(queries, missing), host="", port=settings.port)
    config.timeout_keep_alive = IDLE_SECONDS
    certificate = ServedCertificate(ServerFiles(settings.tls_cert, settings.tls_key))
    server = Server(config, ConnectionLimits(), Handshakes(), certificate.context)
    return CostServiceApp(
        # Agents are last: they report on nodes that are already known.
        reflectors={**reflectors, **reading.reflectors},
        recorder=recorder,
        meter=meter,
        poller=reading.poller,
        server=server,
    )


async def run(app: CostServiceApp, stop: asyncio.Event) -> None:
    """Run everything until `stop`, or until an essential task ends.

    Raises:
        ExceptionGroup: an essential task failed; the others were cancelled.
    """
    try:
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(_watch(app.reflectors, group))
            working = [
                group.create_task(essential(name, each.run())) for name, each in app.tasks().items()
            ]
            serving = group.create_task(serve(app.server, stop))
            await stop.wait()
            app.server.should_exit = True
            await serving
            for task in (*working, watching):
                task.cancel()
    finally:
        app.recorder.close()


async def _watch(reflectors: Mapping[str, Reflector[Any]], group: asyncio.TaskGroup) -> None:
    """Start each reflector after the previous one has listed; then run until cancelled."""
    async with contextlib.AsyncExitStack() as stack:
        for name, reflector in reflectors.items():
            task = group.create_task(essential(name, reflector.run()))
            stack.callback(task.cancel)
            await reflector.synced.wait()
        await asyncio.Event().wait()
