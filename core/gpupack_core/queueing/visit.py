# SPDX-License-Identifier: Apache-2.0
"""Admission of a job that does not wait in the queue: it starts now, or gets the reason.

Such a job is for example an ungated pod, which kube-scheduler tries again. It passes pending jobs
only where a pending job could: within its quota, outside reserved places, and not within a strict
order.
"""

from gpupack_core.cluster import Cluster
from gpupack_core.queueing.backfill_reservations import BackfillReservations
from gpupack_core.queueing.charge import Charge
from gpupack_core.queueing.job import Job, Places, Rank
from gpupack_core.queueing.reasons import Wait
from gpupack_core.queueing.reservation import Planner
from gpupack_core.queueing.session import Session
from gpupack_core.queueing.state import State
from gpupack_core.queueing.waiting import Entry, Lane, Shape
from gpupack_core.queueing.why import Why
from gpupack_core.queueing.within import WithinQuota


class Visit:
    """Admission attempts in one state; reservations of queue heads include an admitted job."""

    def __init__(self, state: State, cluster: Cluster, plan: Planner, now: float) -> None:
        self._state, self._cluster, self._plan, self._now = state, cluster, plan, now
        self._sheet = Session(cluster, state.reserved.values())
        self._within = WithinQuota(state.quota, plan)
        self._foresight = BackfillReservations(state, self._sheet, plan, now)

    def of(self, job: Job) -> Places | Wait:
        """Return its places, or why it is not admitted."""
        places = self._places(job)
        if places is not None:
            return places
        rank = Rank(-job.priority, job.submitted, job.number, job.id)
        entry = Entry(job, rank, Lane(job.tenant, Shape(job.gang)), self._now)
        return Why(self._state, self._cluster, self._plan, self._now).of(entry)

    def _places(self, job: Job) -> Places | None:
        sheet = self._sheet.cluster
        if self._is_behind(job) or not self._within.may_pay(sheet, job):
            return None
        found = self._within.places(sheet, job)
        if found is None or not self._may_hold(job, found[1]):
            return None
        self._foresight.add_last_heads()
        try:
            if self._foresight.try_backfill(job, found[0]):
                return found[0]
            beside = self._foresight.cluster_with_reservations(job)
            found = None if beside is None else self._within.places(beside, job)
            if found is None or not self._may_hold(job, found[1]):
                return None
            return found[0] if self._foresight.try_backfill(job, found[0]) else None
        finally:
            self._foresight.save()

    def _may_hold(self, job: Job, charge: Charge) -> bool:
        return self._state.quota.fits_with_victims(job.tenant, charge)

    def _is_behind(self, job: Job) -> bool:
        """Tell whether any job waits in the same strict order."""
        heads = self._within.strict_heads(self._state.pending, self._sheet.cluster, job.tenant)
        return next(heads, None) is not None
