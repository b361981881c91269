# SPDX-License-Identifier: Apache-2.0
"""What the cluster decides: pods through the API server, seen by a watch.

A pod that does not fit is deleted as soon as kube-scheduler says so. A deleted pod is gone when the
watch says so: it has been sent to the extender by then too, and kube-scheduler reads the next pod,
and the extender hears of it, later than that.
"""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence

from truth_jobs import pod
from truth_outcomes import Assignment

from gpupack_crds import names
from gpupack_crds.devices import decode_devices
from gpupack_kubeclient import objects
from gpupack_kubeclient.client import Api, Event, decode
from gpupack_kubeclient.resources import PODS
from gpupack_simulator import Job

PATIENCE_SECONDS = 120.0
UNSCHEDULABLE = "Unschedulable"


class Watched:
    """The pods of a namespace as its watch shows them."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.settled = defaultdict(loop.create_future)
        """By name: Place, or None where kube-scheduler found none."""
        self.gone = defaultdict(loop.create_future)

    def see(self, kind: str, seen: objects.Pod) -> None:
        """An event."""
        name = seen.metadata.name
        if kind == "DELETED":
            _settle(self.gone[name], result=True)
        elif seen.spec.node_name:
            _settle(self.settled[name], result=place_of(seen))
        elif any(_is_refusal(condition) for condition in seen.status.conditions):
            _settle(self.settled[name], result=None)

    def forget(self, name: str) -> None:
        """It is gone."""
        del self.settled[name], self.gone[name]


class ClusterDecider:
    """A Decider.

    Pods that come together are created in their order, and kube-scheduler takes them one by one in
    that order. No pod leaves in between, so a pod that was refused would be refused again.
    """

    def __init__(self, api: Api, namespace: str, watched: Watched) -> None:
        self._api, self._namespace, self._watched = api, namespace, watched

    async def arrive(self, jobs: Sequence[Job]) -> list[Assignment | None]:
        """Create the pods and see them bound, or refused and deleted."""
        for job in jobs:
            await self._api.create(PODS, pod(job), namespace=self._namespace)
        async with asyncio.timeout(PATIENCE_SECONDS):
            places = [await self._watched.settled[job.id] for job in jobs]
        refused = [job for job, place in zip(jobs, places, strict=True) if place is None]
        await self.depart(refused)
        return places

    async def depart(self, jobs: Sequence[Job]) -> None:
        """Delete the pods and see that they are gone."""
        await asyncio.gather(*(self._depart(job) for job in jobs))

    async def _depart(self, job: Job) -> None:
        await self._api.delete(PODS, job.id, namespace=self._namespace)
        async with asyncio.timeout(PATIENCE_SECONDS):
            await self._watched.gone[job.id]
        self._watched.forget(job.id)


@contextlib.asynccontextmanager
async def deciding(api: Api, namespace: str) -> AsyncIterator[ClusterDecider]:
    """The cluster as a Decider, in an empty namespace; where the watch fails, all does."""
    listed, _ = await api.page(PODS, namespace=namespace)
    watched = Watched()
    async with asyncio.TaskGroup() as group:
        watching = _watch(api, namespace, listed.resource_version, watched)
        task = group.create_task(watching)
        yield ClusterDecider(api, namespace, watched)
        task.cancel()


async def _watch(api: Api, namespace: str, version: str, watched: Watched) -> None:
    """Watch on from where a stream ended, which the server ends at its own times."""
    while True:
        async for event in api.watch(PODS, namespace=namespace, resourceVersion=version):
            if not isinstance(event, Event):
                continue
            version = decode(event.object, objects.Object).metadata.resource_version
            if event.type != "BOOKMARK":
                watched.see(event.type, decode(event.object, objects.Pod))


def place_of(bound: objects.Pod) -> Assignment:
    """Node and devices, as the Binding wrote them."""
    held = decode_devices(bound.metadata.annotations[names.DEVICES_ANNOTATION])
    return Assignment(bound.spec.node_name, held)


def _is_refusal(condition: objects.Condition) -> bool:
    return condition.type == "PodScheduled" and condition.reason == UNSCHEDULABLE


def _settle(future: asyncio.Future, *, result: object) -> None:
    """The first word counts: a pod that was refused is deleted, whatever comes then."""
    if not future.done():
        future.set_result(result)
