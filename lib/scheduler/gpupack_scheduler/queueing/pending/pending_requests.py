# SPDX-License-Identifier: Apache-2.0
"""Pending jobs by the queue's ID, within the limits of each namespace.

The limits bound memory for requests and time for plans. Jobs with equal requests cost nothing more
each. Different requests are planned one by one, and the rules about nodes of a job are kept for as
long as it waits. A job beyond the limits is refused: it is submitted again later.
"""

import dataclasses
from collections import Counter
from collections.abc import Iterator
from typing import Final

from gpupack_placement import Gang
from gpupack_queue import JobId
from gpupack_scheduler.errors import QueueFull
from gpupack_scheduler.queueing.pending.request import (
    GangRequest,
    GatedPodRequest,
    PodGroupRequest,
    QueueRequest,
    pod_id,
)

MAX_KINDS: Final = 64
"""Maximum of different pending requests of one namespace. Each may be planned again at each end of
a job."""

MAX_VALUES: Final = 1 << 16
"""Maximum of tolerations and label values in the pending requests of one namespace; each takes some
hundred bytes."""

MAX_JOBS: Final = 20_000
"""Maximum of pending jobs of one namespace."""

MAX_OUTSIDE: Final = 1_000
"""Maximum of refused jobs of one namespace that are notified when another has left the queue; the
others try again by themselves."""


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


class QueueCapacity:
    """The pending requests by namespace."""

    def __init__(self) -> None:
        self._kinds: dict[str, Counter[tuple[Gang, int]]] = {}
        """The requests by namespace, each with the number of requests that it may become."""
        self._outside: dict[str, dict[str, None]] = {}
        """Names of refused GPUJobs by namespace, in order."""

    def obstacle(self, namespace: str, gang: Gang, number: int) -> str:
        """Return why another job cannot wait in the queue; empty if it can.

        `number`: of different requests that the job may make one after the other.
        """
        kinds = self._kinds.get(namespace, Counter())
        if kinds.total() >= MAX_JOBS:
            return f"{MAX_JOBS} jobs of its namespace wait, and no more stand in the queue"
        if (gang, number) in kinds:
            return ""
        if number + sum(each for _, each in kinds) > MAX_KINDS:
            return (
                f"jobs of its namespace that wait ask for {MAX_KINDS} different things, and no "
                "more stand in the queue: let them ask for the same CPU, memory and nodes, or for "
                "fewer models in order of preference"
            )
        if sum(values(each) for each, _ in kinds) + values(gang) > MAX_VALUES:
            return (
                f"jobs of its namespace that wait name more than {MAX_VALUES} labels and "
                "tolerations, and no more stand in the queue: narrow their nodes down by fewer"
            )
        return ""

    def refuse(self, namespace: str, name: str) -> None:
        """Record a refused job."""
        outside = self._outside.setdefault(namespace, {})
        if len(outside) < MAX_OUTSIDE:
            outside[name] = None

    def next_outside(self, namespace: str) -> str | None:
        """Return a refused job that may try again now that another has left the queue."""
        outside = self._outside.get(namespace)
        if not outside:
            return None
        name = next(iter(outside))
        self.remove_refused(namespace, name)
        return name

    def remove_refused(self, namespace: str, name: str) -> None:
        """Remove a job from the refused ones."""
        outside = self._outside.get(namespace, {})
        outside.pop(name, None)
        if not outside:
            self._outside.pop(namespace, None)

    def add(self, namespace: str, gang: Gang, number: int) -> None:
        """Add a pending job."""
        self._kinds.setdefault(namespace, Counter())[gang, number] += 1

    def remove(self, namespace: str, gang: Gang, number: int) -> None:
        """Remove a pending job."""
        kinds, kind = self._kinds[namespace], (gang, number)
        kinds[kind] -= 1
        if not kinds[kind]:
            del kinds[kind]
        if not kinds:
            del self._kinds[namespace]


class PendingRequests:
    """The pending attempts of GPUJobs, standalone pods and pod groups."""

    def __init__(self) -> None:
        self._asks: dict[JobId, PendingEntry] = {}
        self._of_job: dict[str, dict[JobId, None]] = {}
        """IDs of pending attempts by UID of their GPUJob."""
        self._capacity = QueueCapacity()
        self._groups: dict[JobId, None] = {}
        """IDs of pending pod groups."""
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
        """Tell whether attempts of GPUJobs, or pod groups, are pending."""
        return bool(self._of_job) or bool(self._groups)

    def gangs(self) -> Iterator[tuple[JobId, PendingEntry, GangRequest]]:
        """Yield attempts of GPUJobs; jobs may leave during the iteration."""
        for job, waiting in tuple(self._asks.items()):
            if isinstance(waiting.ask, GangRequest):
                yield job, waiting, waiting.ask

    def pod_groups(self) -> Iterator[tuple[JobId, PodGroupRequest]]:
        """Yield pod groups; they may leave during the iteration."""
        for job in tuple(self._groups):
            ask = self._asks[job].ask
            if isinstance(ask, PodGroupRequest):
                yield job, ask

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
            if isinstance(ask, GatedPodRequest) and ask.joins is None:
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
        if isinstance(ask, PodGroupRequest):
            self._groups[ask.job.id] = None

    def remove(self, job: JobId) -> tuple[str, str] | None:
        """Remove a pending job; return the refused job of its namespace that may enter instead."""
        waiting = self._asks.pop(job, None)
        if waiting is None:
            return None
        ask = waiting.ask
        self._capacity.remove(ask.namespace, *_kind(ask))
        self._groups.pop(job, None)
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
    return ask.gang, max(len(ask.gang.roles[0].request.models), 1) if is_ordered else 1


def values(gang: Gang) -> int:
    """Return the number of tolerations and label values of a gang."""
    selectors = (request.selector for request in gang.requests)
    requirements = sum(selector.requirements for selector in selectors if selector is not None)
    return requirements + sum(len(request.tolerations) for request in gang.requests)
