# SPDX-License-Identifier: Apache-2.0
"""Pending jobs by the queue's ID, within the limits of each namespace."""

import dataclasses
from collections.abc import Iterator

from gpupack_placement import Gang
from gpupack_queue import JobId
from gpupack_scheduler.errors import QueueFull
from gpupack_scheduler.queueing.capacity import QueueCapacity
from gpupack_scheduler.queueing.request import GangRequest, GatedPodRequest, QueueRequest, pod_id


@dataclasses.dataclass(slots=True)
class PendingEntry:
    """One pending job; times are the queue's."""

    ask: QueueRequest
    asked_at: float
    unknown_since: float

    def is_same_request(self, ask: QueueRequest) -> bool:
        """Tell whether a request equals this one, so that the job was not edited.

        The pending job keeps its first estimate and its first nodes to avoid.
        """
        before = self.ask
        if not isinstance(before, GangRequest) or not isinstance(ask, GangRequest):
            return before.job == ask.job
        same = dataclasses.replace(
            ask, version=before.version, estimate=before.estimate, avoid=before.avoid
        )
        return same == before

    def see_version(self, ask: QueueRequest) -> None:
        """Take the version of an object that was written again with an equal request."""
        if isinstance(self.ask, GangRequest) and isinstance(ask, GangRequest):
            self.ask = dataclasses.replace(self.ask, version=ask.version)
        else:
            self.ask = ask


class PendingRequests:
    """The pending attempts of GPUJobs and standalone pods."""

    def __init__(self) -> None:
        self._asks: dict[JobId, PendingEntry] = {}
        self._of_job: dict[str, dict[JobId, None]] = {}
        """IDs of pending attempts by UID of their GPUJob."""
        self._capacity = QueueCapacity()
        self._outside: dict[str, tuple[str, str]] = {}
        """Namespaces of pods that are not in the queue, and why they are not, by UID."""

    def __len__(self) -> int:
        return len(self._asks)

    def __iter__(self) -> Iterator[JobId]:
        """Iterate over a copy: jobs may leave during the iteration."""
        return iter(tuple(self._asks))

    def __getitem__(self, job: JobId) -> PendingEntry:
        return self._asks[job]

    def __contains__(self, job: object) -> bool:
        return job in self._asks

    def get(self, job: JobId) -> PendingEntry | None:
        """Return a pending job."""
        return self._asks.get(job)

    @property
    def has_gangs(self) -> bool:
        """Tell whether attempts of GPUJobs are pending."""
        return bool(self._of_job)

    def gangs(self) -> Iterator[tuple[JobId, PendingEntry, GangRequest]]:
        """Yield attempts of GPUJobs; jobs may leave during the iteration."""
        for job, waiting in tuple(self._asks.items()):
            if isinstance(waiting.ask, GangRequest):
                yield job, waiting, waiting.ask

    def of_job(self, uid: str) -> Iterator[tuple[JobId, GangRequest]]:
        """Yield attempts of the GPUJob; jobs may leave during the iteration."""
        for job in tuple(self._of_job.get(uid, ())):
            ask = self._asks[job].ask
            if isinstance(ask, GangRequest):
                yield job, ask

    def jobs(self) -> set[str]:
        """Return the UIDs of the GPUJobs with pending attempts."""
        return set(self._of_job)

    def require_capacity(self, ask: QueueRequest) -> None:
        """Require that the namespace may have this request in the queue.

        Raises:
            QueueFull: it may not; a refused job is notified when another has left.
        """
        before = self._asks.get(ask.job.id)
        is_new = before is None or _kind(before.ask) != _kind(ask)
        if is_new and (obstacle := self._capacity.obstacle(ask.namespace, *_kind(ask))):
            self._capacity.refuse(ask.namespace, ask.key)
            if isinstance(ask, GatedPodRequest):
                self._outside[ask.ask.uid] = ask.namespace, obstacle
            raise QueueFull(obstacle)
        self._capacity.remove_refused(ask.namespace, ask.key)

    def obstacle_to(self, ask: QueueRequest) -> str:
        """Return why a job outside could not enter the queue; empty if it could."""
        return self._capacity.obstacle(ask.namespace, *_kind(ask))

    def obstacle(self, uid: str) -> str:
        """Return why a pod is not in the queue; empty if no reason is known."""
        found = self._outside.get(uid)
        return found[1] if found else ""

    def outside(self) -> Iterator[str]:
        """Return UIDs of the pods outside the queue; pods may enter during the iteration."""
        return iter(tuple(self._outside))

    def leave_outside(self, uid: str) -> None:
        """Remove a pod from those outside: it enters the queue, or waits no longer."""
        found = self._outside.pop(uid, None)
        if found is not None:
            self._capacity.remove_refused(found[0], pod_id(uid))

    def add(self, ask: QueueRequest, now: float) -> None:
        """Add a job that was not pending before."""
        self._capacity.add(ask.namespace, *_kind(ask))
        self._asks[ask.job.id] = PendingEntry(ask, now, now)
        if isinstance(ask, GangRequest):
            self._of_job.setdefault(ask.attempt.job_uid, {})[ask.job.id] = None

    def remove(self, job: JobId) -> tuple[str, str] | None:
        """Remove a pending job; return the refused job of its namespace that may enter instead."""
        waiting = self._asks.pop(job, None)
        if waiting is None:
            return None
        ask = waiting.ask
        self._capacity.remove(ask.namespace, *_kind(ask))
        if isinstance(ask, GangRequest):
            attempts = self._of_job[ask.attempt.job_uid]
            del attempts[job]
            if not attempts:
                del self._of_job[ask.attempt.job_uid]
        outside = self._capacity.next_outside(ask.namespace)
        return (ask.namespace, outside) if outside else None


def _kind(ask: QueueRequest) -> tuple[Gang, int]:
    """Return the request, and the number of requests that it becomes one after the other."""
    is_ordered = isinstance(ask, GangRequest) and ask.model_fallback_seconds is not None
    return ask.gang, max(len(ask.gang.request.models), 1) if is_ordered else 1
