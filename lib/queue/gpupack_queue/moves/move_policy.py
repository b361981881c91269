# SPDX-License-Identifier: Apache-2.0
"""The rules for jobs that may be moved so that a pending job fits.

No job of higher priority moves. A job of another tenant moves only if the pending job's tenant
stays within its guaranteed quota, or has no larger share than the other tenant. Where the paths of
both through the tree part, cohorts represent their tenants. A job that moves keeps what it has, so
its share counts as it is.
"""

from gpupack_queue.charge import Charge, ModelKey, min_charge
from gpupack_queue.job import Job, RunningJob, Tenant
from gpupack_queue.quotas.quota_usage import QuotaUsage
from gpupack_queue.quotas.tree import TreeNode

_EQUAL = 1e-9
"""Shares that differ by less are equal."""


class MovePolicy:
    """The rules for one pending job; `keys`: of the GPUs that it may get.

    The quota usage stays as it is.
    """

    def __init__(self, quota: QuotaUsage, job: Job, keys: frozenset[ModelKey]) -> None:
        self._quota, self._job, self._keys = quota, job, keys
        self._partings: dict[Tenant, tuple[TreeNode, TreeNode]] = {}

    def may_move(self, running: RunningJob) -> bool:
        """Tell whether this job could be moved; `allow` decides it for certain places."""
        job = running.job
        if not job.movable or not job.preemptible or job.extends is not None:
            return False
        if job.priority > self._job.priority:
            return False
        if job.tenant == self._job.tenant:
            return True
        keys = [key for key in self._keys if running.charge.get(key)]
        if len(self._keys) > 1 and self._job.gang.workers > 1:
            return bool(keys)  # the job may take less than all of any of them
        return any(self._is_fair(job.tenant, key, min_charge(self._job.gang)) for key in keys)

    def allows(self, running: RunningJob, charge: Charge) -> bool:
        """Tell whether the job may be moved when the pending job takes `charge`."""
        if running.job.tenant == self._job.tenant:
            return True
        return all(
            self._is_fair(running.job.tenant, key, milli)
            for key, milli in charge.items()
            if milli and running.charge.get(key)
        )

    def _is_fair(self, other: Tenant, key: ModelKey, milli: int) -> bool:
        """Tell whether our share is guaranteed, or not larger than theirs, with this much more."""
        usage, tenant = self._quota.usage, self._job.tenant
        ours, theirs = self._diverging_nodes(other)
        usage.add(tenant, {key: milli})
        after = usage.share_of(ours, key)
        usage.add(tenant, {key: milli}, sign=-1)
        return not after or after <= usage.share_of(theirs, key) + _EQUAL

    def _diverging_nodes(self, other: Tenant) -> tuple[TreeNode, TreeNode]:
        """Return our node and theirs, where the paths part."""
        known = self._partings.get(other)
        if known is None:
            known = self._partings[other] = self._quota.tree.diverging_nodes(
                self._job.tenant, other
            )
        return known
