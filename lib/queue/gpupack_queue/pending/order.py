# SPDX-License-Identifier: Apache-2.0
"""The order of pending jobs: priority, then the tenants' shares, then age."""

from bisect import bisect_left, bisect_right
from operator import attrgetter

from gpupack_queue.job import Job, Rank, Tenant
from gpupack_queue.pending.pending_jobs import JobClass, PendingJob, PendingJobs
from gpupack_queue.quotas.usage import Usage

Precedence = tuple[int, tuple[float, ...], Rank]
"""The sort key of a job; the smallest goes first.

Shares go from the root of the tree down to the tenant. So cohorts are compared by their shares, and
tenants within a cohort by theirs.
"""


class Order:
    """The current order. A call of `forget` must follow each change of `usage`.

    `usage` None: shares do not count.
    """

    def __init__(self, usage: Usage | None) -> None:
        self._usage = usage
        self._shares: dict[Tenant, tuple[float, ...]] = {}

    def precedence(self, entry: PendingJob) -> Precedence:
        """Return the sort key of a pending job."""
        return entry.rank.minus_priority, self._shares_of(entry.job.tenant), entry.rank

    def forget(self, tenant: Tenant) -> None:
        """Forget the tenant's share, which has changed, and the shares that depend on it."""
        if self._usage is None:
            return
        tree = self._usage.tree
        changed = tree.tenant(tenant).path[0]
        for other in [of for of in self._shares if tree.tenant(of).path[0] == changed]:
            del self._shares[other]

    def position(self, entry: PendingJob, waiting: PendingJobs) -> int:
        """Return its position; 1 is the first. Admissions before it change shares and positions."""
        return 1 + sum(self.count_before(entry, job_class) for job_class in waiting.job_classes())

    def jobs_before(self, entry: PendingJob, waiting: PendingJobs) -> list[Job]:
        """Return the jobs before it, job_class by job_class."""
        return [
            other.job
            for job_class in waiting.job_classes()
            for other in job_class.entries[: self.count_before(entry, job_class)]
        ]

    def count_before(self, entry: PendingJob, job_class: JobClass) -> int:
        """Return the number of jobs of the job class before it. Ranks begin with the priority."""
        ours, theirs = self._shares_of(entry.job.tenant), self._shares_of(job_class.tenant)
        by_priority = attrgetter("rank.minus_priority")
        if theirs < ours:
            return bisect_right(job_class.entries, entry.rank.minus_priority, key=by_priority)
        if theirs > ours:
            return bisect_left(job_class.entries, entry.rank.minus_priority, key=by_priority)
        return bisect_left(job_class.entries, entry.rank, key=attrgetter("rank"))

    def _shares_of(self, tenant: Tenant) -> tuple[float, ...]:
        if self._usage is None:
            return ()
        known = self._shares.get(tenant)
        if known is None:
            known = self._shares[tenant] = self._usage.shares(tenant)
        return known
