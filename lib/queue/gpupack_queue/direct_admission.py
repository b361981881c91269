# SPDX-License-Identifier: Apache-2.0
"""Admission of a job that does not wait in the queue: it starts now, or gets the reason.

Such a job is for example an ungated pod, which kube-scheduler tries again. It passes pending jobs
only where a pending job could: within its quota, outside reserved places, and not within a strict
order.
"""

from gpupack_placement.cluster import Cluster
from gpupack_queue.backfill_reservations import BackfillReservations
from gpupack_queue.charge import Charge
from gpupack_queue.explanation import Explainer
from gpupack_queue.job import Job, Places, Rank
from gpupack_queue.pending_jobs import JobClass, PendingJob, RequestClass
from gpupack_queue.quota_planner import QuotaPlanner
from gpupack_queue.reasons import Wait
from gpupack_queue.reservation import Planner
from gpupack_queue.session import Session
from gpupack_queue.state import State


class DirectAdmission:
    """Admission attempts in one state; reservations of queue heads include an admitted job."""

    def __init__(self, state: State, cluster: Cluster, plan: Planner, now: float) -> None:
        self._state, self._cluster, self._plan, self._now = state, cluster, plan, now
        self._session = Session(cluster, state.reserved.values())
        self._planner = QuotaPlanner(state.quota, plan)
        self._reservations = BackfillReservations(state, self._session, plan, now)

    def try_admit(self, job: Job) -> Places | Wait:
        """Return its places, or why it is not admitted."""
        places = self._place(job)
        if places is not None:
            return places
        rank = Rank(-job.priority, job.submitted, job.number, job.id)
        entry = PendingJob(job, rank, JobClass(job.tenant, RequestClass(job.gang)), self._now)
        return Explainer(self._state, self._cluster, self._plan, self._now).explain(entry)

    def _place(self, job: Job) -> Places | None:
        cluster = self._session.cluster
        if self._is_behind_queue_head(job) or not self._planner.may_fit_quota(cluster, job):
            return None
        found = self._planner.place(cluster, job)
        if found is None or not self._fits_with_victims(job, found[1]):
            return None
        self._reservations.add_last_heads()
        try:
            if self._reservations.try_backfill(job, found[0]):
                return found[0]
            reserved = self._reservations.cluster_with_reservations(job)
            found = None if reserved is None else self._planner.place(reserved, job)
            if found is None or not self._fits_with_victims(job, found[1]):
                return None
            return found[0] if self._reservations.try_backfill(job, found[0]) else None
        finally:
            self._reservations.save()

    def _fits_with_victims(self, job: Job, charge: Charge) -> bool:
        return self._state.quota.fits_with_victims(job.tenant, charge)

    def _is_behind_queue_head(self, job: Job) -> bool:
        """Tell whether any job waits in the same strict order."""
        heads = self._planner.strict_heads(self._state.pending, self._session.cluster, job.tenant)
        return next(heads, None) is not None
