# SPDX-License-Identifier: Apache-2.0
"""The process: wait for the Lease, listen, work, and stop as a whole.

    acquire ─► kopf · watches · workers · hold the Lease · audit ─► the first that ends ends all
                                                                ─► release

SIGTERM is one of these ends; the Lease is released so that a successor takes over at once. Any
other end of a task is an error and sets the process's exit code.
"""

import asyncio
import contextlib
import dataclasses
import signal
from collections.abc import Awaitable, Coroutine, Iterable, Mapping
from typing import Any, Final

import kopf
from prometheus_client.registry import Collector

from gpupack_crds.kinds import GPUNODES
from gpupack_httpserver import metrics
from gpupack_kubeclient.both import Both
from gpupack_kubeclient.client import Api
from gpupack_kubeclient.leader import Election
from gpupack_kubeclient.metrics import UnreadableObjects, Watch
from gpupack_kubeclient.reflector import Reflector
from gpupack_operator import handlers, liveness, watches
from gpupack_operator.actions import Actor
from gpupack_operator.audit import Audit
from gpupack_operator.cache import Cache
from gpupack_operator.decision.quarantine import Rules
from gpupack_operator.event_router import EventRouter
from gpupack_operator.fencing import Fence
from gpupack_operator.kopf_session import GpuJobStream
from gpupack_operator.log_tails import LogTails
from gpupack_operator.metrics import Metrics, OperatorCollector
from gpupack_operator.nodes_limits import NodesRequestLimiter
from gpupack_operator.nodes_requests import NodesRequests
from gpupack_operator.nvlink_cliques import NvlinkCliques
from gpupack_operator.plans import PlanClient
from gpupack_operator.preemptions import Preemptions
from gpupack_operator.priorities import Priorities
from gpupack_operator.quarantines import Quarantines
from gpupack_operator.reconcile import Reconciler, Sources
from gpupack_operator.run_limits import RunLimits
from gpupack_operator.settings import Settings
from gpupack_operator.turns import TurnListener
from gpupack_operator.unowned_gpunodes import UnownedGpuNodes
from gpupack_operator.waiting_jobs import Key, WaitingJobs
from gpupack_operator.work_queue import WorkQueue
from gpupack_operator.worker_pool import WorkerPool

GPUNODES_SECONDS: Final = 10.0
"""How long work waits for the first list of GPUNodes."""


async def serve(settings: Settings, environ: Mapping[str, str]) -> None:
    """Run until SIGTERM.

    Raises:
        LeaseLost: another operator works now.
        WatchStale: a watch is dead.
    """
    stop = _stop_event()
    beating = asyncio.create_task(liveness.beat(settings.heartbeat), name="heartbeat")
    metric_sources = MetricSources()
    try:
        async with (
            Api.connect(environ) as api,
            Api.connect(environ) as leases,
            metrics.shown(metric_sources.collectors(), api=api, settings=settings.metrics),
        ):
            # A separate connection: renewals must not wait for one that other calls use.
            election = _election(settings, leases)
            if not await _wait_for_lease(election, stop):
                return
            try:
                await _lead(settings, environ, api, election, metric_sources, stop)
            finally:
                await election.release()
    finally:
        await _cancel(beating)


WATCHED: Final = (
    "gpujobs",
    "jobs",
    "pods",
    "gpuquotas",
    "gpucohorts",
    "gpunodes",
    "acceptance-tests",
)
"""Names of the kinds that a leader watches, as in metrics."""


@dataclasses.dataclass(frozen=True, slots=True)
class StandbyWatch:
    """Watch of a standby, which has skipped nothing."""

    unreadable: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class MetricSources:
    """Sources of metrics; a standby shows them as well."""

    watches: dict[str, Watch] = dataclasses.field(
        default_factory=lambda: dict.fromkeys(WATCHED, StandbyWatch())
    )
    metrics: Metrics = dataclasses.field(default_factory=Metrics)
    state: OperatorCollector = dataclasses.field(default_factory=OperatorCollector)

    def collectors(self) -> tuple[Collector, ...]:
        """Return all collectors."""
        return UnreadableObjects(self.watches), self.metrics.registry, self.state


def _election(settings: Settings, api: Api) -> Election:
    lease = settings.lease
    return Election(
        api,
        lease.name,
        namespace=lease.namespace,
        holder=lease.holder,
        duration_seconds=lease.seconds,
    )


