# SPDX-License-Identifier: Apache-2.0
"""The pending jobs are tried in their order: priority, share, age."""

from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from math import inf

from gpupack_queue.cycle.actions.consolidate import Consolidate
from gpupack_queue.cycle.actions.preempt import Preempt
from gpupack_queue.cycle.context import CycleContext
from gpupack_queue.pending.pending_jobs import JobClass, PendingJob
from gpupack_queue.rules import OrderPolicy
from gpupack_queue.start import Never, NotNow, Now


class AdmitInOrder:
    """Admits pending jobs, and preempts or moves other jobs for those that do not fit."""

    def run(self, cycle: CycleContext, /) -> None:
        """Try the pending jobs, the first one first."""
        _Pass(cycle).run()


@dataclass(slots=True)
class _ClassCursor:
    """The jobs of a job class that have not been tried yet, the next one first."""

    job_class: JobClass
    entries: list[PendingJob]
    next: int = 0

    @property
    def entry(self) -> PendingJob:
        return self.entries[self.next]


class _Pass:
    """One pass over the pending jobs."""

    def __init__(self, cycle: CycleContext) -> None:
        self._cycle, self._preempt, self._consolidate = cycle, Preempt(cycle), Consolidate(cycle)

    def run(self) -> None:
        """Try the pending jobs in their order.

        An admission makes its tenant's share larger. That can only move jobs back in the order,
        which is seen when they are next. Victims make shares smaller, and then the order is
        computed again.
        """
        cycle, precedence_of = self._cycle, self._cycle.order.precedence
        heap = [
            (precedence_of(cursor.entry), n, cursor) for n, cursor in enumerate(self._cursors())
        ]
        heapify(heap)
        while heap and not cycle.strict.holds_back_all and not cycle.is_full():
            expected, number, cursor = heappop(heap)
            precedence = precedence_of(cursor.entry)
            if precedence > expected:
                heappush(heap, (precedence, number, cursor))
                continue
            preemptions = len(cycle.preemptions)
            self._try_next(cursor)
            if cursor.next < len(cursor.entries):
                heappush(heap, (precedence_of(cursor.entry), number, cursor))
            if cycle.rules.by_share and len(cycle.preemptions) > preemptions:
                heap = [(precedence_of(t.entry), n, t) for _, n, t in heap]
                heapify(heap)
        self._preempt.finish()
        self._consolidate.finish()

    def _try_next(self, cursor: _ClassCursor) -> None:
        """Try the next job of a class, and apply the outcome to the other jobs of the class."""
        cycle, entry = self._cycle, cursor.entry
        if entry.job.tenant in cycle.restrictions.excluded:
            self._skip_class(cursor)
            return
        answer = cycle.try_admit(entry)
        if isinstance(answer, Now):
            cursor.next += 1
        elif answer is NotNow.WOULD_DELAY:
            cycle.strict.block_cohort(entry)
            cursor.entries = cycle.backfill.ending_in_time(cursor.entries[cursor.next + 1 :])
            cursor.next = 0
        elif answer is NotNow.RESERVED_FOR_WINDOW:
            rest = cursor.entries[cursor.next + 1 :]
            cursor.entries = [each for each in rest if cycle.upcoming.ignores(each.job)]
            cursor.next = 0
        elif answer is NotNow.VICTIMS_HOLD_QUOTA:
            cursor.entries = []
            cycle.strict.block_tenant(entry)
        elif isinstance(answer, Never) or answer is NotNow.BEHIND_QUEUE_HEAD:
            cursor.entries = []
        elif self._preempt.run_for(entry, answer):
            cursor.next += 1
        else:
            cursor.entries = []
            if answer is NotNow.NO_GPUS:
                cycle.strict.block_cohort(entry)
                cycle.reservations.add_head(entry)
                self._consolidate.run_for(entry)
            else:
                cycle.strict.block_tenant(entry)

    def _skip_class(self, cursor: _ClassCursor) -> None:
        """Skip a job whose tenant is excluded from this cycle; keep its reservation."""
        cycle, entry = self._cycle, cursor.entry
        cursor.entries = []
        if cycle.strict.holds_back(entry):
            return
        if not cycle.planner.may_fit_quota(cycle.session.cluster, entry.job):
            cycle.strict.block_tenant(entry)
            return
        cycle.strict.block_cohort(entry)
        cycle.reservations.skip_head(entry)

    def _cursors(self) -> list[_ClassCursor]:
        """Return the cursors of all pending jobs but those that were served before."""
        state = self._cycle.state
        waiting, served = state.pending, state.reserved.keys() | self._cycle.served
        entries = [waiting.get(job) for job in served]
        apart = {id(entry.job_class) for entry in entries if entry is not None}
        cursors = []
        for job_class in self._classes_to_try():
            if id(job_class) in apart:
                rest = [entry for entry in job_class.entries if entry.job.id not in served]
                cursors.append(_ClassCursor(job_class, rest))
            else:
                cursors.append(_ClassCursor(job_class, job_class.entries))
        return [cursor for cursor in cursors if cursor.entries]

    def _classes_to_try(self) -> Iterable[JobClass]:
        """Return the job classes to try.

        A job class that is known to fail is left out where its failure has no effect on other job
        classes.
        """
        state, rules = self._cycle.state, self._cycle.rules
        classes = state.pending.job_classes()
        looks_at_all = (
            rules.order is OrderPolicy.STRICT
            or rules.reserve_after_seconds < inf
            or rules.preemption.any
            or bool(state.running.extra_workers)
            or any(cohort.order for cohort in state.quota.quotas.cohorts)
        )
        if looks_at_all:
            return classes
        cluster = self._cycle.session.cluster
        return [each for each in classes if state.pending.may_fit(each.request_class, cluster)]
