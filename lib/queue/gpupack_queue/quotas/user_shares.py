# SPDX-License-Identifier: Apache-2.0
"""Usage of users within their tenants, where a quota lets users take turns.

    share(user) = the largest used / capacity over the models

Users have no guaranteed amounts, so all that they use counts. The share decides the order of jobs
of one tenant, and between tenants only where the shares of these are equal. No job is preempted for
another user. A tenant has a bounded number of users; jobs of further users have none, and count
together with jobs whose user is unknown.
"""

from collections.abc import Collection, Mapping
from math import inf
from typing import Final

from gpupack_queue.charge import Charge, ModelKey
from gpupack_queue.job import NO_USER, Job, Tenant, User
from gpupack_queue.quotas.quota_usage import QuotaUsage
from gpupack_queue.running.running_jobs import RunningJobs

MAX_USERS: Final = 32
"""The maximum number of users of a tenant that count separately at a time.

Any user of a namespace may create service accounts. Each user costs a class of jobs for each
request, which a cycle looks at.
"""


class UserShares:
    """The shares of users in one cycle; mutable."""

    def __init__(self, quota: QuotaUsage, running: RunningJobs) -> None:
        self._quota, self._running = quota, running
        self._changes: dict[tuple[Tenant, User], dict[ModelKey, float]] = {}

    def add(self, job: Job, charge: Charge, *, sign: int = 1) -> None:
        """Add what a decision of this cycle lets the job use; `sign` -1: subtract it."""
        changes = self._changes.setdefault((job.tenant, job.user), {})
        weight = sign * self._quota.user_history.weight_of_current
        for key, milli in charge.items():
            changes[key] = changes.get(key, 0) + weight * milli

    def share(self, tenant: Tenant, user: User) -> float:
        """Return the share of a user; 0 for all users of a tenant whose users take no turns."""
        if tenant not in self._quota.tenants_by_user:
            return 0.0
        used = self._running.usage_of_user(tenant, user)
        amounts = self._quota.user_history.effective(user_key(tenant, user), used)
        for key, change in self._changes.get((tenant, user), {}).items():
            amounts[key] = amounts.get(key, 0) + change
        return max((self._part(key, milli) for key, milli in amounts.items()), default=0.0)

    def _part(self, key: ModelKey, milli: float) -> float:
        capacity = self._quota.tree.capacity.get(key, 0)
        if milli <= 0:
            return 0.0
        return milli / capacity if capacity else inf


def user_key(tenant: Tenant, user: User) -> Tenant:
    """Return the key of a user's averages; no tenant has a slash in its name."""
    return Tenant(f"{tenant}/{user}")


def usage_by_user(quota: QuotaUsage, running: RunningJobs) -> Mapping[Tenant, Charge]:
    """Return what users use now, by the key of their averages, where users take turns."""
    return {
        user_key(tenant, user): used
        for tenant in quota.tenants_by_user
        for user, used in running.usage_by_user(tenant).items()
    }


def bounded_user(job: Job, known: Collection[User]) -> User:
    """Return the user of a job; none, if the tenant has its maximum of other users already."""
    return job.user if job.user in known or len(known) < MAX_USERS else NO_USER
