# SPDX-License-Identifier: Apache-2.0
"""Strict order: no job starts before a queue head of its cohort with which it competes.

Jobs compete if a worker of each could run on one node, by what their quotas can allow. A queue head
that lacks GPUs holds back its whole strict cohort, and one that lacks quota only its own tenant. A
job that can never start is no queue head.
"""

from collections.abc import Iterator

from gpupack_placement.arrays import BoolArray
from gpupack_placement.cluster import Cluster
from gpupack_placement.feasibility import worker_slots
from gpupack_placement.request import Gang
from gpupack_queue.job import Job, Tenant
from gpupack_queue.pending.pending_jobs import PendingJob
from gpupack_queue.quotas.quota_planner import QuotaPlanner
from gpupack_queue.quotas.tree import TOP, NodeId
from gpupack_queue.state.queue_state import State


class StrictOrder:
    """The queue heads of one cycle, in so far as they hold other jobs back; mutable."""

    def __init__(self, state: State, cluster: Cluster, planner: QuotaPlanner) -> None:
        """Use the snapshot of a session, of which only the nodes matter."""
        self._state, self._cluster, self._planner = state, cluster, planner
        self._rows: dict[tuple[Tenant, Gang], BoolArray] = {}
        self._by_scope: dict[NodeId, BoolArray] = {}
        self._by_tenant: dict[Tenant, BoolArray] = {}

    def block_cohort(self, job: Job) -> None:
        """Hold back all jobs of the strict cohort that compete with a job that lacks GPUs."""
        scope = self._state.quota.strict_scope(job.tenant)
        if scope is not None:
            rows = self._rows_of(job)
            self._by_scope[scope] = self._by_scope.get(scope, rows) | rows

    def block_tenant(self, job: Job) -> None:
        """Hold back jobs of the same tenant that compete with a job that lacks quota."""
        if self._state.quota.strict_scope(job.tenant) is not None:
            rows = self._rows_of(job)
            self._by_tenant[job.tenant] = self._by_tenant.get(job.tenant, rows) | rows

    def block_behind_pending(self, job: Job) -> None:
        """Hold the job back if any pending job of its strict order competes with it."""
        for head in self.heads_before(job):
            self.block_cohort(head.job)

    def holds_back(self, job: Job) -> bool:
        """Tell whether a queue head of the same strict order is before the job."""
        scope = self._state.quota.strict_scope(job.tenant)
        if scope is None:
            return False
        heads = (self._by_scope.get(scope), self._by_tenant.get(job.tenant))
        rows = None
        for head in heads:
            if head is not None:
                rows = self._rows_of(job) if rows is None else rows
                if (head & rows).any():
                    return True
        return False

    @property
    def holds_back_all(self) -> bool:
        """Tell whether queue heads hold back every job of the cluster."""
        rows = self._by_scope.get(TOP)
        return rows is not None and bool(rows[self._cluster.arrays.present].all())

    def heads_before(self, job: Job) -> Iterator[PendingJob]:
        """Yield the first jobs of classes in the job's strict order that compete with it.

        Jobs behind it in the order are among them.
        """
        quota, never = self._state.quota, self._state.never
        scope = quota.strict_scope(job.tenant)
        for job_class in self._state.pending.job_classes() if scope is not None else ():
            head = job_class.head.job
            if quota.strict_scope(head.tenant) != scope or not self.compete(head, job):
                continue
            if never.answer(self._cluster, self._planner, job_class) is not None:
                continue
            if head.tenant == job.tenant or self._planner.may_fit_quota(self._cluster, head):
                yield job_class.head

    def compete(self, one: Job, other: Job) -> bool:
        """Tell whether a worker of each could run on one node, if nothing else ran."""
        return bool((self._rows_of(one) & self._rows_of(other)).any())

    def _rows_of(self, job: Job) -> BoolArray:
        key = job.tenant, job.gang
        if key not in self._rows:
            gang = self._planner.usable_gang(self._cluster, job.tenant, job.gang) or job.gang
            spread = gang.spread.same_clique
            slots = worker_slots(self._cluster.emptied(), gang.request, same_clique=spread)
            self._rows[key] = slots > 0
        return self._rows[key]
