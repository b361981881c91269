# SPDX-License-Identifier: Apache-2.0
"""Who may be moved so that a job has room.

Nobody of higher priority, and of another tenant only if the job's own stays within its promise, or
has no larger a share than the other: where the two paths through the tree part, cohorts stand for
their tenants. Who is moved keeps what he has, so his share counts as it is.
"""

from gpupack_core.queueing.books import Books
from gpupack_core.queueing.charge import Charge, Key, least
from gpupack_core.queueing.job import Job, Running, Tenant
from gpupack_core.queueing.tree import TreeNode

_EQUAL = 1e-9
"""Shares that differ by less are the same."""


class MoveRights:
    """Of one job that waits; `keys`: of the GPUs that it may get. The books are not changed."""

    def __init__(self, books: Books, job: Job, keys: frozenset[Key]) -> None:
        self._books, self._job, self._keys = books, job, keys
        self._partings: dict[Tenant, tuple[TreeNode, TreeNode]] = {}

    def may_be_moved(self, running: Running) -> bool:
        """Whether this one could be; `allow` says whether it may be for certain places."""
        job = running.job
        if not job.movable or not job.preemptible or job.extends is not None:
            return False
        if job.priority > self._job.priority:
            return False
        if job.tenant == self._job.tenant:
            return True
        keys = [key for key in self._keys if running.charge.get(key)]
        if len(self._keys) > 1 and self._job.gang.workers > 1:
            return bool(keys)  # it may take less than all of any of them
        return any(self._is_fair(job.tenant, key, least(self._job.gang)) for key in keys)

    def allow(self, running: Running, charge: Charge) -> bool:
        """Whether it may be moved when the job takes `charge`."""
        if running.job.tenant == self._job.tenant:
            return True
        return all(
            self._is_fair(running.job.tenant, key, milli)
            for key, milli in charge.items()
            if milli and running.charge.get(key)
        )

    def _is_fair(self, other: Tenant, key: Key, milli: int) -> bool:
        """Whether our share is promised, or no larger than theirs, once we have so much more."""
        usage, tenant = self._books.usage, self._job.tenant
        ours, theirs = self._parting(other)
        usage.add(tenant, {key: milli})
        after = usage.share_of(ours, key)
        usage.add(tenant, {key: milli}, sign=-1)
        return not after or after <= usage.share_of(theirs, key) + _EQUAL

    def _parting(self, other: Tenant) -> tuple[TreeNode, TreeNode]:
        """Ours and theirs."""
        known = self._partings.get(other)
        if known is None:
            known = self._partings[other] = self._books.tree.parting(self._job.tenant, other)
        return known
