# SPDX-License-Identifier: Apache-2.0
"""Connection of the extender's parts, and their life."""

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import Callable
from typing import Any, Final, Protocol

from prometheus_client.registry import Collector

from gpupack_crds import names
from gpupack_extender.binding import Binder
from gpupack_extender.filtering import Filter
from gpupack_extender.gathering import GangBarrier
from gpupack_extender.health import Health
from gpupack_extender.inventory_notes import InventoryNotes
from gpupack_extender.leader_endpoint import LeaderEndpoint, OwnPod
from gpupack_extender.metrics import (
    ConsolidationCollector,
    IdleCollector,
    LedgerCollector,
    Metrics,
    ReadinessCollector,
)
from gpupack_extender.parts import Parts, parts_of
from gpupack_extender.plan_api import PlanApi
from gpupack_extender.queueing.condition_notes import ConditionWriter
from gpupack_extender.queueing.evictions import Evictions
from gpupack_extender.queueing.forecast_writer import ForecastWriter
from gpupack_extender.queueing.pod_notes import PodNotes
from gpupack_extender.queueing.queue_metrics import QueueCollector, QueueMetrics
from gpupack_extender.queueing.reporting import QuotaReporter
from gpupack_extender.queueing.runner import QueueRunner
from gpupack_extender.queueing.window_reporting import WindowReporter
from gpupack_extender.ranking import Prioritize
from gpupack_extender.reserving import Reserve
from gpupack_extender.servers import health_server, plan_server, verbs_server
from gpupack_extender.settings import Serving, Settings
from gpupack_extender.unconfirmed_writes import (
    UnconfirmedBinds,
    UnconfirmedPlans,
    UnconfirmedWrites,
)
from gpupack_extender.unknown_jobs import UnknownJobs
from gpupack_extender.verbs import Verbs
from gpupack_extender.withheld_resources import WithheldResources
from gpupack_httpserver.access import Access
from gpupack_httpserver.certificate import CertificateMetrics, ServedCertificate
from gpupack_httpserver.handshakes import Handshakes
from gpupack_httpserver.process import essential, serve
from gpupack_httpserver.server import Server
from gpupack_kubeclient.client import Api
from gpupack_kubeclient.events import EventWriter, Reporter
from gpupack_kubeclient.metrics import KubeRequests, UnreadableObjects
from gpupack_kubeclient.reflector import Reflector
from gpupack_placement import never_fits
from gpupack_scheduler.planning import Plan
from gpupack_scheduler.queueing.pods.conditions import FAILED, IDLE, STRANDED, Kind, Note
from gpupack_scheduler.queueing.turns import Turns

CONTROLLER: Final = f"{names.GROUP}/scheduler"

CLOSING_SECONDS: Final = 0.3
"""Delay until the servers accept no more calls; calls that wait for notifications then end."""

FIRST_LOOK_SECONDS: Final = 1.0
"""Longest delay of the first lists: a list that is requested too early is requested again."""


class Runs(Protocol):
    """Task that runs as long as the process."""

    async def run(self) -> None:
        """Run until cancelled."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class App:
    """All parts that run."""

    reflectors: dict[str, Reflector[Any]]
    unconfirmed: dict[str, UnconfirmedWrites[Any]]
    """Unconfirmed writes by what is written."""
    tasks: dict[str, Runs]
    """Tasks by their purpose."""
    first_look: asyncio.Event
    """Set once it is known whether a predecessor may still write: objects are listed after it."""
    turns: Turns
    gathering: GangBarrier
    servers: tuple[Server, ...]
    metrics: Metrics


def build(settings: Settings, api: Api, leases: Api) -> App:
    """Connect all parts, with a separate API for the Lease's watch; a loop must run."""
    parts, metrics = parts_of(settings, api, leases), Metrics()
    certificate = ServedCertificate(settings.serving.files)
    binder = _binder(parts)
    endpoint = LeaderEndpoint(
        api=api,
        pod=_own_pod(settings),
        leads=lambda: parts.leadership.held,
        is_known=parts.reflectors["leader"].synced,
        takeover=parts.takeover,
    )
    events = EventWriter(api, Reporter(CONTROLLER, settings.leader_election.pod_name, "Evict"))
    idle = _notes(parts, events, IDLE, lambda: [pod.note for pod in parts.owner.idle_pods()])
    collectors: tuple[Collector, ...] = (
        IdleCollector(idle),
        LedgerCollector(parts.ledger, parts.reflectors),
        ConsolidationCollector(parts.owner.observed.operations.consolidations),
        UnreadableObjects(parts.reflectors),
        KubeRequests(api),
        ReadinessCollector(parts.readiness),
        CertificateMetrics(certificate),
        QueueCollector(parts.owner.observed, parts.quotas, decides=parts.readiness.decides),
    )
    for each in collectors:
        metrics.registry.register(each)
    return App(
        reflectors=parts.reflectors,
        unconfirmed={
            "binds": UnconfirmedBinds(api, parts.ledger),
            "plans": UnconfirmedPlans(api, parts.ledger),
        },
        tasks={
            **_deciding(parts, QueueMetrics(metrics.registry)),
            **_telling(parts, events),
            **_publishing(parts, settings),
            "idle": idle,
            "endpoint": endpoint,
        },
        first_look=endpoint.looked,
        turns=parts.turns,
        gathering=binder.gathering,
        servers=_servers(parts, settings.serving, metrics, binder, certificate),
        metrics=metrics,
    )


