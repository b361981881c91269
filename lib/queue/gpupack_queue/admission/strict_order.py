# SPDX-License-Identifier: Apache-2.0
"""Strict order: no job starts before a queue head of its cohort with which it competes.

Jobs compete if a worker of each could run on one node, by what their quotas can allow. A queue head
that lacks GPUs holds back its whole strict cohort, and one that lacks quota only its own tenant. A
job that can never start is no queue head.
"""

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np

from gpupack_placement.arrays import BoolArray
from gpupack_placement.cluster import Cluster
from gpupack_placement.feasibility import worker_slots
from gpupack_queue.job import Tenant
from gpupack_queue.pending.order import Order
from gpupack_queue.pending.pending_jobs import JobClass, PendingJob
from gpupack_queue.quotas.quota_planner import QuotaPlanner
from gpupack_queue.quotas.tree import TOP, NodeId
from gpupack_queue.state.queue_state import State

MAX_CLASSES_COMPUTED: Final = 64
"""The maximum number of classes of which one question computes the rows."""


class StrictOrder:
    """The queue heads of one cycle, in so far as they hold other jobs back; mutable."""

    def __init__(self, state: State, cluster: Cluster, planner: QuotaPlanner) -> None:
        """Use the snapshot of a session, of which only the nodes matter."""
        self._state, self._cluster, self._planner = state, cluster, planner
        self._by_scope: dict[NodeId, BoolArray] = {}
        self._by_tenant: dict[Tenant, BoolArray] = {}

    def block_cohort(self, entry: PendingJob) -> None:
        """Hold back all jobs of the strict cohort that compete with a job that lacks GPUs."""
        scope = self._state.quota.strict_scope(entry.job.tenant)
        if scope is not None:
            rows = self._rows_of(entry.job_class)
            self._by_scope[scope] = self._by_scope.get(scope, rows) | rows

    def block_tenant(self, entry: PendingJob) -> None:
        """Hold back jobs of the same tenant that compete with a job that lacks quota."""
        tenant = entry.job.tenant
        if self._state.quota.strict_scope(tenant) is not None:
            rows = self._rows_of(entry.job_class)
            self._by_tenant[tenant] = self._by_tenant.get(tenant, rows) | rows

    def block_behind_pending(self, entry: PendingJob) -> None:
        """Hold the job back if any pending job of its strict order competes with it."""
        scope = self._state.quota.strict_scope(entry.job.tenant)
        heads = self._heads_before(entry, self._state.pending.job_classes())
        if scope is not None and any(heads):
            self._by_scope[scope] = self._rows_of(entry.job_class)

    def holds_back(self, entry: PendingJob) -> bool:
        """Tell whether a queue head of the same strict order is before the job."""
        scope = self._state.quota.strict_scope(entry.job.tenant)
        if scope is None:
            return False
        heads = (self._by_scope.get(scope), self._by_tenant.get(entry.job.tenant))
        rows = None
        for head in heads:
            if head is not None:
                rows = self._rows_of(entry.job_class) if rows is None else rows
                if (head & rows).any():
                    return True
        return False

    @property
    def holds_back_all(self) -> bool:
        """Tell whether queue heads hold back every job of the cluster."""
        rows = self._by_scope.get(TOP)
        return rows is not None and bool(rows[self._cluster.arrays.present].all())

    def first_head(self, entry: PendingJob, order: Order) -> PendingJob | None:
        """Return the first job, in the order, of a class that competes in the strict order.

        It may be the job itself, or a job behind it. None: no class competes.
        """
        if self._state.quota.strict_scope(entry.job.tenant) is None:
            return None
        classes = self._state.pending.job_classes()
        classes.sort(key=lambda job_class: order.precedence(job_class.head))
        return next(self._heads_before(entry, classes), None)

    def _heads_before(self, entry: PendingJob, classes: Iterable[JobClass]) -> Iterator[PendingJob]:
        """Yield the first jobs of classes in the job's strict order that compete with it.

        A call computes the rows of at most MAX_CLASSES_COMPUTED classes, so that it is short.
        Others count as competing until a later call has computed theirs.
        """
        quota, basis = self._state.quota, self._state.never.basis(self._cluster, self._planner)
        scope, computed = quota.strict_scope(entry.job.tenant), 0
        for job_class in classes if scope is not None else ():
            if quota.strict_scope(job_class.tenant) != scope:
                continue
            computed += job_class.rows is None or job_class.rows[0] is not basis
            if computed > MAX_CLASSES_COMPUTED or self._is_head_before(job_class, entry):
                yield job_class.head

    def _is_head_before(self, job_class: JobClass, entry: PendingJob) -> bool:
        """Tell whether the first job of the class, of the same strict order, holds the job back."""
        head = job_class.head
        if not self.compete(head, entry):
            return False
        if self._state.never.answer(self._cluster, self._planner, job_class) is not None:
            return False
        is_own = job_class.tenant == entry.job.tenant
        return is_own or self._planner.may_fit_quota(self._cluster, head.job)

    def compete(self, one: PendingJob, other: PendingJob) -> bool:
        """Tell whether a worker of each could run on one node, if nothing else ran."""
        rows = self._rows_of(one.job_class) & self._rows_of(other.job_class)
        return bool(rows.any())

    def _rows_of(self, of: JobClass) -> BoolArray:
        """Return the rows where a worker could run; remembered until nodes or quotas change."""
        basis = self._state.never.basis(self._cluster, self._planner)
        if of.rows is None or of.rows[0] is not basis:
            gang = self._planner.usable_gang(self._cluster, of.tenant, of.gang) or of.gang
            empty = self._cluster.emptied()
            fits = [
                worker_slots(empty, role.request, same_clique=role.spread.same_clique) > 0
                for role in gang.limited_roles
            ]
            of.rows = basis, np.logical_or.reduce(fits)
        return of.rows[1]
