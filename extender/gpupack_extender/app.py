# SPDX-License-Identifier: Apache-2.0
"""How the parts are put together, and their life."""

import asyncio
import dataclasses
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol

import gpupack_core as core
from gpupack_crds import names
from gpupack_crds.kinds import GPUCOHORTS, GPUNODES, GPUQUOTAS
from gpupack_extender.access import Access
from gpupack_extender.binding import Binder
from gpupack_extender.errors import TaskEnded
from gpupack_extender.filtering import Filter
from gpupack_extender.handshakes import Handshakes
from gpupack_extender.health import Health
from gpupack_extender.leader_endpoint import LeaderEndpoint, OwnPod
from gpupack_extender.leadership import Leadership
from gpupack_extender.ledger.ledger import Ledger
from gpupack_extender.ledger.placed_job import PLACED_JOBS
from gpupack_extender.ledger.watched_pod import WATCHED_PODS
from gpupack_extender.metrics import (
    ConsolidationCollector,
    IdleCollector,
    LedgerCollector,
    Metrics,
)
from gpupack_extender.plan_api import PlanApi
from gpupack_extender.planning import Plan
from gpupack_extender.policies import Policies
from gpupack_extender.queueing.admissions import Admissions
from gpupack_extender.queueing.condition_notes import FAILED, IDLE, ConditionNotes
from gpupack_extender.queueing.evictions import Evictions
from gpupack_extender.queueing.gates import Gates
from gpupack_extender.queueing.hears import Hears
from gpupack_extender.queueing.pod_notes import PodNotes
from gpupack_extender.queueing.quotas import QuotaStores
from gpupack_extender.queueing.reporting import QuotaReporter
from gpupack_extender.queueing.runner import QueueRunner
from gpupack_extender.queueing.turns import Turns
from gpupack_extender.ranking import Prioritize
from gpupack_extender.readiness import Readiness
from gpupack_extender.reserving import Reserve
from gpupack_extender.servers import Server, health_server, plan_server, verbs_server
from gpupack_extender.settings import LeaderElection, Settings
from gpupack_extender.takeover import Takeover
from gpupack_extender.unconfirmed_writes import (
    UnconfirmedBinds,
    UnconfirmedPlans,
    UnconfirmedWrites,
)
from gpupack_extender.unknown_jobs import UnknownJobs
from gpupack_extender.verbs import Verbs
from gpupack_kube.client import Api
from gpupack_kube.events import EventWriter, Reporter
from gpupack_kube.metrics import UnreadableObjects
from gpupack_kube.objects import Lease
from gpupack_kube.reflector import Reflector
from gpupack_kube.resources import LEASES, NODES

CONTROLLER: Final = f"{names.GROUP}/scheduler"

CLOSING_SECONDS: Final = 0.3
"""Until the servers take no more calls; those that wait for a turn are answered then."""


