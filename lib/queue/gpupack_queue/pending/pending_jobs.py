# SPDX-License-Identifier: Apache-2.0
"""Pending jobs, in classes: jobs of one tenant with equal requests.

When one job of a request class does not fit, no job of the request class does, and none will until
something is released: placements only take. Even then only the nodes on which something was
released can make a difference. So a request class that failed stays closed until one of those nodes
has space for one of its workers, by a few comparisons of numbers. A long queue then costs what its
job classes cost, not what its jobs cost, and a plan is made only where it has a chance.
"""

from bisect import bisect_left, insort
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from math import inf
from operator import attrgetter

import numpy as np

from gpupack_devices.units import WHOLE_GPU
from gpupack_placement.arrays import BoolArray
from gpupack_placement.cluster import Cluster
from gpupack_placement.errors import AlreadyHeld
from gpupack_placement.feasibility import device_slots
from gpupack_placement.request import Gang, Request
from gpupack_queue.job import NO_USER, Job, JobId, Rank, ReservationId, Tenant, User
from gpupack_queue.start import Never

_MAX_RELEASED_ROWS = 4096
"""The number of freed rows that are kept.

A request class that failed before those is tried again without a check.
"""

_MAX_REQUEST_CLASSES = 512
"""The number of request classes that are kept although no job of them waits.

The next job of a request class that failed need not be tried.
"""


@dataclass(slots=True, eq=False)
class PendingJob:
    """A pending job; `pending_since`: when it was submitted, or submitted again."""

    job: Job
    rank: Rank
    job_class: "JobClass"
    pending_since: float


@dataclass(slots=True, eq=False)
class RequestClass:
    """A request of a gang, by any tenant."""

    gang: Gang
    failed_at_release: int | None = None
    """The number of releases at its last failure; None: it may fit."""
    job_classes: int = 0
    delayed_at_release: tuple[tuple[object, ...], int] | None = None
    """The reservations that a job would have delayed, and the number of releases then."""
    never_fits: tuple[object, bool] | None = None
    """Whether it fits on no empty cluster, with what the answer depends on."""


@dataclass(slots=True, eq=False)
class JobClass:
    """Entries of one tenant, request class and perhaps user, by rank."""

    tenant: Tenant
    request_class: RequestClass
    user: User = NO_USER
    """The user of its jobs, if the tenant's users take turns."""
    entries: list[PendingJob] = field(default_factory=list)
    shortest_seconds: float = inf
    """The shortest known or expected duration of its jobs, in seconds."""
    searched_at: float | None = None
    """The time of the last search for victims for its first job that found none."""
    consolidation_searched_at: float | None = None
    """The time of the last search for moves for its first job that found none."""
    move_failed_at: tuple[tuple[object, ...], int] | None = None
    """The reservations that could not move for its first job, and the number of releases then."""
    never: tuple[object, Never | None] | None = None
    """Why its jobs can never start, with what the answer depends on."""
    rows: tuple[object, BoolArray] | None = None
    """The rows where a worker could run if no other job ran, with what the answer depends on."""

    @property
    def head(self) -> PendingJob:
        """Return the first entry of a job class that is not empty."""
        return self.entries[0]

    @property
    def gang(self) -> Gang:
        """Return the gang that each of its jobs requests."""
        return self.request_class.gang


@dataclass(frozen=True, slots=True)
class Failures:
    """What cycles remember of classes of pending jobs: copies of the classes, without jobs."""

    request_classes: Sequence[RequestClass]
    job_classes: Sequence[JobClass]