def _deciding(parts: Parts, metrics: QueueMetrics) -> dict[str, Runs]:
    """Return the tasks that decide, admit pods behind gates, and publish the expected demand."""
    api, ledger, owner, readiness = parts.api, parts.ledger, parts.owner, parts.readiness
    return {
        "policies": parts.policies,
        "queue": QueueRunner(owner, ledger, parts.quotas, readiness, metrics),
        "forecast": ForecastWriter(
            api,
            parts.quotas,
            ledger.learner,
            can_serve=lambda request: not never_fits(ledger.cluster, request),
            decides=lambda: parts.decisions.demand_forecast is None and readiness.decides(),
        ),
        "gates": parts.gates,
    }


def _telling(parts: Parts, events: EventWriter) -> dict[str, Runs]:
    """Return the tasks that carry out decisions about pods, quotas and nodes."""
    api, owner, decides = parts.api, parts.owner, parts.readiness.decides
    return {
        "quotas": QuotaReporter(api, parts.quotas, owner.observed, decides=decides),
        "reservations": WindowReporter(api, parts.quotas, owner.observed, decides=decides),
        "evictions": Evictions(api, owner.evictions, events, decides=decides),
        "stranded": _notes(parts, events, STRANDED, owner.stranded_pods),
        "failed": _notes(parts, events, FAILED, owner.failed_pods),
        "notes": PodNotes(api, parts.ledger.pods, owner, decides=decides),
        "inventory": InventoryNotes(api, parts.ledger, decides=decides, now=api.clock.now),
    }


def _publishing(parts: Parts, settings: Settings) -> dict[str, Runs]:
    """Return the task that publishes nodes to the API server's policies, if it is configured."""
    if not settings.withheld_config_map:
        return {}
    task = WithheldResources(
        parts.api,
        parts.ledger,
        name=settings.withheld_config_map,
        namespace=settings.leader_election.system_namespace,
        decides=parts.readiness.decides,
    )
    return {"withheld": task}


def _notes(
    parts: Parts, events: EventWriter, kind: Kind, pods: Callable[[], list[Note]]
) -> ConditionWriter:
    return ConditionWriter(
        parts.api, parts.ledger, kind, pods, events, decides=parts.readiness.decides
    )


def _binder(parts: Parts) -> Binder:
    ledger, readiness = parts.ledger, parts.readiness
    reserve = Reserve(ledger, parts.owner, parts.decisions, readiness.require_to_decide)
    return Binder(parts.api, ledger, reserve, leads=lambda: parts.leadership.held)


def _servers(
    parts: Parts,
    serving: Serving,
    metrics: Metrics,
    binder: Binder,
    certificate: ServedCertificate,
) -> tuple[Server, ...]:
    """Return the servers of kube-scheduler's verbs, of the plan API, and of health."""
    ledger, decisions, readiness = parts.ledger, parts.decisions, parts.readiness
    verbs = Verbs(
        filter_pod=Filter(
            ledger,
            parts.policies,
            decisions,
            readiness.require_to_decide,
            UnknownJobs(parts.reflectors["gpujobs"], ledger.pods.seen_at, clock=time.monotonic),
            parts.owner,
        ),
        prioritize_pod=Prioritize(ledger, parts.policies, decisions),
        binder=binder,
        readiness=readiness,
        metrics=metrics,
    )
    handshakes = Handshakes()
    plan_api = PlanApi(
        make_plan=Plan(ledger, parts.owner, decisions),
        turns=parts.turns,
        access=Access(parts.api, clock=time.monotonic, on_allowed=handshakes.welcome),
        readiness=readiness,
        metrics=metrics,
    )
    return (
        verbs_server(verbs.app(), serving),
        plan_server(plan_api.app(), serving, certificate, handshakes),
        health_server(Health(readiness).app(), serving),
    )


async def run(app: App, stop: asyncio.Event) -> None:
    """Run everything until `stop`, or until an essential task ends.

    Raises:
        ExceptionGroup: an essential task died; the others were cancelled.
    """
    async with asyncio.TaskGroup() as group:
        watching = [
            group.create_task(essential(name, _watch(name, reflector, app.first_look)))
            for name, reflector in app.reflectors.items()
        ]
        asking = [
            group.create_task(essential(f"unconfirmed {what}", writes.run()))
            for what, writes in app.unconfirmed.items()
        ]
        working = [
            group.create_task(essential(what, task.run())) for what, task in app.tasks.items()
        ]
        serving = [group.create_task(serve(server, stop)) for server in app.servers]
        await stop.wait()
        for server in app.servers:
            server.should_exit = True
        await asyncio.sleep(CLOSING_SECONDS)
        app.turns.begin()
        app.gathering.close()
        await asyncio.gather(*serving)
        for task in (*watching, *asking, *working):
            task.cancel()


async def _watch(name: str, reflector: Runs, first_look: asyncio.Event) -> None:
    """Run a reflector; all but the Lease's begin after the first look, or without it."""
    if name != "leader":
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(first_look.wait(), FIRST_LOOK_SECONDS)
    await reflector.run()


def _own_pod(settings: Settings) -> OwnPod:
    election = settings.leader_election
    return OwnPod(
        namespace=election.system_namespace,
        name=election.pod_name,
        uid=election.pod_uid,
        address=election.pod_address,
        port=settings.serving.plan_port,
    )
