# SPDX-License-Identifier: Apache-2.0
"""What-if questions: cycles of the queue, on a copy of the queue and of its cluster.

    copy ─► settle: decide what is due, as if it were carried out at once
              └ nothing was due: the queue can remember what the cycles found out
         ─► answer: add one job; run cycles until it is admitted or preempts, or nothing is due

Decisions about other jobs count as carried out at once, but victims do not end: the time of their
end is unknown. For all other jobs the search for victims counts as done without result, which it is
where no decision is due.
"""

from dataclasses import dataclass
from typing import Final

from gpupack_placement.cluster import Cluster
from gpupack_placement.errors import NotHeld
from gpupack_queue.decisions import Admit, Decisions, Victim
from gpupack_queue.explain.reasons import Wait
from gpupack_queue.job import Job, JobId, Places
from gpupack_queue.pending.elastic_gangs import extra_worker
from gpupack_queue.planning import Planner
from gpupack_queue.queue import Queue
from gpupack_queue.running.projected_cluster import adopt_job
from gpupack_queue.state.queue_state import Findings

MAX_ROUNDS: Final = 64
"""The maximum number of cycles of one question.

Each cycle carries out all its decisions, so more are not expected.
"""

IDLE_ROUNDS: Final = 2
"""Cycles in a row without a decision: one searches for victims, the next makes reservations."""


@dataclass(frozen=True, slots=True)
class PredictedStart:
    """The job gets these places; the extra workers' places follow those of the gang.

    `victims`: the jobs that end or move before.
    """

    places: Places
    victims: tuple[Victim, ...] = ()


class WhatIf:
    """One what-if question; used once. The queue and the cluster belong to it from then on."""

    def __init__(self, queue: Queue, cluster: Cluster, plan: Planner, now: float) -> None:
        self._queue, self._cluster, self._plan, self._now = queue, cluster, plan, now

    def settle(self, *, thorough: bool = False) -> Findings | None:
        """Decide what is due anyway; return what the queue may remember, if nothing was due.

        `thorough`: the state has changed, so victims are searched again for all jobs.
        """
        is_settled, idle = True, 0
        max_idle = MAX_ROUNDS if thorough else IDLE_ROUNDS
        if thorough:
            self._queue.state.pending.forget_searches()
        for _ in range(MAX_ROUNDS):
            found = self._cycle()
            if found:
                is_settled, idle = False, 0
                self._carry_out(found)
                continue
            idle += 1
            if not self._is_due(found) or idle >= max_idle:
                break
        return self._queue.state.findings() if is_settled else None

    def answer(self, job: Job) -> PredictedStart | Wait:
        """Return what happens to one more job that is submitted now."""
        state = self._queue.state
        self._queue.submit(job, self._now)
        self._queue.permit_models(self._cluster, self._now, self._plan)
        entry = state.pending.get(job.id)
        assert entry is not None  # noqa: S101 - it was submitted just now
        state.pending.mark_searched(self._now, excluded=entry.job_class)
        stops: PredictedStart | None = None
        for _ in range(MAX_ROUNDS):
            found = self._cycle()
            if admitted := _admission_of(found, job.id):
                return admitted
            if stops is not None:
                return stops
            stops = _preemption_for(found, job.id)
            self._carry_out(found)
            if not found and not self._is_due(found):
                break
        return stops or self.explain(job.id)

    def explain(self, job: JobId) -> Wait:
        """Return why a job waits.

        Raises:
            NotHeld: it does not wait.
        """
        return self._queue.explain(job, self._cluster, self._now, self._plan)

    def _cycle(self) -> Decisions:
        return self._queue.cycle(self._cluster, self._now, self._plan)

    def _is_due(self, found: Decisions) -> bool:
        return found.due_at is not None and found.due_at <= self._now

    def _carry_out(self, found: Decisions) -> None:
        queue, cluster, now = self._queue, self._cluster, self._now
        for given_up in found.cancelled:
            queue.release(given_up.job, cluster, stuck=given_up.stuck)
        for admit in found.admitted:
            self._start(admit)
        for preempt in found.preemptions:
            queue.reserve(preempt, cluster, now)
        for decision in found.for_windows:
            queue.reserve_for_window(decision, now)
        for each in found.consolidations:
            queue.consolidate(each, cluster, now)
        for move in found.moves:
            running = queue.state.running.get(move.job)
            if running is not None:
                queue.reserve_for_move(running.job, move.placements, cluster, now)

    def _start(self, admit: Admit) -> None:
        job = self._job_of(admit.job)
        adopt_job(self._cluster, job, admit.placements)
        self._queue.start(job, admit.placements, self._cluster, self._now)

    def _job_of(self, job: JobId) -> Job:
        state = self._queue.state
        entry = state.pending.get(job)
        if entry is not None:
            return entry.job
        gang, _, number = job.rpartition("+")
        running = state.running.get(JobId(gang))
        if running is None:
            raise NotHeld(f"job {job} does not wait")
        return extra_worker(running.job, int(number))


def _admission_of(found: Decisions, job: JobId) -> PredictedStart | None:
    own = [each for each in found.admitted if each.job == job]
    extra = [each for each in found.admitted if each.job.startswith(f"{job}+")]
    places = tuple(place for each in own + extra for place in each.placements)
    return PredictedStart(places) if own else None


def _preemption_for(found: Decisions, job: JobId) -> PredictedStart | None:
    """Return the preemption or consolidation for it; the next cycle may still admit it at once."""
    made = (*found.preemptions, *(each.preempt for each in found.consolidations))
    stops = next((each for each in made if each.job == job), None)
    return PredictedStart(stops.placements, stops.victims) if stops else None