class Runs(Protocol):
    """Goes on for as long as the process does."""

    async def run(self) -> None:
        """Until cancelled."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class App:
    """Everything that runs."""

    reflectors: dict[str, Reflector[Any]]
    unconfirmed: dict[str, UnconfirmedWrites[Any]]
    """By what is written."""
    tasks: dict[str, Runs]
    """By what they are for."""
    turns: Turns
    servers: tuple[Server, ...]


def build(settings: Settings, api: Api) -> App:
    """Put the parts together."""
    clock, decisions, election = time.monotonic, settings.decisions, settings.leader_election
    ledger = Ledger(
        clock,
        observed_resources=decisions.observed_resources,
        acceptance=decisions.acceptance,
    )
    policies = Policies(
        decisions.policy,
        ledger.learner,
        known=decisions.outlook,
        can_serve=lambda request: not core.never_fits(ledger.cluster, request),
    )
    quotas = QuotaStores()
    sources = _reflectors(api, ledger, quotas)
    takeover = Takeover(
        sources.values(),
        clock=clock,
        settle_seconds=decisions.plan_hold_seconds,
        later=asyncio.get_running_loop().call_later,
    )
    leadership = Leadership(pod_name=election.pod_name, clock=clock, gained=takeover.begin)
    reflectors = {**sources, "leader": _leader_reflector(api, leadership, election)}
    readiness = Readiness(
        watches=reflectors,
        leadership=leadership,
        takeover=takeover,
        fresh_seconds=election.fresh_seconds,
        settle_seconds=decisions.plan_hold_seconds,
    )
    reporter = Reporter(CONTROLLER, election.pod_name, "Evict")
    turns, gates = Turns(), Gates(api, ledger, leads=lambda: leadership.held)
    admissions = Admissions(
        ledger,
        policies,
        Hears(turns, gates),
        quotas=quotas,
        now=_steady(api),
        decisions=decisions,
    )
    metrics = Metrics()
    events = EventWriter(api, reporter)
    idle_notes = ConditionNotes(
        api,
        ledger,
        IDLE,
        lambda: [pod.note for pod in admissions.idle_pods()],
        events,
        decides=readiness.decides,
    )
    failure_notes = ConditionNotes(
        api,
        ledger,
        FAILED,
        admissions.failed_pods,
        events,
        decides=readiness.decides,
    )
    metrics.registry.register(IdleCollector(idle_notes))
    metrics.registry.register(LedgerCollector(ledger, reflectors))
    metrics.registry.register(ConsolidationCollector(admissions.consolidating))
    metrics.registry.register(UnreadableObjects(reflectors))
    verbs = Verbs(
        filter_pod=Filter(
            ledger,
            policies,
            decisions,
            readiness.require_to_decide,
            UnknownJobs(sources["gpujobs"], ledger.pods.seen_at, clock=clock),
            admissions,
        ),
        prioritize_pod=Prioritize(ledger, policies, decisions),
        binder=Binder(
            api,
            ledger,
            Reserve(ledger, admissions, decisions, readiness.require_to_decide),
            leads=lambda: leadership.held,
        ),
        readiness=readiness,
        metrics=metrics,
    )
    handshakes = Handshakes()
    plan_api = PlanApi(
        make_plan=Plan(ledger, admissions, decisions),
        turns=turns,
        access=Access(api, clock=clock, on_allowed=handshakes.welcome),
        readiness=readiness,
        metrics=metrics,
    )
    return App(
        reflectors=reflectors,
        unconfirmed={
            "binds": UnconfirmedBinds(api, ledger),
            "plans": UnconfirmedPlans(api, ledger),
        },
        tasks={
            "policies": policies,
            "queue": QueueRunner(admissions, turns, ledger, quotas, readiness),
            "quotas": QuotaReporter(api, quotas, admissions, decides=readiness.decides),
            "gates": gates,
            "evictions": Evictions(api, admissions.evictions, events, decides=readiness.decides),
            "idle": idle_notes,
            "failed": failure_notes,
            "notes": PodNotes(api, ledger.pods, admissions, decides=readiness.decides),
            "endpoint": LeaderEndpoint(api=api, pod=_own_pod(settings), decides=readiness.decides),
        },
        turns=turns,
        servers=(
            verbs_server(verbs.app(), settings.serving),
            plan_server(plan_api.app(), settings.serving, handshakes),
            health_server(Health(readiness).app(), settings.serving),
        ),
    )


async def run(app: App, stop: asyncio.Event) -> None:
    """Run everything until `stop`, or until an essential task ends.

    Raises:
        ExceptionGroup: an essential task died; the others were cancelled.
    """
    async with asyncio.TaskGroup() as group:
        watching = [
            group.create_task(_essential(name, reflector.run()))
            for name, reflector in app.reflectors.items()
        ]
        asking = [
            group.create_task(_essential(f"unconfirmed {what}", writes.run()))
            for what, writes in app.unconfirmed.items()
        ]
        working = [
            group.create_task(_essential(what, task.run())) for what, task in app.tasks.items()
        ]
        serving = [group.create_task(_serve(server, stop)) for server in app.servers]
        await stop.wait()
        for server in app.servers:
            server.should_exit = True
        await asyncio.sleep(CLOSING_SECONDS)
        app.turns.begin()
        await asyncio.gather(*serving)
        for task in (*watching, *asking, *working):
            task.cancel()


def _steady(api: Api) -> Callable[[], float]:
    """Seconds since the epoch by the API server's clock at the first call, counted on by our own.

    How long somebody has waited or run must not jump with the clock of another host.
    """
    distance: float | None = None

    def now() -> float:
        nonlocal distance
        if distance is None:
            distance = api.clock.now().timestamp() - time.monotonic()
        return time.monotonic() + distance

    return now


def _reflectors(api: Api, ledger: Ledger, quotas: QuotaStores) -> dict[str, Reflector[Any]]:
    """What decisions rest on."""
    return {
        "nodes": Reflector(api, NODES, ledger.nodes),
        "gpunodes": Reflector(api, GPUNODES, ledger.gpus),
        "gpujobs": Reflector(api, PLACED_JOBS, ledger.jobs),
        "gpuquotas": Reflector(api, GPUQUOTAS, quotas.quotas),
        "gpucohorts": Reflector(api, GPUCOHORTS, quotas.cohorts),
        "pods": Reflector(api, WATCHED_PODS, ledger.pods),
    }


def _own_pod(settings: Settings) -> OwnPod:
    election = settings.leader_election
    return OwnPod(
        namespace=election.system_namespace,
        name=election.pod_name,
        uid=election.pod_uid,
        address=election.pod_address,
        port=settings.serving.plan_port,
    )


def _leader_reflector(
    api: Api, leadership: Leadership, election: LeaderElection
) -> Reflector[Lease]:
    lease = {"fieldSelector": f"metadata.name={election.leader_lease}"}
    return Reflector(api, LEASES, leadership, namespace=election.system_namespace, selectors=lease)


async def _serve(server: Server, stop: asyncio.Event) -> None:
    try:
        await server.serve()
    finally:
        server.close()
    if not stop.is_set():
        raise TaskEnded(f"the server on port {server.config.port} ended by itself")


async def _essential(name: str, work: Coroutine[Any, Any, None]) -> None:
    await work
    raise TaskEnded(f"{name} ended by itself")
