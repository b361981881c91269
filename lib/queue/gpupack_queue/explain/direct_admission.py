# SPDX-License-Identifier: Apache-2.0
"""Admission of a job that does not wait in the queue: it starts now, or gets the reason.

Such a job is for example an ungated pod, which kube-scheduler tries again. It passes pending jobs
only where a pending job could: within its quota, outside reserved places, and not within a strict
order.
"""

from gpupack_placement.cluster import Cluster
from gpupack_queue.admission.start_check import StartCheck
from gpupack_queue.admission.strict_order import StrictOrder
from gpupack_queue.explain.explanation import Explainer
from gpupack_queue.explain.reasons import Wait
from gpupack_queue.job import Job, Places, Rank
from gpupack_queue.pending.pending_jobs import JobClass, PendingJob, RequestClass
from gpupack_queue.planning import Planner
from gpupack_queue.quotas.quota_planner import QuotaPlanner
from gpupack_queue.reservations.backfill import Backfill
from gpupack_queue.reservations.backfill_reservations import BackfillReservations
from gpupack_queue.start import Now
from gpupack_queue.state.queue_state import State
from gpupack_queue.state.session import Session
from gpupack_queue.windows.holds import WindowHolds
from gpupack_queue.windows.upcoming import UpcomingWindows


class DirectAdmission:
    """Admission attempts in one state; reservations of queue heads include an admitted job."""

    def __init__(self, state: State, cluster: Cluster, plan: Planner, now: float) -> None:
        self._state, self._cluster, self._plan, self._now = state, cluster, plan, now
        self._session = Session(cluster, state.reserved.values())
        self._planner = QuotaPlanner(state.quota, plan)
        self._reservations = BackfillReservations(state, self._session, plan, now)
        self._strict = StrictOrder(state, self._session.snapshot, self._planner)
        self._holds = WindowHolds(state, self._session, plan, now)
        self._holds.place_all()
        self._check = StartCheck(
            state,
            self._session,
            self._planner,
            strict=self._strict,
            backfill=Backfill(state, self._session, plan, now, self._reservations),
            upcoming=UpcomingWindows(state, self._session, plan, now),
        )

    def try_admit(self, job: Job) -> Places | Wait:
        """Return its places, or why it is not admitted."""
        rank = Rank(-job.priority, job.submitted, job.number, job.id)
        entry = PendingJob(job, rank, JobClass(job.tenant, RequestClass(job.gang)), self._now)
        self._reservations.add_last_heads()
        self._strict.block_behind_pending(entry)
        try:
            with self._holds.released_for(job):
                answer = self._check.check(entry)
        finally:
            self._reservations.save()
        if isinstance(answer, Now):
            return answer.placements
        explainer = Explainer(
            self._state, self._cluster, self._plan, self._now, behind_pending=True
        )
        return explainer.explain(entry)
