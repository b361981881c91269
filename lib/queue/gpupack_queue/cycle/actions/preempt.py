# SPDX-License-Identifier: Apache-2.0
"""Other jobs end for a job that does not fit: speculatively backfilled ones, or by a policy."""

from gpupack_queue.admission.start_check import Answer
from gpupack_queue.cycle.context import CycleContext
from gpupack_queue.pending.pending_jobs import PendingJob
from gpupack_queue.preemption.backfill_delays import BackfillDelays
from gpupack_queue.preemption.planner import PlannedPreemption, PreemptionPlanner
from gpupack_queue.start import NotNow


class Preempt:
    """The preemptions of one cycle."""

    def __init__(self, cycle: CycleContext) -> None:
        self._cycle = cycle
        shared = cycle.state, cycle.session, cycle.planner
        self._planner = PreemptionPlanner(*shared, cycle.backfill, cycle.now)
        self._delays = BackfillDelays(*shared, cycle.now)

    def run_for(self, entry: PendingJob, answer: Answer) -> bool:
        """Preempt other jobs for a pending one, if that is possible; return whether it was."""
        if answer is NotNow.NO_GPUS and self._preempt_speculative(entry):
            return True
        preemption = self._planner.plan(entry) if self._cycle.restrictions.preempt else None
        if self._planner.has_searched:
            self._cycle.has_searched = True
            self._cycle.reservations.stop_computing()
        if preemption is None:
            return False
        if not self._is_permitted(entry, preemption):
            entry.job_class.searched_at = self._cycle.now
            return False
        self._cycle.preempt(entry, preemption)
        return True

    def _is_permitted(self, entry: PendingJob, preemption: PlannedPreemption) -> bool:
        """Tell whether the preemptor delays no window and takes nothing of an active one."""
        job, places, victims = entry.job, preemption.decision.placements, preemption.victims
        return self._cycle.upcoming.permits(job, places, without=victims) and (
            self._cycle.holds.permits(job, places, victims)
        )

    def finish(self) -> None:
        """Let the next cycle be due when another result is possible."""
        self._cycle.look_again(min(self._planner.due_at, self._delays.due_at))

    def _preempt_speculative(self, entry: PendingJob) -> bool:
        """Preempt speculatively backfilled jobs for this one, if due; return whether it was."""
        cycle = self._cycle
        if self._delays.start_delay(entry.job):
            cycle.reservations.discard({entry.job.id})
        may_preempt = cycle.restrictions.preempt
        preemption = self._delays.preempt_after_delay(entry.job) if may_preempt else None
        if preemption is None or not self._is_permitted(entry, preemption):
            return False
        cycle.preempt(entry, preemption)
        return True
