# SPDX-License-Identifier: Apache-2.0
"""Elastic gangs grow on GPUs that no pending job can use."""

from heapq import heapify, heappop, heappush

from gpupack_queue.cycle.context import CycleContext
from gpupack_queue.job import JobId
from gpupack_queue.pending.elastic_gangs import GrowthCandidates
from gpupack_queue.start import Now


class Grow:
    """Admits extra workers of elastic gangs."""

    def run(self, cycle: CycleContext, /) -> None:
        """Admit extra workers of elastic gangs, after all pending jobs."""
        if not cycle.is_complete or cycle.strict.holds_back_all:
            return
        heap = [
            (cycle.order.precedence(cursor.entry), n, cursor)
            for n, cursor in enumerate(self._growth_candidates(cycle))
        ]
        heapify(heap)
        while heap:
            if cycle.is_full():
                return
            _, number, cursor = heappop(heap)
            if isinstance(cycle.try_admit(cursor.entry), Now) and cursor.advance():
                heappush(heap, (cycle.order.precedence(cursor.entry), number, cursor))

    def _growth_candidates(self, cycle: CycleContext) -> list[GrowthCandidates]:
        """Return the gangs that start now, and those that were not resized recently.

        Gangs that are to end, to move or to shrink are left out of the latter.
        """
        state = cycle.state
        cursors = state.elastic.extra_workers_of_starting(cycle.starting_elastic, cycle.now)
        if state.elastic:
            ready, resized = state.elastic.find_growable(
                state.pending,
                cycle.session.cluster,
                leaving=self._ending_jobs(cycle),
                calm_since=cycle.now - cycle.rules.grow_after_seconds,
            )
            cursors += ready
            cycle.look_again(resized + cycle.rules.grow_after_seconds)
        return [
            cursor
            for cursor in cursors
            if cursor.entry.job.tenant not in cycle.restrictions.excluded
        ]

    def _ending_jobs(self, cycle: CycleContext) -> set[JobId]:
        """Return the jobs that are to end or to move, and the gangs whose extra workers are."""
        ids = cycle.state.running_victims() | {move.job for move in cycle.moves}
        made = [*cycle.preemptions, *(each.preempt for each in cycle.consolidations)]
        ids |= {victim.job for preempt in made for victim in preempt.victims}
        extras = (cycle.state.running.extra_workers.get(job) for job in tuple(ids))
        return ids | {one.job.extends for one in extras if one and one.job.extends is not None}
