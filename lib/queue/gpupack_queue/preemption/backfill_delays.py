# SPDX-License-Identifier: Apache-2.0
"""The bounded delay of a queue head by a wrong estimate.

    lacks GPUs ─► would fit without jobs that were backfilled ─delay─► those in the way are
    preempted

These jobs were speculatively backfilled before it. During the delay no further job is, and no job
takes the places that the queue head would have. Those that exceed their estimates are preempted
first. A job that is not in the way is spared.
"""

from collections.abc import Sequence
from math import inf

from gpupack_devices.units import WHOLE_GPU
from gpupack_placement.cluster import Cluster
from gpupack_queue.charge import Charge
from gpupack_queue.decisions import Preempt, PreemptionReason, Victim
from gpupack_queue.job import Job, Places, RunningJob
from gpupack_queue.preemption.planner import PlannedPreemption
from gpupack_queue.quotas.quota_planner import QuotaPlanner
from gpupack_queue.running.projected_cluster import adopt_job, allocate_job
from gpupack_queue.state.queue_state import State
from gpupack_queue.state.session import Session
from gpupack_queue.windows.holds import protected_jobs


class BackfillDelays:
    """The wrong estimates of one cycle."""

    def __init__(self, state: State, session: Session, planner: QuotaPlanner, now: float) -> None:
        self._state, self._session, self._planner, self._now = state, session, planner, now
        self._delay = state.quota.rules.max_backfill_delay_seconds
        self.due_at = inf
        """The next time at which a delay is over."""

    def start_delay(self, job: Job) -> bool:
        """Start the delay of a job that would fit without the jobs that were backfilled.

        The result is true if it starts now.
        """
        backfilled = self._state.speculative
        if not backfilled.jobs_before(job.id) or job.id in backfilled.delayed_since:
            return False
        releases = self._state.pending.releases
        if backfilled.checked_at_release.get(job.id) == releases:
            return False
        if self._without(job, self._running_speculative(job)) is None:
            backfilled.checked_at_release[job.id] = releases
            return False
        backfilled.delayed_since[job.id] = self._now
        return True

    def preempt_after_delay(self, job: Job) -> PlannedPreemption | None:
        """Return the preemption of backfilled jobs for a job; None: none, or not yet.

        The delay is dropped if it is over and the job would not fit without them.
        """
        since = self._state.speculative.delayed_since.get(job.id)
        if since is None:
            return None
        if self._now < since + self._delay:
            self.due_at = min(self.due_at, since + self._delay)
            return None
        all_of_them = self._running_speculative(job)
        late = [job for job in all_of_them if self._exceeds_estimate(job)]
        for backfilled in (late, all_of_them):
            found = self._without(job, backfilled) if backfilled else None
            if found is not None:
                return self._preemption(job, self._in_the_way(job, found[0], backfilled), *found)
        del self._state.speculative.delayed_since[job.id]
        return None

    def _running_speculative(self, job: Job) -> list[RunningJob]:
        """Return the backfilled jobs that can be preempted for the job, the largest loss first."""
        stopping = self._state.running_victims() | protected_jobs(self._state, self._now, job)
        found = map(self._state.running.get, self._state.speculative.jobs_before(job.id))
        running = [one for one in found if one is not None and one.job.id not in stopping]
        return sorted(running, key=lambda one: (-one.loss(self._now), one.job.id))

    def _exceeds_estimate(self, job: RunningJob) -> bool:
        return job.job.expected_end(job.started) <= self._now

    def _without(self, job: Job, jobs: Sequence[RunningJob]) -> tuple[Places, Charge] | None:
        return self._planner.place(_emptied(self._session.cluster, jobs), job)

    def _in_the_way(self, job: Job, places: Places, jobs: Sequence[RunningJob]) -> list[RunningJob]:
        """Return the backfilled jobs that have to end for the job to fit on these places."""
        cluster = _emptied(self._session.cluster, jobs)
        adopt_job(cluster, job, places)
        return [job for job in jobs if not allocate_job(cluster, job.job, job.placements)]

    def _preemption(
        self, job: Job, preempted: Sequence[RunningJob], places: Places, charge: Charge
    ) -> PlannedPreemption:
        extras = self._state.extra_workers_of(preempted)
        victims = tuple(
            Victim(
                one.job.id, PreemptionReason.SPECULATIVE_BACKFILL, one.loss(self._now) / WHOLE_GPU
            )
            for one in preempted
        )
        victims += tuple(
            Victim(one.job.id, PreemptionReason.ELASTIC_SCALE_DOWN, 0.0) for one in extras
        )
        return PlannedPreemption(Preempt(job.id, victims, places), (*preempted, *extras), charge)


def _emptied(cluster: Cluster, jobs: Sequence[RunningJob]) -> Cluster:
    """Return the cluster without these jobs."""
    empty = cluster.overlay()
    for job in jobs:
        for placement in job.placements:
            empty.assume_free(placement)
    return empty
