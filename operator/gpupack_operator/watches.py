# SPDX-License-Identifier: Apache-2.0
"""What the operator keeps of the cluster, and who keeps it up to date.

    GPUJobs                   listed once at start, then kopf's events (handlers)
    their Jobs and pods       reflectors, by label
    GPUNodes                  a reflector: GPUs may be free now

What an event says is not looked at; it only tells which GPUJob to look at.
"""

import asyncio
from typing import Any, TypeAlias

import msgspec

from gpupack_crds import names
from gpupack_crds.gpunode import GpuNodeStatus
from gpupack_crds.kinds import GPUNODES, GpuNode
from gpupack_kube.client import Api
from gpupack_kube.objects import Object
from gpupack_kube.reflector import Reflector
from gpupack_kube.resources import JOBS, PODS
from gpupack_operator.cache import READABLE_GPUJOBS, Cache, CachedGpuJob, ReadableGpuJob
from gpupack_operator.event_router import EventRouter
from gpupack_operator.index import Index
from gpupack_operator.waitlist import Key

OURS = {"labelSelector": names.JOB_LABEL}

GpuJobs: TypeAlias = Index[ReadableGpuJob, CachedGpuJob]


class CapacityTrigger:
    """A reflector's store: GPUs may be free now that were not.

    Of who uses a node's GPUs only this matters: more of them are free. That our own workers have
    ended is heard of from their pods before; that other pods have, from GPUNode alone.
    """

    def __init__(self, router: EventRouter) -> None:
        self._router = router
        self._known: dict[str, GpuNodeStatus] = {}

    def replace(self, items: list[GpuNode]) -> None:
        """A list came."""
        self._known = {item.metadata.name: item.status for item in items}
        self._router.freed()

    def upsert(self, item: GpuNode) -> None:
        """A GPUNode changed, perhaps in what it can take."""
        known = self._known.get(item.metadata.name)
        self._known[item.metadata.name] = item.status
        if (
            known is None
            or item.status.free > known.free
            or _capacity(item.status) != _capacity(known)
        ):
            self._router.freed()

    def remove(self, item: GpuNode) -> None:
        """A node is gone."""
        self._known.pop(item.metadata.name, None)
        self._router.freed()


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
        "gpunodes": Reflector(api, GPUNODES, CapacityTrigger(router)),
    }


def _capacity(status: GpuNodeStatus) -> GpuNodeStatus:
    """The status without what tells of use, and of when."""
    return msgspec.structs.replace(status, free=0, shared=0, held=0, held_by="", observed_at=None)


def _name_of(job: Object) -> Key:
    return Key(*job.key)


def _gpujob_of(child: Object) -> str:
    return child.metadata.labels.get(names.JOB_UID_LABEL, "")
