# SPDX-License-Identifier: Apache-2.0
"""The parts of tenants of a maximum number of jobs: one for each tenant, the rest for the first."""

from collections import Counter
from collections.abc import Collection

from gpupack_queue.job import JobId, Tenant


class TenantParts:
    """Jobs up to a maximum, in which each waiting tenant has a part; mutable.

    A tenant has at most what the maximum leaves when each other tenant has one job. With more
    tenants than the maximum the first ones have one job each.
    """

    def __init__(self, maximum: float, waiting: Collection[Tenant] = ()) -> None:
        """Use the tenants that waited when the last cycle ended."""
        self._maximum, self._waiting = maximum, set(waiting)
        self._jobs: dict[JobId, Tenant] = {}
        self._counts: dict[Tenant, int] = {}

    def add(self, job: JobId, tenant: Tenant) -> None:
        """Add a job, even beyond the maximum."""
        if job not in self._jobs:
            self._jobs[job] = tenant
            self._waiting.add(tenant)
            self._counts[tenant] = self.count(tenant) + 1

    def discard(self, job: JobId) -> Tenant | None:
        """Remove a job and return its tenant; None: it is not among the jobs."""
        tenant = self._jobs.pop(job, None)
        if tenant is not None:
            self._counts[tenant] -= 1
            if not self._counts[tenant]:
                del self._counts[tenant]
        return tenant

    def count(self, tenant: Tenant) -> int:
        """Return the number of jobs of the tenant."""
        return self._counts.get(tenant, 0)

    def tenants(self) -> Collection[Tenant]:
        """Return the tenants of the jobs."""
        return self._counts.keys()

    def may_add(self, tenant: Tenant, expected: Collection[Tenant] = ()) -> bool:
        """Tell whether one more job of the tenant is within the maximum and its part.

        `expected`: the tenants of further jobs that count as added.
        """
        counts = self._counts
        if expected:
            counts = Counter(expected)
            counts.update(self._counts)
        part = max(1, self._maximum - len(self._waiting) + (tenant in self._waiting))
        if counts.get(tenant, 0) >= part:
            return False
        return sum([min(count, part) for count in counts.values()]) < self._maximum
