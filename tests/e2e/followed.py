# SPDX-License-Identifier: Apache-2.0
"""Follows GPUJobs and pods of a namespace, and GPU holders, by watches in a thread of its own.

A kubectl for each look would cost more than the tested work.
"""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from harness import Kube, StillWaiting

from gpupack_crds.kinds import GPUJOBS, GPUNODES, GpuJob, GpuNode
from gpupack_kubeclient import objects
from gpupack_kubeclient.client import Api
from gpupack_kubeclient.reflector import Reflector
from gpupack_kubeclient.resources import PODS

STOP_LOOK_SECONDS = 0.1

T = TypeVar("T", bound=objects.Object)


class Followed:
    """The state that the watches have reported; read from the test's thread."""

    def __init__(self) -> None:
        self._changes = threading.Condition()
        self._changed_at = time.monotonic()
        self._jobs = _Objects[GpuJob](self)
        self._pods = _Objects[objects.Pod](self)
        self._nodes = _Objects[GpuNode](self)

    def jobs(self) -> dict[str, GpuJob]:
        """Return the GPUJobs by name."""
        with self._changes:
            return dict(self._jobs.by_name)

    def pods(self) -> list[objects.Pod]:
        """Return all pods of the namespace."""
        with self._changes:
            return list(self._pods.by_name.values())

    def lingering(self) -> bool:
        """Return whether agents report processes of deleted pods that still hold GPUs."""
        with self._changes:
            nodes = list(self._nodes.by_name.values())
        return any(node.status.mode == "owned" and node.status.holders for node in nodes)

    def wait(self, seen: Callable[[], bool], *, seconds: float, calm: float, what: str) -> None:
        """Wait until a condition holds and nothing has changed for `calm` seconds.

        Raises:
            StillWaiting: it did not hold within `seconds`.
        """
        ends = time.monotonic() + seconds
        with self._changes:
            while (now := time.monotonic()) < ends:
                left = self._changed_at + calm - now if seen() else ends - now
                if left <= 0:
                    return
                self._changes.wait(min(left, ends - now))
        raise StillWaiting(f"not within {seconds} s: {what}")

    async def follow(self, api: Api, namespace: str) -> None:
        """Follow the watches without end."""
        async with asyncio.TaskGroup() as group:
            group.create_task(Reflector(api, GPUJOBS, self._jobs, namespace=namespace).run())
            group.create_task(Reflector(api, PODS, self._pods, namespace=namespace).run())
            group.create_task(Reflector(api, GPUNODES, self._nodes).run())

    @contextlib.contextmanager
    def changing(self) -> Iterator[None]:
        """Notify waiting threads of what changes in the block."""
        with self._changes:
            yield
            self._changed_at = time.monotonic()
            self._changes.notify_all()


class _Objects(Generic[T]):
    """The store of a reflector."""

    def __init__(self, followed: Followed) -> None:
        self._followed = followed
        self.by_name: dict[str, T] = {}

    def replace(self, items: list[T], /) -> None:
        with self._followed.changing():
            self.by_name = {item.metadata.name: item for item in items}

    def upsert(self, item: T, /) -> None:
        with self._followed.changing():
            self.by_name[item.metadata.name] = item

    def remove(self, item: T, /) -> None:
        with self._followed.changing():
            self.by_name.pop(item.metadata.name, None)


@contextlib.contextmanager
def following(kube: Kube) -> Iterator[Followed]:
    """Follow until the block ends."""
    followed, stop = Followed(), threading.Event()

    async def until_stopped() -> None:
        async with Api.connect({"KUBECONFIG": str(kube.kubeconfig)}) as api:
            task = asyncio.create_task(followed.follow(api, kube.namespace))
            while not stop.is_set() and not task.done():
                await asyncio.sleep(STOP_LOOK_SECONDS)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    thread = threading.Thread(target=asyncio.run, args=(until_stopped(),), name="followed")
    thread.start()
    try:
        yield followed
    finally:
        stop.set()
        thread.join()
