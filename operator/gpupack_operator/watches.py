# SPDX-License-Identifier: Apache-2.0
"""Objects of the cluster that the operator keeps, and the watches that update them.

    GPUJobs                   listed once at start, then kopf's events (handlers)
    their Jobs and pods       reflectors, by label
    GPUQuotas, GPUCohorts     reflectors

The content of an event is not used; it only shows which GPUJob to reconcile.
"""

import asyncio
from typing import Any, TypeAlias

from gpupack_crds import names
from gpupack_crds.kinds import GPUCOHORTS, GPUJOBS, GPUQUOTAS
from gpupack_kubeclient.client import Api
from gpupack_kubeclient.objects import Job, Object, Pod
from gpupack_kubeclient.reflector import Reflector
from gpupack_kubeclient.resources import JOBS, PODS
from gpupack_operator.acceptance_tests import AcceptanceTests
from gpupack_operator.cache import READABLE_GPUJOBS, Cache, CachedGpuJob, ReadableGpuJob
from gpupack_operator.event_router import EventRouter
from gpupack_operator.index import Index
from gpupack_operator.run_limits import RunLimits
from gpupack_operator.waiting_jobs import Key

OWN_LABEL = {"labelSelector": names.JOB_LABEL}

GpuJobs: TypeAlias = Index[CachedGpuJob]


class InitialList:
    """Reflector's store for one list: it adds the list's objects to the index.

    It removes nothing: an object that is not in the list is newer, and kopf has received it.
    """

    def __init__(self, gpujobs: GpuJobs) -> None:
        self._gpujobs = gpujobs

    def replace(self, items: list[ReadableGpuJob]) -> None:
        """Add the objects of the list."""
        for item in items:
            self.upsert(item)

    def upsert(self, item: ReadableGpuJob) -> None:
        """Store a GPUJob that changed before the watch ended."""
        self._gpujobs.upsert(item.cached)

    def remove(self, item: ReadableGpuJob) -> None:
        """Remove a GPUJob that was deleted before the watch ended."""
        self._gpujobs.remove(item.cached)


def gpujobs_of(cache: Cache, router: EventRouter) -> GpuJobs:
    """Return the index of all GPUJobs; `cache` reads it, and `router` receives each change."""
    found: GpuJobs = Index(lambda seen: Key(*seen.job.key), router.on_gpujob)
    cache.gpujobs = found
    return found


async def list_once(api: Api, gpujobs: GpuJobs, *, namespace: str) -> None:
    """Fill the index; kopf does not report when it has processed all existing objects."""
    reflector = Reflector(api, READABLE_GPUJOBS, InitialList(gpujobs), namespace=namespace)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(reflector.run())
        await reflector.synced.wait()
        running.cancel()


def reflectors(
    api: Api, cache: Cache, router: EventRouter, *, namespace: str
) -> dict[str, Reflector[Any]]:
    """Return the watches of all kinds but GPUJobs; they fill `cache` and notify `router`."""
    jobs: Index[Job] = Index(_gpujob_of, router.on_job)
    pods: Index[Pod] = Index(_gpujob_of, router.on_pod)
    cache.jobs, cache.pods = jobs, pods
    return {
        "jobs": Reflector(api, JOBS, jobs, namespace=namespace, selectors=OWN_LABEL),
        "pods": Reflector(api, PODS, pods, namespace=namespace, selectors=OWN_LABEL),
    }


def run_limit_watches(api: Api, limits: RunLimits, *, namespace: str) -> dict[str, Reflector[Any]]:
    """Return the watches of GPUQuotas and GPUCohorts, which limit how long jobs run."""
    return {
        "gpuquotas": Reflector(api, GPUQUOTAS, limits.quotas, namespace=namespace),
        "gpucohorts": Reflector(api, GPUCOHORTS, limits.cohorts),
    }


def acceptance_test_watches(api: Api, tests: AcceptanceTests | None) -> dict[str, Reflector[Any]]:
    """Return the watch of the jobs that test GPUs, if GPUs are tested."""
    if tests is None:
        return {}
    return {
        "acceptance-tests": Reflector(api, GPUJOBS, tests, namespace=names.ACCEPTANCE_NAMESPACE)
    }


def _gpujob_of(child: Object) -> str:
    return child.metadata.labels.get(names.JOB_UID_LABEL, "")
