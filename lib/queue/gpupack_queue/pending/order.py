# SPDX-License-Identifier: Apache-2.0
"""The order of pending jobs: priority, then the shares of tenants and of users, then age."""

from bisect import bisect_left, bisect_right
from operator import attrgetter

from gpupack_queue.job import Job, Rank, Tenant, User
from gpupack_queue.pending.pending_jobs import JobClass, PendingJob, PendingJobs
from gpupack_queue.quotas.usage import Usage
from gpupack_queue.quotas.user_shares import UserShares

Precedence = tuple[int, tuple[float, ...], float, Rank]
"""The sort key of a job; the smallest goes first.

Shares go from the root of the tree down to the tenant. So cohorts are compared by their shares, and
tenants within a cohort by theirs. The share of the user is 0 where users take no turns.
"""


class Order:
    """The current order. A call of `forget` must follow each change of `usage`.

    `usage` None: shares do not count.
    """

    def __init__(self, usage: Usage | None, users: UserShares) -> None:
        self._usage, self._users = usage, users
        self._shares: dict[Tenant, tuple[float, ...]] = {}

    def precedence(self, entry: PendingJob) -> Precedence:
        """Return the sort key of a pending job."""
        job = entry.job
        return entry.rank.minus_priority, *self._both_shares(job.tenant, job.user), entry.rank

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
        ours = self._both_shares(entry.job.tenant, entry.job.user)
        theirs = self._both_shares(job_class.tenant, job_class.user)
        by_priority = attrgetter("rank.minus_priority")
        if theirs < ours:
            return bisect_right(job_class.entries, entry.rank.minus_priority, key=by_priority)
        if theirs > ours:
            return bisect_left(job_class.entries, entry.rank.minus_priority, key=by_priority)
        return bisect_left(job_class.entries, entry.rank, key=attrgetter("rank"))

    def goes_first_by_user(self, entry: PendingJob, waiting: PendingJobs) -> bool:
        """Tell whether a later job of the same tenant goes first because of its user."""
        job = entry.job
        ours = self._users.share(job.tenant, job.user)
        return any(
            self._users.share(job.tenant, other.user) < ours
            and other.head.rank.minus_priority <= entry.rank.minus_priority
            and other.entries[self.count_before(entry, other) - 1].rank > entry.rank
            for other in waiting.job_classes()
            if other.tenant == job.tenant and other.user != job.user
        )

    def _both_shares(self, tenant: Tenant, user: User) -> tuple[tuple[float, ...], float]:
        if self._usage is None:
            return (), 0.0
        return self._shares_of(tenant), self._users.share(tenant, user)

    def _shares_of(self, tenant: Tenant) -> tuple[float, ...]:
        if self._usage is None:
            return ()
        known = self._shares.get(tenant)
        if known is None:
            known = self._shares[tenant] = self._usage.shares(tenant)
        return known
