# SPDX-License-Identifier: Apache-2.0
"""The bounded delay of a queue head by a wrong estimate.

    lacks GPUs ──► would fit without its guests ──guess_delay──► the guests in the way are preempted

Guests are jobs that were speculatively backfilled before it. During the delay no further job is,
and no job takes the places that the queue head would have. Guests that exceed their estimates are
preempted first. A guest that is not in the way is spared.
"""

from collections.abc import Sequence
from math import inf

from gpupack_core.cluster import Cluster
from gpupack_core.queueing.charge import Charge
from gpupack_core.queueing.decisions import Preempt, PreemptionReason, Victim
from gpupack_core.queueing.job import Job, Places, RunningJob
from gpupack_core.queueing.preemption import PlannedPreemption
from gpupack_core.queueing.projected_cluster import adopt_job, allocate_job
from gpupack_core.queueing.quota_planner import QuotaPlanner
from gpupack_core.queueing.session import Session
from gpupack_core.queueing.state import State
from gpupack_core.units import WHOLE_GPU


class BackfillDelays:
    """The wrong estimates of one cycle."""

    def __init__(self, state: State, sheet: Session, within: QuotaPlanner, now: float) -> None:
        self._state, self._session, self._planner, self._now = state, sheet, within, now
        self._delay = state.quota.rules.max_backfill_delay_seconds
        self.due_at = inf
        """The next time at which a delay is over."""

    def start_delay(self, job: Job) -> bool:
        """Start the delay of a job that lacks GPUs and would fit without its guests.

        The result is true if it starts now.
        """
        guests = self._state.speculative
        if not guests.jobs_before(job.id) or job.id in guests.delayed_since:
            return False
        frees = self._state.pending.releases
        if guests.checked_at_release.get(job.id) == frees:
            return False
        if self._without(job, self._running_speculative(job)) is None:
            guests.checked_at_release[job.id] = frees
            return False
        guests.delayed_since[job.id] = self._now
        return True

    def preempt_after_delay(self, job: Job) -> PlannedPreemption | None:
        """Return the preemption of guests for a job that lacks GPUs; None: none, or not yet.

        The delay is dropped if it is over and the job would not fit without its guests.
        """
        since = self._state.speculative.delayed_since.get(job.id)
        if since is None:
            return None
        if self._now < since + self._delay:
            self.due_at = min(self.due_at, since + self._delay)
            return None
        all_of_them = self._running_speculative(job)
        late = [guest for guest in all_of_them if self._exceeds_estimate(guest)]
        for guests in (late, all_of_them):
            found = self._without(job, guests) if guests else None
            if found is not None:
                return self._preemption(job, self._in_the_way(job, found[0], guests), *found)
        del self._state.speculative.delayed_since[job.id]
        return None

    def _running_speculative(self, job: Job) -> list[RunningJob]:
        """Return the guests that run and are not being preempted, the largest loss first."""
        stopping = self._state.running_victims()
        found = map(self._state.running.get, self._state.speculative.jobs_before(job.id))
        running = [one for one in found if one is not None and one.job.id not in stopping]
        return sorted(running, key=lambda one: (-one.loss(self._now), one.job.id))

    def _exceeds_estimate(self, guest: RunningJob) -> bool:
        return guest.job.expected_end(guest.started) <= self._now

    def _without(self, job: Job, jobs: Sequence[RunningJob]) -> tuple[Places, Charge] | None:
        return self._planner.place(_emptied(self._session.cluster, jobs), job)

    def _in_the_way(self, job: Job, places: Places, jobs: Sequence[RunningJob]) -> list[RunningJob]:
        """Return the guests that have to end for the job to fit on these places."""
        cluster = _emptied(self._session.cluster, jobs)
        adopt_job(cluster, job, places)
        return [guest for guest in jobs if not allocate_job(cluster, guest.job, guest.placements)]

    def _preemption(
        self, job: Job, stopped: Sequence[RunningJob], places: Places, charge: Charge
    ) -> PlannedPreemption:
        extras = self._state.extra_workers_of(stopped)
        victims = tuple(
            Victim(one.job.id, PreemptionReason.ESTIMATE, one.loss(self._now) / WHOLE_GPU)
            for one in stopped
        )
        victims += tuple(Victim(one.job.id, PreemptionReason.SHRINK, 0.0) for one in extras)
        return PlannedPreemption(Preempt(job.id, victims, places), (*stopped, *extras), charge)


def _emptied(cluster: Cluster, jobs: Sequence[RunningJob]) -> Cluster:
    """Return the cluster without these guests."""
    empty = cluster.overlay()
    for guest in jobs:
        for placement in guest.placements:
            empty.suppose_free(placement)
    return empty
