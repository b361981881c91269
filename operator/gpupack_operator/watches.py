# SPDX-License-Identifier: Apache-2.0
"""What the operator keeps of the cluster, and who keeps it up to date.

    GPUJobs                   listed once at start, then kopf's events (handlers)
    their Jobs and pods       reflectors, by label

What an event says is not looked at; it only tells which GPUJob to look at.
"""

import asyncio
from typing import Any, TypeAlias

from gpupack_crds import names
from gpupack_crds.kinds import GPUJOBS
from gpupack_kube.client import Api
from gpupack_kube.objects import Object
from gpupack_kube.reflector import Reflector
from gpupack_kube.resources import JOBS, PODS
from gpupack_operator.cache import READABLE_GPUJOBS, Cache, CachedGpuJob, ReadableGpuJob
from gpupack_operator.event_router import EventRouter
from gpupack_operator.index import Index
from gpupack_operator.plan_line import Key
from gpupack_operator.trials import Trials

OURS = {"labelSelector": names.JOB_LABEL}

GpuJobs: TypeAlias = Index[ReadableGpuJob, CachedGpuJob]


class InitialList:
    """A reflector's store for one list: it adds to the index what the list holds.

    Nothing is taken away: what is not in the list is younger, and kopf has heard of it.
    """

    def __init__(self, gpujobs: GpuJobs) -> None:
        self._gpujobs = gpujobs

    def replace(self, items: list[ReadableGpuJob]) -> None:
        """The list came."""
        for item in items:
            self.upsert(item)

    def upsert(self, item: ReadableGpuJob) -> None:
        """A GPUJob changed before the watch ended."""
        self._gpujobs.upsert(item)

    def remove(self, item: ReadableGpuJob) -> None:
        """A GPUJob went before the watch ended."""
        self._gpujobs.remove(item)


def gpujobs_of(cache: Cache, router: EventRouter) -> GpuJobs:
    """All GPUJobs; `cache` reads them, `router` hears of each change."""
    found: GpuJobs = Index(_name_of, ReadableGpuJob.cached, router.gpujob)
    cache.gpujobs = found
    return found


async def list_once(api: Api, gpujobs: GpuJobs, *, namespace: str) -> None:
    """Fill the index. kopf does not say when it has heard of everything that there is."""
    reflector = Reflector(api, READABLE_GPUJOBS, InitialList(gpujobs), namespace=namespace)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(reflector.run())
        await reflector.synced.wait()
        running.cancel()


def reflectors(
    api: Api, cache: Cache, router: EventRouter, *, namespace: str
) -> dict[str, Reflector[Any]]:
    """The watches of everything but GPUJobs; `cache` is filled by them, `router` hears of it."""
    jobs: Index[Any, Any] = Index(_gpujob_of, lambda job: job, router.job)
    pods: Index[Any, Any] = Index(_gpujob_of, lambda pod: pod, router.pod)
    cache.jobs, cache.pods = jobs, pods
    return {
        "jobs": Reflector(api, JOBS, jobs, namespace=namespace, selectors=OURS),
        "pods": Reflector(api, PODS, pods, namespace=namespace, selectors=OURS),
    }


def trials_of(api: Api, trials: Trials | None) -> dict[str, Reflector[Any]]:
    """The watch of the jobs by which GPUs are tried, where they are."""
    if trials is None:
        return {}
    return {"trials": Reflector(api, GPUJOBS, trials, namespace=names.ACCEPTANCE_NAMESPACE)}


def _name_of(job: Object) -> Key:
    return Key(*job.key)


def _gpujob_of(child: Object) -> str:
    return child.metadata.labels.get(names.JOB_UID_LABEL, "")
