# SPDX-License-Identifier: Apache-2.0
"""Jobs move so that free GPUs come together for a queue head, if that is worth its cost."""

from gpupack_queue.cycle.context import CycleContext
from gpupack_queue.moves.consolidation import ConsolidationPlanner
from gpupack_queue.pending.pending_jobs import PendingJob


class Consolidate:
    """The consolidations of one cycle."""

    def __init__(self, cycle: CycleContext) -> None:
        self._cycle = cycle
        self._planner = ConsolidationPlanner(
            cycle.state, cycle.session, cycle.planner, cycle.reservations, cycle.now
        )

    def run_for(self, entry: PendingJob) -> None:
        """Move jobs for this one; not in a cycle that has searched for victims."""
        cycle = self._cycle
        if not cycle.restrictions.preempt:
            return
        found = self._planner.plan(entry, postpone=cycle.has_searched)
        if found is None:
            return
        moved = [running for running, _ in found.moves]
        if not cycle.upcoming.permits(entry.job, found.decision.preempt.placements, moved):
            entry.job_class.consolidation_searched_at = cycle.now
            return
        cycle.reservations.remove_head(entry.job)
        cycle.count(entry.job.tenant, found.charge, 1)
        cycle.session.hold(entry.job, found.decision.preempt.placements)
        for (running, charge), move in zip(found.moves, found.decision.moves, strict=True):
            cycle.count(running.job.tenant, running.charge, -1)
            cycle.count(running.job.tenant, charge, 1)
            cycle.session.hold(running.job, move.placements)
        cycle.consolidations.append(found.decision)
        cycle.reservations.record_move()

    def finish(self) -> None:
        """Let the next cycle be due when another result is possible."""
        self._cycle.look_again(self._planner.due_at)
