# SPDX-License-Identifier: Apache-2.0
"""What the cluster decides: pods through the API server, seen by a watch.

A pod that does not fit stays behind its scheduling gate. It is refused when its condition says so,
in the queue's words, and is then deleted. A deleted pod is gone when the watch says so: the
extender, too, gets that event before the next pod's.
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
UNSCHEDULABLE, GATED = "Unschedulable", "SchedulingGated"
REFUSALS = ("does not fit: ", "can never start on these nodes: ")
"""How the queue's message about a gated pod begins that fits now on no node."""


class Watched:
    """The pods of a namespace as its watch shows them."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.settled = defaultdict(loop.create_future)
        """By name: Assignment, or None where the pod was refused."""
        self.gone = defaultdict(loop.create_future)
        """By name: the node to which the pod was bound when it was deleted; empty: to none."""

    def see(self, kind: str, seen: objects.Pod) -> None:
        """An event."""
        name = seen.metadata.name
        if kind == "DELETED":
            _settle(self.gone[name], result=seen.spec.node_name)
        elif seen.spec.node_name:
            _settle(self.settled[name], result=place_of(seen))
        elif any(_is_refusal(condition) for condition in seen.status.conditions):
            _settle(self.settled[name], result=None)

    def forget(self, name: str) -> None:
        """It is gone."""
        del self.settled[name], self.gone[name]


class ClusterDecider:
    """A Decider.

    Each pod is created when the outcome of the one before is known. Creation times have seconds,
    and the queue orders pods of one second by their UIDs, which are random: pods that are created
    together have no order that the simulator could follow.
    """

    def __init__(self, api: Api, namespace: str, watched: Watched) -> None:
        self._api, self._namespace, self._watched = api, namespace, watched

    async def arrive(self, jobs: Sequence[Job]) -> list[Assignment | None]:
        """Create the pods one after the other; see each bound, or refused and deleted."""
        return [await self._arrive(job) for job in jobs]

    async def depart(self, jobs: Sequence[Job]) -> None:
        """Delete the pods and see that they are gone."""
        await asyncio.gather(*(self._depart(job) for job in jobs))

    async def _arrive(self, job: Job) -> Assignment | None:
        await self._api.create(PODS, pod(job), namespace=self._namespace)
        async with asyncio.timeout(PATIENCE_SECONDS):
            place = await self._watched.settled[job.id]
        if place is None:
            node = await self._depart(job)
            assert not node, f"{job.id} was refused, and bound to {node} before it was deleted"
        return place

    async def _depart(self, job: Job) -> str:
        """Return the node to which it was bound; empty: to none."""
        await self._api.delete(PODS, job.id, namespace=self._namespace)
        async with asyncio.timeout(PATIENCE_SECONDS):
            node = await self._watched.gone[job.id]
        self._watched.forget(job.id)
        return node


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
    """Tell whether the pod fits nowhere: kube-scheduler says so, or the queue of a gated pod.

    The API server's own message of a gated pod says nothing, nor does one about its turn.
    """
    if condition.type != "PodScheduled":
        return False
    is_gated = condition.reason == GATED
    return condition.reason == UNSCHEDULABLE or (
        is_gated and condition.message.startswith(REFUSALS)
    )


def _settle(future: asyncio.Future, *, result: object) -> None:
    """The first word counts: a pod that was refused is deleted, whatever comes then."""
    if not future.done():
        future.set_result(result)
