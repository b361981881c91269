# SPDX-License-Identifier: Apache-2.0
"""The check whether a pending job may start now: one function for every caller.

    can the nodes and its quota ever run it? ─► is a queue head of its strict order before it?
        ─► does its quota allow it? ─► does it fit? ─► do victims still hold its quota?
        ─► would it delay a queue head that has a reservation, or a window?

The cycle, the admission of pods outside the queue, what-if and the simulator act by the answer. The
explanation of a wait shows it.
"""

from dataclasses import replace
from typing import TypeAlias

from gpupack_queue.admission.strict_order import StrictOrder
from gpupack_queue.charge import Charge
from gpupack_queue.job import Places
from gpupack_queue.pending.pending_jobs import JobClass, PendingJob, RequestClass
from gpupack_queue.quotas.quota_planner import QuotaPlanner
from gpupack_queue.reservations.backfill import Backfill
from gpupack_queue.start import Never, NotNow, Now
from gpupack_queue.state.queue_state import State
from gpupack_queue.state.session import Session
from gpupack_queue.windows.upcoming import UpcomingWindows

Answer: TypeAlias = Now | Never | NotNow


class StartCheck:
    """The checks in one session.

    They remember in the class of a request that it failed. `strict`, `backfill` and `upcoming`
    None: these reasons are left out.
    """

    def __init__(
        self,
        state: State,
        session: Session,
        planner: QuotaPlanner,
        *,
        strict: StrictOrder | None = None,
        backfill: Backfill | None = None,
        upcoming: UpcomingWindows | None = None,
    ) -> None:
        self._state, self._session, self._planner = state, session, planner
        self._strict, self._backfill = strict, backfill
        self._upcoming = upcoming

    def never(self, of: JobClass) -> Never | None:
        """Return why jobs of the class can never start; None: they can."""
        return self._state.never.answer(self._session.snapshot, self._planner, of)

    def check(self, entry: PendingJob) -> Answer:
        """Return where the job starts now, or why it does not.

        A job that starts is placed in the clusters of the reservations from then on.
        """
        never = self.never(entry.job_class)
        if never is not None:
            return never
        if self._strict is not None and self._strict.holds_back(entry):
            return NotNow.BEHIND_QUEUE_HEAD
        return self._check_now(entry)

    def check_alone(self, entry: PendingJob) -> Answer:
        """Check a job for which GPUs of its window are free, whatever failed for others."""
        job_class = JobClass(entry.job.tenant, RequestClass(entry.job.gang))
        return self.check(replace(entry, job_class=job_class))

    def _check_now(self, entry: PendingJob) -> Answer:
        """Check a job that can start some time and that no strict order holds back."""
        job, cluster = entry.job, self._session.cluster
        if not self._planner.may_fit_quota(cluster, job):
            return NotNow.NO_QUOTA
        request_class = entry.job_class.request_class
        if not self._state.pending.may_fit(request_class, cluster):
            return NotNow.NO_GPUS
        if self._backfill is not None and self._backfill.would_delay(entry):
            return NotNow.WOULD_DELAY
        places = self._planner.plan(cluster, job)
        if places is None:
            self._state.pending.record_failure(request_class)
            return NotNow.NO_GPUS
        if self._upcoming is None or self._upcoming.ignores(job):
            return self._check_at(entry, places)
        return self._check_before_windows(entry, places, self._upcoming)

    def _check_before_windows(
        self, entry: PendingJob, places: Places, upcoming: UpcomingWindows
    ) -> Answer:
        """Check a job that may still run when a window begins."""
        job = entry.job
        permitted = places if upcoming.permits(job, places) else upcoming.places_outside(job)
        if permitted is None:
            return NotNow.RESERVED_FOR_WINDOW
        answer = self._check_at(entry, permitted)
        if isinstance(answer, Now) and not upcoming.permits(job, answer.placements):
            return NotNow.RESERVED_FOR_WINDOW
        return answer

    def _check_at(self, entry: PendingJob, places: Places) -> Answer:
        """Check these places, and others if they are not permitted."""
        job = entry.job
        found = self._planner.permitted(self._session.cluster, job, places)
        if found is None:
            return NotNow.NO_QUOTA
        if not self._state.quota.fits_with_victims(job.tenant, found[1]):
            return NotNow.VICTIMS_HOLD_QUOTA
        if self._backfill is None:
            return Now(*found)
        if self._backfill.reservations.is_delay_unknown(job):
            return NotNow.WOULD_DELAY
        if self._backfill.try_backfill(job, found[0]):
            return Now(*found)
        return self._check_outside(entry, self._backfill, found)

    def _check_outside(
        self, entry: PendingJob, backfill: Backfill, first: tuple[Places, Charge]
    ) -> Answer:
        """Check places that avoid the reservations before the job, then the first ones again.

        For these the reservations may move, as long as they start at the same time. A refusal is
        remembered for the class of the request, unless the quota decided it: other tenants may have
        another quota.
        """
        job, cluster = entry.job, backfill.reservations.cluster_with_reservations(entry.job)
        places = None if cluster is None else self._planner.plan(cluster, job)
        found = None
        if cluster is not None and places is not None:
            found = self._planner.permitted(cluster, job, places)
        if found is not None and not self._state.quota.fits_with_victims(job.tenant, found[1]):
            return NotNow.VICTIMS_HOLD_QUOTA
        if found is not None and backfill.try_backfill(job, found[0]):
            return Now(*found)
        moved = backfill.try_move(entry, first[0])
        if moved:
            return Now(*first)
        if moved is not None and (places is None or (found is not None and found[0] == places)):
            backfill.remember_delay(entry)
        return NotNow.WOULD_DELAY
