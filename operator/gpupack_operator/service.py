# SPDX-License-Identifier: Apache-2.0
"""The process: wait for the Lease, listen, work, and stop as a whole.

    acquire ─► kopf (watches) · workers · hold the Lease · audit ─► the first that ends ends all
                                                                ─► release

SIGTERM ends kopf, and with it everything in order; the Lease is released so that a successor takes
over at once. Whatever else ends one of the tasks is an error and the process's exit code.
"""

import asyncio
import contextlib
import logging
import signal
from collections.abc import Coroutine, Mapping
from typing import Any

import kopf

from gpupack_kube.client import Api
from gpupack_kube.leader import Election
from gpupack_operator import handlers, liveness
from gpupack_operator.actions import Actor
from gpupack_operator.audit import Audit
from gpupack_operator.crew import Crew
from gpupack_operator.fencing import Fence
from gpupack_operator.hearing import Ear
from gpupack_operator.plans import PlanClient
from gpupack_operator.reconcile import Reconciler
from gpupack_operator.settings import Settings
from gpupack_operator.waitlist import Key, Waitlist
from gpupack_operator.work import WorkQueue
from gpupack_operator.world import World

log = logging.getLogger(__name__)


async def serve(settings: Settings, environ: Mapping[str, str]) -> None:
    """Run until SIGTERM.

    Raises:
        LeaseLost: another operator works now.
        WatchStale: a watch is dead.
    """
    beating = asyncio.create_task(liveness.beat(settings.heartbeat), name="heartbeat")
    try:
        async with Api.connect(environ) as api:
            election = _election(settings, api)
            if not await _elected(election):
                return
            try:
                await _lead(settings, environ, api, election)
            finally:
                await election.release()
    finally:
        await _cancelled(beating)


def _election(settings: Settings, api: Api) -> Election:
    lease = settings.lease
    return Election(
        api,
        lease.name,
        namespace=lease.namespace,
        holder=lease.holder,
        duration_seconds=lease.seconds,
    )


async def _elected(election: Election) -> bool:
    """Wait for the Lease, or for SIGTERM."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    acquiring = asyncio.create_task(election.acquire(), name="acquire")
    stopping = asyncio.create_task(stop.wait(), name="stop")
    done, _ = await asyncio.wait({acquiring, stopping}, return_when=asyncio.FIRST_COMPLETED)
    await _cancelled(acquiring, stopping)
    return acquiring in done


async def _lead(
    settings: Settings, environ: Mapping[str, str], api: Api, election: Election
) -> None:
    queue: WorkQueue[Key] = WorkQueue(asyncio.get_running_loop().call_later)
    world, waitlist = World(), Waitlist(queue.add)
    plans = PlanClient(settings.plan, on_free=waitlist.next_turn)
    actor = Actor(api, plans, defaults=settings.pods, reporter=settings.lease.holder)
    fence = Fence(api, namespace=settings.lease.namespace)
    reconciler = Reconciler(api, actor, world, waitlist, settings.limits, fence)
    crew = Crew(queue, reconciler.reconcile)
    audit = Audit(api, world, namespace=settings.namespace)
    in_cluster = "KUBERNETES_SERVICE_HOST" in environ and "KUBECONFIG" not in environ
    registry = handlers.registry(world, Ear(queue, world, waitlist), in_cluster=in_cluster)
    async with contextlib.aclosing(plans):
        await _until_first_ends(
            election.hold(),
            audit.run(lambda: crew.add_all(world.keys())),
            crew.run(settings.reconcilers),
            _listen(settings, registry),
        )


async def _listen(settings: Settings, registry: kopf.OperatorRegistry) -> None:
    """Run kopf; ends after SIGTERM."""
    # kopf cancels every task that it did not find when it started: let the others start first.
    await asyncio.sleep(0)
    await kopf.operator(
        registry=registry,
        settings=handlers.settings(),
        standalone=True,
        clusterwide=not settings.namespace,
        namespaces=[settings.namespace] if settings.namespace else [],
    )


async def _until_first_ends(*parts: Coroutine[Any, Any, None]) -> None:
    tasks = [asyncio.create_task(part) for part in parts]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await _cancelled(*tasks)
    for task in done:
        task.result()


async def _cancelled(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
