# SPDX-License-Identifier: Apache-2.0
"""Running jobs, and what their tenants use."""

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

from gpupack_placement.errors import AlreadyHeld
from gpupack_queue.charge import Charge, ModelKey
from gpupack_queue.job import JobId, RunningJob, Tenant, User
from gpupack_queue.running.running_table import RunningTable

K = TypeVar("K", Tenant, User)


class RunningJobs:
    """Running jobs; mutable."""

    def __init__(self) -> None:
        self._jobs: dict[JobId, RunningJob] = {}
        self.movable: dict[JobId, RunningJob] = {}
        """The jobs among them that may be moved; read-only."""
        self.extra_workers: dict[JobId, RunningJob] = {}
        """The extra workers of elastic gangs among them; read-only."""
        self._used: dict[Tenant, dict[ModelKey, int]] = {}
        self._used_by_user: dict[Tenant, dict[User, dict[ModelKey, int]]] = {}
        self._of: dict[Tenant, dict[JobId, RunningJob]] = {}
        self._table: RunningTable | None = None

    def copy(self) -> "RunningJobs":
        """Return an independent copy."""
        twin = RunningJobs()
        twin._jobs = self._jobs.copy()
        twin.movable, twin.extra_workers = self.movable.copy(), self.extra_workers.copy()
        twin._used = {tenant: used.copy() for tenant, used in self._used.items()}
        twin._used_by_user = {
            tenant: {user: used.copy() for user, used in users.items()}
            for tenant, users in self._used_by_user.items()
        }
        twin._of = {tenant: jobs.copy() for tenant, jobs in self._of.items()}
        twin._table = self.table.copy()
        return twin

    def __len__(self) -> int:
        return len(self._jobs)

    def __contains__(self, job: object) -> bool:
        return job in self._jobs

    def __iter__(self) -> Iterator[RunningJob]:
        return iter(self._jobs.values())

    @property
    def table(self) -> RunningTable:
        """Return the table, built at the first use: it costs nothing where it is not used."""
        if self._table is None:
            self._table = RunningTable()
            for running in self._jobs.values():
                self._table.add(running)
        return self._table

    def of_tenant(self, tenant: Tenant) -> Iterable[RunningJob]:
        """Return the tenant's running jobs."""
        return self._of.get(tenant, {}).values()

    def get(self, job: JobId) -> RunningJob | None:
        """Return the running job; None: it does not run."""
        return self._jobs.get(job)

    def add(self, running: RunningJob) -> None:
        """Add a job that runs from now on.

        Raises:
            AlreadyHeld: it runs already.
        """
        job = running.job
        if job.id in self._jobs:
            raise AlreadyHeld(f"job {job.id} runs already")
        self._jobs[job.id] = running
        if job.movable:
            self.movable[job.id] = running
        if job.extends is not None:
            self.extra_workers[job.id] = running
        self._of.setdefault(job.tenant, {})[job.id] = running
        self._count(running, sign=1)
        if self._table is not None:
            self._table.add(running)

    def remove(self, job: JobId) -> RunningJob | None:
        """Remove a job that no longer runs and return it; None: it did not run."""
        running = self._jobs.pop(job, None)
        if running is None:
            return None
        self.movable.pop(job, None)
        self.extra_workers.pop(job, None)
        of_tenant = self._of[running.job.tenant]
        del of_tenant[job]
        if not of_tenant:
            del self._of[running.job.tenant]
        self._count(running, sign=-1)
        if self._table is not None:
            self._table.remove(job)
        return running

    def usage_by_tenant(self) -> dict[Tenant, dict[ModelKey, int]]:
        """Return milli-GPU by tenant and key; read-only."""
        return self._used

    def usage_by_user(self, tenant: Tenant) -> Mapping[User, dict[ModelKey, int]]:
        """Return milli-GPU by user of a tenant and key; read-only."""
        return self._used_by_user.get(tenant, {})

    def usage_of_user(self, tenant: Tenant, user: User) -> Mapping[ModelKey, int]:
        """Return milli-GPU by key; read-only."""
        return self._used_by_user.get(tenant, {}).get(user, {})

    def _count(self, running: RunningJob, *, sign: int) -> None:
        job = running.job
        _add(self._used, job.tenant, running.charge, sign)
        users = self._used_by_user.setdefault(job.tenant, {})
        _add(users, job.user, running.charge, sign)
        if not users:
            del self._used_by_user[job.tenant]


def _add(amounts: dict[K, dict[ModelKey, int]], of: K, charge: Charge, sign: int) -> None:
    """Add the charge to the amounts of one owner; keep no zeros."""
    used = amounts.setdefault(of, {})
    for key, milli in charge.items():
        used[key] = used.get(key, 0) + sign * milli
        if not used[key]:
            del used[key]
    if not used:
        del amounts[of]