class PendingJobs:
    """Pending jobs; mutable, and bounded by the number of pending jobs."""

    def __init__(self, *, by_priority: bool = True) -> None:
        self._by_priority = by_priority
        self._request_classes: dict[Gang, RequestClass] = {}
        self._job_classes: dict[tuple[Tenant, User, Gang], JobClass] = {}
        self._by_user: frozenset[Tenant] = frozenset()
        self._users: dict[Tenant, Counter[User]] = {}
        self._entries: dict[JobId, PendingJob] = {}
        self._by_reservation: dict[ReservationId, set[JobId]] = {}
        self._released_rows: deque[int] = deque(maxlen=_MAX_RELEASED_ROWS)
        self._releases = 0

    def copy(self) -> "PendingJobs":
        """Return an independent copy, with what is remembered of failures."""
        twin = PendingJobs(by_priority=self._by_priority)
        twin._request_classes = {
            gang: copy(request_class) for gang, request_class in self._request_classes.items()
        }
        for key, job_class in self._job_classes.items():
            made = twin._job_classes[key] = copy(job_class)
            made.request_class = twin._request_classes[job_class.gang]
            made.entries = [
                PendingJob(e.job, e.rank, made, e.pending_since) for e in job_class.entries
            ]
            twin._entries.update((entry.job.id, entry) for entry in made.entries)
        twin._by_user = self._by_user
        twin._users = {tenant: users.copy() for tenant, users in self._users.items()}
        twin._by_reservation = {of: jobs.copy() for of, jobs in self._by_reservation.items()}
        twin._released_rows, twin._releases = self._released_rows.copy(), self._releases
        return twin

    def failures(self) -> "Failures":
        """Return what is remembered of failures."""
        return Failures(
            [copy(each) for each in self._request_classes.values()],
            [replace(each, entries=[]) for each in self._job_classes.values()],
        )

    def restore(self, failures: "Failures") -> None:
        """Take over what a copy found, as of the releases before it was made."""
        for found in failures.request_classes:
            if (request_class := self._request_classes.get(found.gang)) is not None:
                request_class.failed_at_release = found.failed_at_release
                request_class.delayed_at_release = found.delayed_at_release
                request_class.never_fits = found.never_fits
        for of in failures.job_classes:
            if (job_class := self._job_classes.get((of.tenant, of.user, of.gang))) is not None:
                job_class.searched_at = of.searched_at
                job_class.consolidation_searched_at = of.consolidation_searched_at
                job_class.never, job_class.rows = of.never, of.rows

    def forget_searches(self) -> None:
        """Forget searches without result, which may find something now."""
        for job_class in self._job_classes.values():
            job_class.searched_at = job_class.consolidation_searched_at = None

    def mark_searched(self, now: float, *, excluded: JobClass) -> None:
        """Mark searches for victims and moves as done without result, for all classes but one."""
        for job_class in self._job_classes.values():
            job_class.searched_at = job_class.consolidation_searched_at = (
                None if job_class is excluded else now
            )

    def users(self, tenant: Tenant) -> Collection[User]:
        """Return the users of the tenant's pending jobs."""
        return self._users.get(tenant, ())

    def group_by_user(self, tenants: frozenset[Tenant]) -> None:
        """Let the users of exactly these tenants take turns."""
        if tenants == self._by_user:
            return
        changed, self._by_user = tenants ^ self._by_user, tenants
        for entry in [each for each in self if each.job.tenant in changed]:
            self.remove(entry.job.id)
            self.add(entry.job, entry.pending_since)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, job: object) -> bool:
        return job in self._entries

    def __iter__(self) -> Iterator[PendingJob]:
        """Iterate by rank; jobs may come and go during the iteration."""
        return iter(sorted(self._entries.values(), key=attrgetter("rank")))

    def entries(self) -> Iterable[PendingJob]:
        """Return the entries in no order; they must not change during the iteration."""
        return self._entries.values()

    def get(self, job: JobId) -> PendingJob | None:
        """Return the entry of a pending job; None: it does not wait."""
        return self._entries.get(job)

    def add(self, job: Job, now: float) -> PendingJob:
        """Add a job by rank: a job that comes back gets the place of its submission.

        Raises:
            AlreadyHeld: it waits already.
        """
        if job.id in self._entries:
            raise AlreadyHeld(f"job {job.id} waits already")
        job_class = self._class_of(job)
        rank = Rank(-job.priority * self._by_priority, job.submitted, job.number, job.id)
        entry = self._entries[job.id] = PendingJob(job, rank, job_class, now)
        if job.reservation is not None:
            self._by_reservation.setdefault(job.reservation, set()).add(job.id)
        job_class.shortest_seconds = min(job_class.shortest_seconds, job.expected_end(0.0))
        self._users.setdefault(job.tenant, Counter())[job.user] += 1
        if job_class.entries and job_class.entries[-1].rank > rank:
            insort(job_class.entries, entry, key=attrgetter("rank"))
        else:
            job_class.entries.append(entry)
        return entry

    def remove(self, job: JobId) -> None:
        """Remove a job that was admitted or withdrawn; no effect if it does not wait."""
        entry = self._entries.pop(job, None)
        if entry is None:
            return
        self._forget_user(entry.job)
        if (reservation := entry.job.reservation) is not None:
            self._by_reservation[reservation].discard(job)
            if not self._by_reservation[reservation]:
                del self._by_reservation[reservation]
        job_class = entry.job_class
        del job_class.entries[bisect_left(job_class.entries, entry.rank, key=attrgetter("rank"))]
        if not job_class.entries:
            del self._job_classes[job_class.tenant, job_class.user, job_class.gang]
            job_class.request_class.job_classes -= 1

    def change_gang(self, job: JobId, gang: Gang) -> bool:
        """Let a pending job request something else; return whether it did not do so already."""
        entry = self._entries.get(job)
        if entry is None or entry.job.gang == gang:
            return False
        self.remove(job)
        self.add(replace(entry.job, gang=gang), entry.pending_since)
        return True

    def _forget_user(self, job: Job) -> None:
        users = self._users[job.tenant]
        users[job.user] -= 1
        if not users[job.user]:
            del users[job.user]
        if not users:
            del self._users[job.tenant]

    def of_reservation(self, reservation: ReservationId) -> list[PendingJob]:
        """Return the pending jobs that name this time-window reservation."""
        return [self._entries[job] for job in self._by_reservation.get(reservation, ())]

    def forget_failures(self) -> None:
        """Forget which requests do not fit: what is held for windows has changed."""
        for request_class in self._request_classes.values():
            request_class.failed_at_release = request_class.delayed_at_release = None

    def job_classes(self) -> list[JobClass]:
        """Return the classes, which are not empty, in no particular order."""
        return list(self._job_classes.values())

    def record_release(self, row: int) -> None:
        """Record that something was released, repaired or added on the node in this row."""
        self._released_rows.append(row)
        self._releases += 1

    def record_failure(self, request_class: RequestClass) -> None:
        """Record that the request class does not fit now."""
        request_class.failed_at_release = self._releases

    def may_fit(self, request_class: RequestClass, cluster: Cluster) -> bool:
        """Tell whether the request class may fit; False: a plan is known to fail."""
        if request_class.failed_at_release is None:
            return True
        if self.has_relevant_release(
            request_class, since=request_class.failed_at_release, cluster=cluster
        ):
            request_class.failed_at_release = None
            return True
        request_class.failed_at_release = self._releases
        return False

    @property
    def releases(self) -> int:
        """Return the number of releases so far."""
        return self._releases

    def has_relevant_release(
        self, request_class: RequestClass, *, since: int, cluster: Cluster
    ) -> bool:
        """Tell whether a release since then was on a node where a worker may fit."""
        releases = self._releases - since
        if not releases:
            return False
        if releases > _MAX_RELEASED_ROWS:
            return True
        return any(
            may_fit_on_row(cluster, request_class.gang, row)
            for row in self._last_released(releases)
        )

    def _class_of(self, job: Job) -> JobClass:
        key = job.tenant, job.user if job.tenant in self._by_user else NO_USER, job.gang
        job_class = self._job_classes.get(key)
        if job_class is None:
            request_class = self._request_classes.get(job.gang)
            if request_class is None:
                if len(self._request_classes) >= _MAX_REQUEST_CLASSES + len(self._job_classes):
                    self._request_classes = {
                        of: kept for of, kept in self._request_classes.items() if kept.job_classes
                    }
                request_class = self._request_classes[job.gang] = RequestClass(job.gang)
            request_class.job_classes += 1
            job_class = self._job_classes[key] = JobClass(job.tenant, request_class, key[1])
        return job_class

    def _last_released(self, count: int) -> Iterable[int]:
        freed = self._released_rows
        return {freed[index] for index in range(len(freed) - count, len(freed))}


def may_fit_on_row(cluster: Cluster, gang: Gang, row: int) -> bool:
    """Tell whether a worker of any role may fit on the row; necessary, not sufficient."""
    return any(_may_fit_on_row(cluster, request, row) for request in gang.requests)


def _may_fit_on_row(cluster: Cluster, request: Request, row: int) -> bool:
    a = cluster.arrays
    if row >= len(a.free_cpu) or a.free_cpu[row] < request.cpu or a.free_ram[row] < request.memory:
        return False
    if request.share is not None and a.free_milli[row].max(initial=0) < request.share.milli:
        return False
    if request.gpus and a.free_gpu_milli[row] < request.gpus * WHOLE_GPU:
        return False
    if not (request.models or request.min_memory):
        return True
    return bool(device_slots(cluster, request, np.array([row]))[0])
