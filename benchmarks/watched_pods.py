# SPDX-License-Identifier: Apache-2.0
"""Records when a watch first shows the pods of a namespace, and their nodes."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable

from gpupack_kubeclient import objects
from gpupack_kubeclient.client import Api, Event, decode
from gpupack_kubeclient.resources import PODS


class Seen:
    """Times by pod UID, of this process's monotonic clock."""

    def __init__(self) -> None:
        self.created: dict[str, float] = {}
        self.bound: dict[str, float] = {}
        self.nodes: dict[str, str] = {}
        self.present: dict[str, objects.Pod] = {}
        self._changed = asyncio.Event()

    def see(self, kind: str, pod: objects.Pod) -> None:
        """Record an event."""
        now, uid = time.monotonic(), pod.metadata.uid
        self._changed.set()
        if kind == "DELETED":
            self.present.pop(uid, None)
            return
        self.present[uid] = pod
        self.created.setdefault(uid, now)
        if pod.spec.node_name:
            self.bound.setdefault(uid, now)
            self.nodes[uid] = pod.spec.node_name

    async def until(self, is_so: Callable[[], bool], *, seconds: float) -> None:
        """Wait for a condition.

        Raises:
            TimeoutError: it did not hold in time.
        """
        async with asyncio.timeout(seconds):
            while not is_so():
                self._changed.clear()
                await self._changed.wait()


@contextlib.asynccontextmanager
async def watched(api: Api, namespace: str) -> AsyncIterator[Seen]:
    """Record from now on, for as long as the context lasts; an error of the watch is raised."""
    listed, _ = await api.page(PODS, namespace=namespace)
    seen = Seen()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(_follow(api, namespace, listed.resource_version, seen))
        yield seen
        task.cancel()


async def _follow(api: Api, namespace: str, version: str, seen: Seen) -> None:
    """Watch, and continue whenever the server ends a stream."""
    while True:
        async for event in api.watch(PODS, namespace=namespace, resourceVersion=version):
            if isinstance(event, Event):
                version = decode(event.object, objects.Object).metadata.resource_version
                if event.type != "BOOKMARK":
                    seen.see(event.type, decode(event.object, objects.Pod))
