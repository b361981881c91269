# SPDX-License-Identifier: Apache-2.0
"""The jobs that can never start on the nodes, or within the quotas, as they are now.

The answer depends on the inventory and on the quotas, and on no running or pending job. Such a job
holds no other job back: it is no queue head, gets no reservation, and no job is preempted for it.
"""

from collections.abc import Mapping
from copy import copy

from gpupack_placement.cluster import Cluster
from gpupack_placement.gang import never_fits
from gpupack_queue.charge import ModelKey, min_charge
from gpupack_queue.pending.pending_jobs import JobClass, RequestClass
from gpupack_queue.quotas.quota_planner import QuotaPlanner
from gpupack_queue.start import Never, Unsatisfied


class NeverAnswers:
    """The answers for classes of jobs; mutable, and computed again when nodes or quotas change."""

    def __init__(self) -> None:
        self._nodes: object = None
        self._quotas: object = None
        self._capacity: Mapping[ModelKey, int] = {}
        self._basis = object()
        """Stands for the present nodes and quotas, in the classes of jobs."""

    def copy(self) -> "NeverAnswers":
        """Return an independent copy, for which the answers in copies of classes count, too."""
        return copy(self)

    def answer(self, cluster: Cluster, planner: QuotaPlanner, of: JobClass) -> Never | None:
        """Return why jobs of the class can never start; None: they can."""
        basis, known = self.basis(cluster, planner), of.never
        if known is None or known[0] is not basis:
            known = of.never = basis, self._compute(cluster, planner, of)
        return known[1]

    def basis(self, cluster: Cluster, planner: QuotaPlanner) -> object:
        """Return an object that stands for these nodes and quotas in the classes of jobs."""
        nodes, quotas = cluster.inventory, planner.quotas
        is_same = nodes is self._nodes and quotas is self._quotas
        if not is_same or planner.tree.capacity != self._capacity:
            self._nodes, self._quotas, self._basis = nodes, quotas, object()
            self._capacity = planner.tree.capacity
        return self._basis

    def _compute(self, cluster: Cluster, planner: QuotaPlanner, of: JobClass) -> Never | None:
        if self._never_fits(cluster, of.request_class):
            return Never(Unsatisfied.NODES)
        if planner.max_charge(cluster, of.tenant, of.gang) < min_charge(of.gang):
            return Never(Unsatisfied.QUOTA)
        usable = planner.usable_gang(cluster, of.tenant, of.gang)
        if usable is None or (usable is not of.gang and never_fits(cluster, usable)):
            return Never(Unsatisfied.QUOTA)
        return None

    def _never_fits(self, cluster: Cluster, of: RequestClass) -> bool:
        known = of.never_fits
        if known is None or known[0] is not cluster.inventory:
            known = of.never_fits = cluster.inventory, never_fits(cluster, of.gang)
        return known[1]
