# SPDX-License-Identifier: Apache-2.0
"""What the operator keeps of the cluster, and who keeps it up to date.

    GPUJobs                   listed once at start, then kopf's events (handlers)
    their Jobs and pods       reflectors, by label
    GPUNodes                  a reflector that keeps nothing: GPUs may be free now

What an event says is not looked at; it only tells which GPUJob to look at.
"""

import asyncio
from typing import Any, TypeAlias

from gpupack_crds import names
from gpupack_crds.kinds import GPUNODES
from gpupack_kube.client import Api
from gpupack_kube.objects import Object
from gpupack_kube.reflector import Reflector
from gpupack_kube.resources import JOBS, PODS, Resource
from gpupack_operator.hearing import Ear
from gpupack_operator.index import Index
from gpupack_operator.waitlist import Key
from gpupack_operator.world import READABLE_GPUJOBS, ReadableGpuJob, Seen, World

ANY_GPUNODES = Resource(GPUNODES.prefix, GPUNODES.plural, Object)
OURS = {"labelSelector": names.JOB_LABEL}

GpuJobs: TypeAlias = Index[ReadableGpuJob, Seen]


class Bell:
    """A reflector's store that keeps nothing: GPUs may be free now that were not."""

    def __init__(self, ear: Ear) -> None:
        self._ear = ear

    def replace(self, _: list[Object]) -> None:
        """A list came."""
        self._ear.freed()

    def upsert(self, _: Object) -> None:
        """A node's GPUs changed."""
        self._ear.freed()

    def remove(self, _: Object) -> None:
        """A node is gone."""
        self._ear.freed()


class Beginning:
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


def gpujobs_of(world: World, ear: Ear) -> GpuJobs:
    """All GPUJobs; `world` reads them, `ear` hears of each change."""
    found: GpuJobs = Index(_name_of, ReadableGpuJob.seen, ear.gpujob)
    world.gpujobs = found
    return found


async def list_once(api: Api, gpujobs: GpuJobs, *, namespace: str) -> None:
    """Fill the index. kopf does not say when it has heard of everything that there is."""
    reflector = Reflector(api, READABLE_GPUJOBS, Beginning(gpujobs), namespace=namespace)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(reflector.run())
        await reflector.synced.wait()
        running.cancel()


def reflectors(api: Api, world: World, ear: Ear, *, namespace: str) -> tuple[Reflector[Any], ...]:
    """The watches of everything but GPUJobs; `world` is filled by them, `ear` hears of it."""
    jobs: Index[Any, Any] = Index(_gpujob_of, lambda job: job, ear.job)
    pods: Index[Any, Any] = Index(_gpujob_of, lambda pod: pod, ear.pod)
    world.jobs, world.pods = jobs, pods
    return (
        Reflector(api, JOBS, jobs, namespace=namespace, selectors=OURS),
        Reflector(api, PODS, pods, namespace=namespace, selectors=OURS),
        Reflector(api, ANY_GPUNODES, Bell(ear)),
    )


def _name_of(job: Object) -> Key:
    return Key(*job.key)


def _gpujob_of(child: Object) -> str:
    return child.metadata.labels.get(names.JOB_UID_LABEL, "")
