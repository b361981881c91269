# SPDX-License-Identifier: Apache-2.0
"""Follows a storm from outside: a thread with its own watches of pods, GPUJobs and nodes."""

import asyncio
import contextlib
import dataclasses
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from queue_judge import Judge
from storm_views import read_job, read_pod

from gpupack_kubeclient import errors, objects
from gpupack_kubeclient.client import Api, Event
from gpupack_kubeclient.resources import NODES, PODS, Resource

GPUJOBS = Resource("/apis/gpupack.dev/v1beta1", "gpujobs", objects.Object)
PAGE = "500"
RETRY_SECONDS = 0.3
TICK_SECONDS = 1.0


@dataclasses.dataclass
class Watcher:
    """Passes what it sees to the judge. Read the judge through `look`: another thread writes it.

    Attributes:
        events: number of events seen.
        lists: number of lists, since a watch could not continue.
    """

    judge: Judge
    priorities: Mapping[str, int]
    events: int = 0
    lists: int = 0
    lock: threading.Lock = dataclasses.field(default_factory=threading.Lock)
    _known_nodes: set[str] = dataclasses.field(default_factory=set)

    def look(self, question: Callable[[Judge], Any]) -> Any:
        """Return the answer of the judge, without events in between."""
        with self.lock:
            return question(self.judge)

    async def watch(self, api: Api) -> None:
        """Follow all kinds for ever."""
        async with asyncio.TaskGroup() as group:
            group.create_task(_follow(api, PODS, self.on_pods, self.on_pod))
            group.create_task(_follow(api, GPUJOBS, self.on_jobs, self.on_job))
            group.create_task(_follow(api, NODES, self._nodes, self._node))
            group.create_task(self._tick())

    def on_pods(self, listed: list[Any]) -> None:
        """Those that hold nothing any more go first: others may have their GPUs by now."""
        with self.lock:
            self.lists += 1
            self.judge.preemptions.pods_listed(time.time())
            pods = [read_pod(each) for each in listed]
            uids = {pod.uid for pod in pods}
            for pod in [pod for uid, pod in self.judge.pods.items() if uid not in uids]:
                self.judge.pod(pod, time.time(), gone=True)
            for pod in sorted(pods, key=lambda pod: bool(pod.holds)):
                self.judge.pod(pod, time.time())

    def on_pod(self, kind: str, seen: Any) -> None:
        with self.lock:
            self.events += 1
            self.judge.pod(read_pod(seen), time.time(), gone=kind == "DELETED")

    def on_jobs(self, listed: list[Any]) -> None:
        """Pass preemptors to the judge first: their victims are judged by them."""
        with self.lock:
            self.lists += 1
            jobs = [read_job(each, self.priorities) for each in listed]
            uids = {job.uid for job in jobs}
            for job in sorted(jobs, key=lambda job: not job.victims):
                self.judge.job(job, time.time(), blind=True)
            for job in [job for uid, job in self.judge.jobs.items() if uid not in uids]:
                self.judge.job(job, time.time(), gone=True)

    def on_job(self, kind: str, seen: Any) -> None:
        with self.lock:
            self.events += 1
            job = read_job(seen, self.priorities)
            self.judge.job(job, time.time(), gone=kind == "DELETED")

    def _nodes(self, listed: list[Any]) -> None:
        """Nothing runs on a node that was taken away, as an autoscaler does."""
        names = {node["metadata"]["name"] for node in listed}
        with self.lock:
            for name in self._known_nodes - names:
                self.judge.taken_away(name, time.time())
            for name in names:
                self.judge.there(name)
        self._known_nodes = names

    def _node(self, kind: str, seen: Any) -> None:
        name = seen["metadata"]["name"]
        with self.lock:
            if kind == "DELETED":
                self._known_nodes.discard(name)
                self.judge.taken_away(name, time.time())
            elif name not in self._known_nodes:
                self._known_nodes.add(name)
                self.judge.there(name)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            with self.lock:
                self.judge.tick(time.time())


@contextlib.contextmanager
def watching(kubeconfig: Path, judge: Judge, priorities: Mapping[str, int]) -> Iterator[Watcher]:
    """Watch until the block ends; an error of the watcher is raised there."""
    watcher, stop = Watcher(judge, priorities), threading.Event()
    failures: list[BaseException] = []

    async def until_stopped() -> None:
        async with Api.connect({"KUBECONFIG": str(kubeconfig)}) as api:
            following = asyncio.create_task(watcher.watch(api))
            while not stop.is_set() and not following.done():
                await asyncio.sleep(0.2)
            following.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await following

    def run() -> None:
        try:
            asyncio.run(until_stopped())
        except Exception as error:  # noqa: BLE001 - whatever it is, the storm must not pass unwatched
            failures.append(error)

    thread = threading.Thread(target=run, name="watcher")
    thread.start()
    try:
        yield watcher
    finally:
        stop.set()
        thread.join()
    if failures:
        raise failures[0]


async def _follow(
    api: Api,
    resource: Resource[Any],
    listed: Callable[[list[Any]], None],
    changed: Callable[[str, Any], None],
) -> None:
    """Tell of all objects of a kind, then of every change; of all again where some were missed."""
    version = ""
    while True:
        try:
            if not version:
                version, found = await _list(api, resource)
                listed(found)
            async for event in api.watch(resource, resourceVersion=version):
                if isinstance(event, Event):
                    seen = msgspec.json.decode(event.object)
                    version = seen["metadata"]["resourceVersion"]
                    if event.type != "BOOKMARK":
                        changed(event.type, seen)
        except errors.Expired:
            version = ""
        except errors.KubeError:
            await asyncio.sleep(RETRY_SECONDS)


async def _list(api: Api, resource: Resource[Any]) -> tuple[str, list[Any]]:
    found: list[Any] = []
    query = {"limit": PAGE}
    while True:
        page = await api.raw_page(resource, **query)
        found += [msgspec.json.decode(item) for item in page.items or ()]
        if not page.metadata.continue_:
            return page.metadata.resource_version, found
        query["continue"] = page.metadata.continue_
