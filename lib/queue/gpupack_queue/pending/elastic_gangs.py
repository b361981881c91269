# SPDX-License-Identifier: Apache-2.0
"""Elastic gangs: gangs that start completely and may have `extra` further workers.

    gang starts ─► its extra workers, each a job of one worker ─► admitted after all pending jobs
    a pending job could use their places ─► they are preempted, at no loss, before any gang is

An extra worker can be admitted when its gang starts, and later when the gang has neither started,
grown nor shrunk for `Rules.grow_after`. It takes nothing that any pending job could have. Its end
releases its place. The end of its gang ends it, too. The owner of the queue reports both.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from math import inf
from typing import Final

from gpupack_placement.cluster import Cluster
from gpupack_placement.request import Gang
from gpupack_queue.job import Job, JobId
from gpupack_queue.pending.pending_jobs import PendingJob, PendingJobs

_NO_JOBS: Final[frozenset[JobId]] = frozenset()


def extra_worker(job: Job, number: int) -> Job:
    """Return one of the extra workers of an elastic gang; numbers start at 1."""
    return replace(
        job,
        id=JobId(f"{job.id}+{number}"),
        gang=Gang.of(1, job.extra_role.request),
        duration=None,
        estimate=None,
        preemptible=True,
        preempts=False,
        movable=False,
        extra_workers=0,
        extends=job.id,
    )


@dataclass(slots=True)
class _GangSize:
    """A running gang; `since`: when it last started, grew or shrank."""

    job: Job
    since: float


@dataclass(slots=True, eq=False)
class GrowthCandidates:
    """The gangs of one class that may grow in this cycle, with the first one's next worker."""

    entries: Sequence[PendingJob]
    _elastic: "ElasticGangs"
    _at: int = 0
    _numbers: Iterator[int] = field(init=False)
    entry: PendingJob = field(init=False)
    """The extra worker to try next."""

    def __post_init__(self) -> None:
        self._numbers = self._free()
        self.advance()

    def advance(self) -> bool:
        """Go to the next extra worker; False: there is none."""
        while self._at < len(self.entries):
            of = self.entries[self._at]
            number = next(self._numbers, None)
            if number is not None:
                extra = replace(of.job, id=JobId(f"{of.job.id}+{number}"))
                self.entry = PendingJob(extra, of.rank, of.job_class, of.pending_since)
                return True
            self._at += 1
            self._numbers = self._free()
        return False

    def _free(self) -> Iterator[int]:
        if self._at == len(self.entries):
            return iter(())
        gang = self.entries[self._at].job
        taken = self._elastic.extra_workers_of(gang.id)
        numbers = range(1, gang.extra_workers + 1)
        left = gang.extra_workers - len(taken)
        free = (number for number in numbers if JobId(f"{gang.id}+{number}") not in taken)
        return (number for number, _ in zip(free, range(left), strict=False))


class ElasticGangs:
    """The elastic gangs that run, and their extra workers that run; mutable."""

    def __init__(self, *, by_priority: bool = True) -> None:
        self._by_priority = by_priority
        self._sizes: dict[JobId, _GangSize] = {}
        self._extra_workers: dict[JobId, set[JobId]] = {}
        self._growing = PendingJobs(by_priority=by_priority)
        """One entry per gang that is not at its full size, under the gang's ID."""

    def copy(self) -> "ElasticGangs":
        """Return an independent copy."""
        twin = ElasticGangs(by_priority=self._by_priority)
        twin._sizes = {gang: replace(width) for gang, width in self._sizes.items()}
        twin._extra_workers = {gang: extras.copy() for gang, extras in self._extra_workers.items()}
        twin._growing = self._growing.copy()
        return twin

    def __bool__(self) -> bool:
        """Tell whether any running gang is not at its full size."""
        return len(self._growing) > 0

    def extra_workers_of(self, gang: JobId) -> AbstractSet[JobId]:
        """Return the IDs of the gang's extra workers that run."""
        return self._extra_workers.get(gang, _NO_JOBS)

    def record_start(self, job: Job, now: float) -> None:
        """Record a start; no effect on a job that is neither elastic nor an extra worker."""
        if job.extends is not None:
            self._extra_workers.setdefault(job.extends, set()).add(job.id)
            self._record_resize(job.extends, now)
        elif job.extra_workers:
            self._sizes[job.id] = _GangSize(job, now)
            self._update_entry(job.id, now)

    def record_end(self, job: Job, now: float) -> None:
        """Record that a job has ended."""
        if job.extends is not None:
            extras = self._extra_workers[job.extends]
            extras.discard(job.id)
            if not extras:
                del self._extra_workers[job.extends]
            self._record_resize(job.extends, now)
        elif self._sizes.pop(job.id, None) is not None:
            self._growing.remove(job.id)

    def _record_resize(self, gang: JobId, now: float) -> None:
        width = self._sizes.get(gang)
        if width is not None:
            width.since = max(width.since, now)
            self._update_entry(gang, now)

    def _update_entry(self, gang: JobId, now: float) -> None:
        job = self._sizes[gang].job
        if len(self.extra_workers_of(gang)) >= job.extra_workers:
            self._growing.remove(gang)
        elif gang not in self._growing:
            self._growing.add(_any_extra_worker(job), now)

    def find_growable(
        self,
        waiting: PendingJobs,
        cluster: Cluster,
        *,
        leaving: Collection[JobId],
        calm_since: float,
    ) -> tuple[list[GrowthCandidates], float]:
        """Return the gangs that may grow now and could fit a worker, and when others were resized.

        Args:
            waiting: knows what was given back.
            cluster: on which workers might fit.
            leaving: gangs that are being preempted or shrunk.
            calm_since: a gang that was resized later may not grow yet.

        Returns:
            the gangs by job class, and the earliest time at which a gang that may not grow yet was
            resized; infinity: there is none.
        """
        found, since = [], inf
        for job_class in self._growing.job_classes():
            if not waiting.may_fit(job_class.request_class, cluster):
                continue
            ready = []
            for entry in job_class.entries:
                resized = self._sizes[entry.job.id].since
                if resized > calm_since:
                    since = min(since, resized)
                elif entry.job.id not in leaving:
                    ready.append(entry)
            if ready:
                found.append(GrowthCandidates(ready, self))
        return found, since

    def extra_workers_of_starting(
        self, starting: Iterable[Job], now: float
    ) -> list[GrowthCandidates]:
        """Return the extra workers of gangs that start in this cycle."""
        fresh = PendingJobs(by_priority=self._by_priority)
        for job in starting:
            if len(self.extra_workers_of(job.id)) < job.extra_workers:
                fresh.add(_any_extra_worker(job), now)
        return [GrowthCandidates(job_class.entries, self) for job_class in fresh.job_classes()]


def _any_extra_worker(job: Job) -> Job:
    """Return a job that stands for any extra worker of the gang, with the gang's ID."""
    return replace(extra_worker(job, 0), id=job.id, extra_workers=job.extra_workers)
