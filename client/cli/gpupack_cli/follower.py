# SPDX-License-Identifier: Apache-2.0
"""A follower of a job: its workers' output and its state, over attempts and lost connections.

    watch of the GPUJob ─► phase and reason on stderr ─┐
    watch of its pods ─► a WorkerLog for each ─► stdout ├─► the job has ended, and so have the logs
                                                         └─► how: its phase, and its workers' status

A watch that ends, or whose connection is lost, is opened again, from the state at that time:
nothing depends on having seen every event.
"""

import asyncio
import contextlib
import datetime as dt
from collections.abc import Callable
from typing import Final, TypeVar

from gpupack_cli.chosen_workers import ChosenWorkers
from gpupack_cli.log_sink import LogSink
from gpupack_cli.notes import note
from gpupack_cli.worker import Worker, workers_of
from gpupack_cli.worker_log import TRANSIENT_ERRORS, WorkerLog, raise_permanent
from gpupack_crds import names
from gpupack_crds.kinds import GPUJOBS, GpuJob
from gpupack_kubeclient import errors, listing, objects
from gpupack_kubeclient.client import Api, Event, decode
from gpupack_kubeclient.objects import Pod
from gpupack_kubeclient.resources import PODS, Resource

T = TypeVar("T", bound=objects.Object)

LATEST: Final = dt.datetime.max.replace(tzinfo=dt.UTC)
LOST_PAUSE_SECONDS: Final = 1.0
LOGS_SECONDS: Final = 10.0
"""Seconds for which logs may continue after the job has ended."""


