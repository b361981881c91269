# SPDX-License-Identifier: Apache-2.0
"""One who does not wait here: it goes in now, or is told why not and asks again.

As for a pod that somebody else keeps waiting. It passes those who wait only where a job of theirs
could: within its quota, in no place that is kept or reserved for another, and in no strict order.
"""

from gpupack_core.cluster import Cluster
from gpupack_core.queueing.charge import Charge
from gpupack_core.queueing.foresight import Foresight
from gpupack_core.queueing.job import Job, Places, Rank
from gpupack_core.queueing.reasons import Wait
from gpupack_core.queueing.room import Planner
from gpupack_core.queueing.sheet import Sheet
from gpupack_core.queueing.state import State
from gpupack_core.queueing.waiting import Entry, Lane, Shape
from gpupack_core.queueing.why import Why
from gpupack_core.queueing.within import WithinQuota


class Visit:
    """Of one state. What is foreseen for those who wait takes in whoever goes in."""

    def __init__(self, state: State, cluster: Cluster, plan: Planner, now: float) -> None:
        self._state, self._cluster, self._plan, self._now = state, cluster, plan, now
        self._sheet = Sheet(cluster, state.reserved.values())
        self._within = WithinQuota(state.books, plan)
        self._foresight = Foresight(state, self._sheet, plan, now)

    def of(self, job: Job) -> Places | Wait:
        """Where it goes, or why it does not."""
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
        self._foresight.heed_heads()
        try:
            if self._foresight.lets(job, found[0]):
                return found[0]
            beside = self._foresight.beside(job)
            found = None if beside is None else self._within.places(beside, job)
            if found is None or not self._may_hold(job, found[1]):
                return None
            return found[0] if self._foresight.lets(job, found[0]) else None
        finally:
            self._foresight.remember()

    def _may_hold(self, job: Job, charge: Charge) -> bool:
        return self._state.books.may_hold(job.tenant, charge)

    def _is_behind(self, job: Job) -> bool:
        """Whether somebody waits in the same strict order."""
        heads = self._within.strict_heads(self._state.waiting, self._sheet.cluster, job.tenant)
        return next(heads, None) is not None