def _stop_event() -> asyncio.Event:
    """Return an event that SIGTERM sets."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return stop


async def _wait_for_lease(election: Election, stop: asyncio.Event) -> bool:
    """Wait for the Lease, or for SIGTERM; return whether the Lease is held."""
    acquiring = asyncio.create_task(election.acquire(), name="acquire")
    stopping = asyncio.create_task(stop.wait(), name="stop")
    done, _ = await asyncio.wait({acquiring, stopping}, return_when=asyncio.FIRST_COMPLETED)
    await _cancel(acquiring, stopping)
    if acquiring in done:
        acquiring.result()
        return True
    # The cancelled task may have written the Lease already.
    await election.release()
    return False


async def _lead(
    settings: Settings,
    environ: Mapping[str, str],
    api: Api,
    election: Election,
    metric_sources: MetricSources,
    stop: asyncio.Event,
) -> None:
    call_later = asyncio.get_running_loop().call_later
    queue: WorkQueue[Key] = WorkQueue(call_later)
    cache, waiting_jobs = Cache(), WaitingJobs(queue.add)
    plans = PlanClient(settings.plan, on_free=waiting_jobs.wake_next)
    actor = Actor(
        api,
        plans,
        defaults=settings.pods,
        reporter=settings.lease.holder,
        tails=LogTails(api, metric_sources.metrics.count_unsaved_logs)
        if settings.saves_logs
        else None,
        provisioning=settings.provisioning,
    )
    fence = Fence(api, namespace=settings.lease.namespace)
    preemptions, nodes_limiter = (
        Preemptions(),
        NodesRequestLimiter(settings.nodes_limits, queue.add),
    )
    cliques, run_limits = NvlinkCliques(), RunLimits()
    sources = Sources(
        fence=fence,
        priorities=Priorities(api, max_priority=settings.max_priority),
        preemptions=preemptions,
        nodes=NodesRequests(api, settings.provisioning, actor.planner.admitted_template),
        nodes_limiter=nodes_limiter,
        metrics=metric_sources.metrics,
        cliques=cliques,
        run_limits=run_limits,
        pull_secrets=settings.pods.pulling.secrets,
    )
    reconciler = Reconciler(api, actor, cache, waiting_jobs, settings.limits, sources)
    pool = WorkerPool(
        queue, reconciler.reconcile, reconciler.report_failure, metric_sources.metrics
    )
    router = EventRouter(queue, cache, waiting_jobs, preemptions, nodes_limiter)
    run_limits.on_change = lambda: router.on_run_limits(run_limits)
    gpujobs = watches.gpujobs_of(cache, router)
    stream = GpuJobStream()
    audit = Audit(api, cache, gpujobs.drop, skipped=stream.skipped, namespace=settings.namespace)
    watched = watches.reflectors(api, cache, router, namespace=settings.namespace)
    watched |= watches.run_limit_watches(api, run_limits, namespace=settings.namespace)
    listing = watches.list_once(api, gpujobs, namespace=settings.namespace)
    quarantines = Quarantines(
        api,
        reporter=settings.lease.holder,
        rules=Rules(settings.probation_seconds, settings.acceptance),
        now=api.clock.now,
        metrics=metric_sources.metrics,
    )
    unowned = UnownedGpuNodes(api, now=api.clock.now)
    gpunodes = Reflector(api, GPUNODES, Both(quarantines, Both(unowned, cliques)))
    tested = watches.acceptance_test_watches(api, quarantines.acceptance_tests)
    metric_sources.watches.update({"gpujobs": stream, **watched, "gpunodes": gpunodes, **tested})
    metric_sources.state.set_sources(queue, cache, quarantines)
    registry = handlers.registry(gpujobs, stream, environ)
    async with contextlib.aclosing(plans):
        await _until_first_ends(
            election.hold(),
            TurnListener(settings.plan, waiting_jobs, router.on_orders).run(),
            audit.run(lambda: pool.add_all(cache.keys())),
            _work(pool, listing, watched.values(), gpunodes, settings.reconcilers),
            *(each.run() for each in (*watched.values(), gpunodes, *tested.values())),
            quarantines.run(),
            unowned.run(),
            _listen(settings, registry, stop),
        )


async def _work(
    pool: WorkerPool,
    listing: Awaitable[None],
    watched: Iterable[Reflector[Any]],
    gpunodes: Reflector[Any],
    size: int,
) -> None:
    """Work once all objects are known: with half of them the rest would seem to be missing.

    GPUNodes only show how workers communicate, so jobs do not wait for them for long.
    """
    await listing
    for reflector in watched:
        await reflector.synced.wait()
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(gpunodes.synced.wait(), GPUNODES_SECONDS)
    await pool.run(size)


async def _listen(settings: Settings, registry: kopf.OperatorRegistry, stop: asyncio.Event) -> None:
    """Run kopf until SIGTERM."""
    # kopf cancels every task that did not exist when it started: let the others start first.
    await asyncio.sleep(0)
    await kopf.operator(
        registry=registry,
        settings=handlers.settings(),
        standalone=True,
        clusterwide=not settings.namespace,
        namespaces=[settings.namespace] if settings.namespace else [],
        stop_flag=stop,
    )


async def _until_first_ends(*parts: Coroutine[Any, Any, None]) -> None:
    tasks = [asyncio.create_task(part) for part in parts]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await _cancel(*tasks)
    for task in done:
        task.result()


async def _cancel(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