class Follower:
    """A follower of one job.

    Args:
        api: the API server.
        job: last known state of the job.
        sink: gets the workers' lines.
        workers: workers whose logs are shown; empty: all, or of many the first.
        tail: number of last lines at which each log starts; None: the first line.
    """

    def __init__(
        self,
        api: Api,
        job: GpuJob,
        sink: LogSink,
        *,
        workers: frozenset[int] = frozenset(),
        tail: int | None = None,
    ) -> None:
        self._api, self.job, self._sink = api, job, sink
        self._tail = tail
        self._chosen = ChosenWorkers.of(job.spec, workers)
        self._workers: dict[tuple[str, str], Worker] = {}
        """Last known state of workers by key, including those whose pods are gone."""
        self._gone: set[str] = set()
        """UIDs of deleted pods."""
        self._logs: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._reported = ("", "", "")
        self._job_ended = asyncio.Event()
        self._lost = False
        """Whether it was reported that the API server does not answer."""

    async def follow(self) -> GpuJob:
        """Follow until the job has ended and its logs are written; return the job.

        Raises:
            NotFound: the job was deleted.
            KubeError: the job may not be watched, or its logs not be read.
        """
        async with asyncio.TaskGroup() as group:
            watches = [
                group.create_task(self._watch_job()),
                group.create_task(self._watch_pods(group)),
            ]
            self._see(self.job)
            await self._job_ended.wait()
            await self._read_pods(group)
            await self._wait_for_logs()
            for task in (*watches, *self._logs.values()):
                task.cancel()
        return self.job

    @property
    def status(self) -> int:
        """The exit code of the job: of its last attempt, the first that is not 0."""
        seen = self._workers.values()
        last = max((each.attempt for each in seen), default=0)
        failed = [each for each in seen if each.attempt == last and each.exit_status]
        return next((each.exit_status or 0 for each in sorted(failed, key=_by_end)), 0)

    async def _watch_job(self) -> None:
        """Watch the job from the known version on; read it after each watch: it may be gone."""
        name = self.job.metadata.name
        while True:
            version = self.job.metadata.resource_version
            selector = {"fieldSelector": f"metadata.name={name}"}
            selector |= {"resourceVersion": version} if version else {}
            await self._watch(GPUJOBS, selector, self._see_job)
            await self._read_job()

    async def _read_job(self) -> None:
        metadata = self.job.metadata
        try:
            found = await self._api.get(GPUJOBS, metadata.name, namespace=metadata.namespace)
        except errors.NotFound as error:
            raise self._deleted() from error
        except TRANSIENT_ERRORS as error:
            raise_permanent(error)
            return
        self._see_same(found)

    async def _watch_pods(self, group: asyncio.TaskGroup) -> None:
        selector = {"labelSelector": f"{names.JOB_UID_LABEL}={self.job.metadata.uid}"}
        while True:
            await self._watch(PODS, selector, lambda event: self._see_pod(event, group))

    async def _watch(
        self, resource: Resource[T], selector: dict[str, str], see: Callable[[Event], None]
    ) -> None:
        """Run one watch, until it ends or breaks."""
        stream = self._api.watch(resource, namespace=self.job.metadata.namespace, **selector)
        try:
            async with contextlib.aclosing(stream):
                async for event in stream:
                    self._lost = False
                    if isinstance(event, Event) and event.type != "BOOKMARK":
                        see(event)
        except errors.Expired:
            return
        except TRANSIENT_ERRORS as error:
            raise_permanent(error)
            if not self._lost:
                signed_out = isinstance(error, errors.NotSignedIn)
                why = str(error) if signed_out else "the API server does not answer"
                note(f"{why}; retrying")
            self._lost = True
            await asyncio.sleep(LOST_PAUSE_SECONDS)

    def _see_job(self, event: Event) -> None:
        job = decode(event.object, GpuJob)
        if event.type == "DELETED":
            raise self._deleted()
        self._see_same(job)

    def _see_same(self, job: GpuJob) -> None:
        """Update the job; another job of that name means that this one is gone."""
        if job.metadata.uid != self.job.metadata.uid:
            raise self._deleted()
        self._see(job)

    def _deleted(self) -> errors.NotFound:
        metadata = self.job.metadata
        text = f"GPUJob {metadata.namespace}/{metadata.name} was deleted"
        return errors.NotFound(text, status=404, reason="NotFound")

    def _see(self, job: GpuJob) -> None:
        self.job = job
        status = job.status
        news = (status.phase, status.reason, status.message)
        if news != self._reported and status.reason and status.phase != "Failed":
            where = f" on {status.nodes}" if status.phase == "Running" and status.nodes else ""
            why = f": {status.message}" if status.message else ""
            note(f"{job.metadata.name}: {status.phase}{where} ({status.reason}){why}")
        self._reported = news
        if status.finished:
            self._job_ended.set()

    def _see_pod(self, event: Event, group: asyncio.TaskGroup) -> None:
        pod = decode(event.object, Pod)
        if event.type == "DELETED":
            self._gone.add(pod.metadata.uid)
        for worker in workers_of(pod, self.job.spec):
            self._workers[worker.key] = worker
            wanted = worker.index in self._chosen.indices
            if pod.spec.node_name and wanted and worker.key not in self._logs:
                self._logs[worker.key] = group.create_task(self._log(worker).follow())

    def _log(self, worker: Worker) -> WorkerLog:
        uid = worker.pod.metadata.uid
        return WorkerLog(
            self._api,
            worker,
            self._sink,
            prefix=self._chosen.prefix(worker.index),
            is_over=lambda: uid in self._gone or self._workers[worker.key].ended,
            tail=self._tail,
        )

    async def _read_pods(self, group: asyncio.TaskGroup) -> None:
        """Read the pods once more at the end: the watch may not have shown their end yet."""
        selectors = {"labelSelector": f"{names.JOB_UID_LABEL}={self.job.metadata.uid}"}
        where = self.job.metadata.namespace
        try:
            async for page in listing.pages(self._api, PODS, namespace=where, selectors=selectors):
                for raw in page.items:
                    self._see_pod(Event("MODIFIED", raw), group)
        except TRANSIENT_ERRORS as error:
            raise_permanent(error)
            note("the API server does not answer; the workers' exit codes may be unknown")

    async def _wait_for_logs(self) -> None:
        """Wait until the logs have ended, or brought nothing for LOGS_SECONDS."""
        loop, seen, deadline = asyncio.get_running_loop(), -1, 0.0
        while tasks := [task for task in self._logs.values() if not task.done()]:
            if self._sink.lines != seen or not self._sink.go.is_set():
                seen, deadline = self._sink.lines, loop.time() + LOGS_SECONDS
            elif loop.time() >= deadline:
                note("the end of the log is missing; `gpupack logs` shows the available lines")
                return
            await asyncio.wait(tasks, timeout=0.5)


def _by_end(worker: Worker) -> tuple[dt.datetime, int]:
    """Return the order of workers by their end: after one fails the others are stopped."""
    return worker.ended_at or LATEST, worker.index
