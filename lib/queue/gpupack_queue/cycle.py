# SPDX-License-Identifier: Apache-2.0
"""One pass over the pending jobs: which start now, which preempt, which wait.

    jobs with reserved places ─► movable jobs on devices to drain: do they fit elsewhere? ─► Move
                              ─► the other jobs in order: priority, share, age
                                    │ fits the quota and the cluster ──────────► Admit
                                    │ fits once other jobs are preempted ──────► Preempt
                                    │ has waited long enough ──────────────────► reservation
                                    │  and movable jobs can run elsewhere ─────► Consolidate
                                    ├ can never start: it holds no job back
                                    └ otherwise it waits; in strict order, jobs behind it that
                                      compete with it, too
                              ─► elastic gangs: GPUs that no pending job can use ─► Admit

A cycle changes nothing but the memory of failures. It holds its decisions in a session.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from math import inf

from gpupack_placement.cluster import Cluster
from gpupack_queue.backfill_delays import BackfillDelays
from gpupack_queue.backfill_reservations import BackfillReservations
from gpupack_queue.charge import Charge
from gpupack_queue.consolidation import ConsolidationPlanner
from gpupack_queue.decisions import (
    Admit,
    CancelReservation,
    Consolidate,
    Decisions,
    Move,
    Preempt,
)
from gpupack_queue.elastic_gangs import GrowthCandidates
from gpupack_queue.in_place_restart import is_held_by_last_attempt
from gpupack_queue.job import Job, JobId, Places, RunningJob, Tenant
from gpupack_queue.moves import MovePlanner
from gpupack_queue.order import Order
from gpupack_queue.pending_jobs import JobClass, PendingJob
from gpupack_queue.preemption import PlannedPreemption, PreemptionPlanner
from gpupack_queue.quota import OrderPolicy
from gpupack_queue.quota_planner import QuotaPlanner
from gpupack_queue.reservation import Planner, Reservation, is_free
from gpupack_queue.session import Session
from gpupack_queue.start import Never, NotNow, Now
from gpupack_queue.start_check import Answer, StartCheck
from gpupack_queue.state import State
from gpupack_queue.strict_order import StrictOrder


@dataclass(slots=True)
class _ClassCursor:
    """The jobs of a job class that have not been tried yet, the next one first."""

    job_class: JobClass
    entries: list[PendingJob]
    next: int = 0

    @property
    def entry(self) -> PendingJob:
        return self.entries[self.next]


@dataclass(frozen=True, slots=True)
class Restrictions:
    """Restrictions of what a cycle decides: see Queue.cycle."""

    preempt: bool = True
    max_admissions: float = inf
    excluded: Collection[Tenant] = ()


class Cycle:
    """One scheduling cycle; used once."""

    def __init__(
        self,
        state: State,
        cluster: Cluster,
        plan: Planner,
        now: float,
        restrictions: Restrictions,
    ) -> None:
        self._state, self._quota, self._now = state, state.quota, now
        self._restrictions = restrictions
        self._complete = True
        self._rules, self._usage = state.quota.rules, state.quota.usage
        self._effective_usage = state.quota.effective_usage(state.running)
        self._order = Order(self._effective_usage)
        self._session = Session(cluster, state.reserved.values())
        self._planner = QuotaPlanner(state.quota, plan)
        self._strict = StrictOrder(state, self._session.snapshot, self._planner)
        self._reservations = BackfillReservations(
            state, self._session, plan, now, max_computed=self._rules.max_reservations_per_cycle
        )
        self._check = StartCheck(
            state,
            self._session,
            self._planner,
            strict=self._strict,
            reservations=self._reservations,
        )
        self._preemption_planner = PreemptionPlanner(
            state, self._session, self._planner, self._reservations, now
        )
        self._backfill_delays = BackfillDelays(state, self._session, self._planner, now)
        self._consolidation_planner = ConsolidationPlanner(
            state, self._session, self._planner, self._reservations, now
        )
        self._move_planner = MovePlanner(state, self._session, self._planner, plan, now)
        self._counted: list[tuple[Tenant, Charge, int]] = []
        self._held: list[tuple[Tenant, Charge]] = []
        self._admitted: list[Admit] = []
        self._served: set[JobId] = set()
        """The jobs among them that were admitted before their turn."""
        self._starting_elastic: list[Job] = []
        """The elastic gangs among them."""
        self._preemptions: list[Preempt] = []
        self._cancelled: list[CancelReservation] = []
        self._moves: list[Move] = []
        self._consolidations: list[Consolidate] = []
        self._due_at = inf

    def run(self) -> Decisions:
        """Return all decisions that can be made now."""
        try:
            for reservation in tuple(self._state.reserved.values()):
                self._serve_reservation(reservation)
            self._serve_beneficiaries()
            if self._restrictions.preempt:
                self._move()
            self._admit_in_order()
            self._grow()
        finally:
            for tenant, charge, sign in reversed(self._counted):
                self._usage.add(tenant, charge, sign=-sign)
            for tenant, charge in self._held:
                self._quota.held.add(tenant, charge, sign=-1)
        self._reservations.save(complete=self._complete)
        self._state.computes_reservations_next = (
            self._preemption_planner.has_searched and self._reservations.is_postponed
        )
        look_at = min(
            self._due_at,
            self._reservations.due_at,
            self._preemption_planner.due_at,
            self._backfill_delays.due_at,
            self._move_planner.due_at,
            self._consolidation_planner.due_at,
        )
        return Decisions(
            tuple(self._admitted),
            tuple(self._preemptions),
            tuple(self._cancelled),
            tuple(self._moves),
            tuple(self._consolidations),
            None if look_at == inf else look_at,
            self._complete,
        )

    def _serve_reservation(self, reservation: Reservation) -> None:
        """Admit a job with reserved places as soon as it fits, on these places or elsewhere.

        A job that restarts on its own places starts only there while the rest of its last attempt
        still holds them. The reservation is given up when the victims do not end, or the job does
        not become pending again, within the victims' grace period and the patience of the rules,
        and when the victims have ended and the job fits nowhere.
        """
        has_victims = bool(self._state.victims_of(reservation))
        patience = self._rules.preemption.victim_timeout_seconds
        cancelled_at = reservation.since + reservation.grace_seconds + patience
        job, is_pending = reservation.job, reservation.job.id in self._state.pending
        if reservation.in_place and has_victims and not is_pending:
            return
        if is_pending and self._serve_pending(reservation, cancelled_at):
            return
        if (has_victims or not is_pending) and self._now >= cancelled_at:
            stuck = tuple(running.job.id for running in self._state.victims_of(reservation))
            self._cancelled.append(CancelReservation(job.id, stuck))
        elif has_victims or not is_pending:
            self._due_at = min(self._due_at, cancelled_at)

    def _serve_pending(self, reservation: Reservation, cancelled_at: float) -> bool:
        """Admit a pending job with reserved places, if it fits; return whether all is decided.

        It may fit where victims have ended that were to end for it earlier.
        """
        job, has_victims = reservation.job, bool(self._state.victims_of(reservation))
        self._session.release(job, reservation.placements)
        self._count(job.tenant, reservation.charge, -1)
        if is_free(self._session.cluster, job, reservation.placements):
            found = self._planner.permitted(self._session.cluster, job, reservation.placements)
        elif self._now < cancelled_at and self._is_held_by_last_attempt(reservation):
            found, has_victims = None, True
            self._due_at = min(self._due_at, cancelled_at)
        else:
            found = self._planner.place(self._session.cluster, job)
        if found is not None and self._quota.fits_with_victims(job.tenant, found[1]):
            self._admit(job, *found)
            return True
        self._count(job.tenant, reservation.charge, 1)
        self._session.hold(job, reservation.placements)
        if has_victims:
            return False
        if found is None:
            self._cancelled.append(CancelReservation(job.id, ()))
        return True

    def _serve_beneficiaries(self) -> None:
        """Admit jobs whose victims have ended late, before any other job takes what these had."""
        for job in tuple(self._state.beneficiaries):
            entry = self._state.pending.get(job)
            if entry is None or job in self._state.reserved:
                continue
            if entry.job.tenant in self._restrictions.excluded:
                continue
            if isinstance(self._try_admit(entry), Now):
                self._served.add(job)

    def _is_held_by_last_attempt(self, reservation: Reservation) -> bool:
        return is_held_by_last_attempt(self._session.cluster, reservation, self._state.running)

    def _move(self) -> None:
        """Move jobs off devices to drain, before pending jobs: they were admitted earlier."""
        candidates = self._move_planner.candidates()
        if not candidates:
            return
        self._move_planner.respect_reservations()
        for running in candidates:
            tenant, charge = running.job.tenant, running.charge
            self._count(tenant, charge, -1)
            self._quota.held.add(tenant, charge, sign=-1)
            moved = self._move_planner.plan(running)
            self._quota.held.add(tenant, charge)
            if moved is None:
                self._count(tenant, charge, 1)
                continue
            self._count(tenant, moved.charge, 1)
            self._session.hold(running.job, moved.decision.placements)
            self._moves.append(moved.decision)
            self._reservations.record_move()
            self._move_planner.record_move()
        self._move_planner.save_reservations()

    def _admit_in_order(self) -> None:
        """Try the pending jobs in their order.

        An admission makes its tenant's share larger. That can only move jobs back in the order,
        which is seen when they are next. Victims make shares smaller, and then the order is
        computed again.
        """
        heap = [
            (self._order.precedence(cursor.entry), n, cursor)
            for n, cursor in enumerate(self._cursors())
        ]
        heapify(heap)
        while heap and not self._strict.holds_back_all:
            if len(self._admitted) >= self._restrictions.max_admissions:
                self._complete = False
                return
            expected, number, cursor = heappop(heap)
            entry = cursor.entry
            precedence = self._order.precedence(entry)
            if precedence > expected:
                heappush(heap, (precedence, number, cursor))
                continue
            preemptions = len(self._preemptions)
            self._try_next(cursor)
            if cursor.next < len(cursor.entries):
                heappush(heap, (self._order.precedence(cursor.entry), number, cursor))
            if self._rules.by_share and len(self._preemptions) > preemptions:
                heap = [(self._order.precedence(t.entry), n, t) for _, n, t in heap]
                heapify(heap)

    def _grow(self) -> None:
        """Admit extra workers of elastic gangs, after all pending jobs."""
        if not self._complete or self._strict.holds_back_all:
            return
        heap = [
            (self._order.precedence(cursor.entry), n, cursor)
            for n, cursor in enumerate(self._growth_candidates())
        ]
        heapify(heap)
        while heap:
            if len(self._admitted) >= self._restrictions.max_admissions:
                self._complete = False
                return
            _, number, cursor = heappop(heap)
            if isinstance(self._try_admit(cursor.entry), Now) and cursor.advance():
                heappush(heap, (self._order.precedence(cursor.entry), number, cursor))

    def _growth_candidates(self) -> list[GrowthCandidates]:
        """Return the gangs that start now, and those that were not resized recently.

        Gangs that are to end, to move or to shrink are left out of the latter.
        """
        state = self._state
        cursors = state.elastic.extra_workers_of_starting(self._starting_elastic, self._now)
        if state.elastic:
            ready, resized = state.elastic.find_growable(
                state.pending,
                self._session.cluster,
                leaving=self._ending_jobs(),
                calm_since=self._now - self._rules.grow_after_seconds,
            )
            cursors += ready
            self._due_at = min(self._due_at, resized + self._rules.grow_after_seconds)
        return [
            cursor
            for cursor in cursors
            if cursor.entry.job.tenant not in self._restrictions.excluded
        ]

    def _ending_jobs(self) -> set[JobId]:
        """Return the jobs that are to end or to move, and the gangs whose extra workers are."""
        ids = self._state.running_victims() | {move.job for move in self._moves}
        made = [*self._preemptions, *(each.preempt for each in self._consolidations)]
        ids |= {victim.job for preempt in made for victim in preempt.victims}
        extras = (self._state.running.extra_workers.get(job) for job in tuple(ids))
        return ids | {one.job.extends for one in extras if one and one.job.extends is not None}

    def _try_next(self, cursor: _ClassCursor) -> None:
        """Try the next job of a class, and apply the outcome to the other jobs of the class."""
        entry = cursor.entry
        if entry.job.tenant in self._restrictions.excluded:
            self._skip_class(cursor)
            return
        answer = self._try_admit(entry)
        if isinstance(answer, Now):
            cursor.next += 1
        elif answer is NotNow.WOULD_DELAY:
            self._strict.block_cohort(entry.job)
            cursor.entries = self._reservations.ending_in_time(cursor.entries[cursor.next + 1 :])
            cursor.next = 0
        elif answer is NotNow.VICTIMS_HOLD_QUOTA:
            cursor.entries = []
            self._strict.block_tenant(entry.job)
        elif isinstance(answer, Never) or answer is NotNow.BEHIND_QUEUE_HEAD:
            cursor.entries = []
        elif self._preempt_speculative(entry, answer) or self._preempt(entry):
            cursor.next += 1
        else:
            cursor.entries = []
            if answer is NotNow.NO_GPUS:
                self._strict.block_cohort(entry.job)
                self._reservations.add_head(entry)
                self._consolidate(entry)
            else:
                self._strict.block_tenant(entry.job)

    def _skip_class(self, cursor: _ClassCursor) -> None:
        """Skip a job whose tenant is excluded from this cycle; keep its reservation."""
        entry = cursor.entry
        cursor.entries = []
        if self._strict.holds_back(entry.job):
            return
        if not self._planner.may_fit_quota(self._session.cluster, entry.job):
            self._strict.block_tenant(entry.job)
            return
        self._strict.block_cohort(entry.job)
        self._reservations.skip_head(entry)

    def _try_admit(self, entry: PendingJob) -> Answer:
        answer = self._check.check(entry)
        if isinstance(answer, Now):
            self._admit(entry.job, answer.placements, answer.charge)
        return answer

    def _preempt(self, entry: PendingJob) -> bool:
        """Preempt other jobs for this one, if that is possible; return whether it was."""
        preemption = self._preemption_planner.plan(entry) if self._restrictions.preempt else None
        if self._preemption_planner.has_searched:
            self._reservations.stop_computing()
        if preemption is None:
            return False
        self._record_preemption(entry, preemption)
        return True

    def _preempt_speculative(self, entry: PendingJob, answer: Answer) -> bool:
        """Preempt speculatively backfilled jobs for this one, if due; return whether it was."""
        if answer is not NotNow.NO_GPUS:
            return False
        if self._backfill_delays.start_delay(entry.job):
            self._reservations.discard(entry.job)
        preemption = (
            self._backfill_delays.preempt_after_delay(entry.job)
            if self._restrictions.preempt
            else None
        )
        if preemption is None:
            return False
        self._record_preemption(entry, preemption)
        return True

    def _consolidate(self, entry: PendingJob) -> None:
        """Move jobs for this one, if that is worth its cost."""
        if not self._restrictions.preempt:
            return
        found = self._consolidation_planner.plan(
            entry, postpone=self._preemption_planner.has_searched
        )
        if found is None:
            return
        self._reservations.remove_head(entry.job)
        self._count(entry.job.tenant, found.charge, 1)
        self._session.hold(entry.job, found.decision.preempt.placements)
        for (running, charge), move in zip(found.moves, found.decision.moves, strict=True):
            self._count(running.job.tenant, running.charge, -1)
            self._count(running.job.tenant, charge, 1)
            self._session.hold(running.job, move.placements)
        self._consolidations.append(found.decision)
        self._reservations.record_move()

    def _record_preemption(self, entry: PendingJob, preemption: PlannedPreemption) -> None:
        for running in preemption.victims:
            self._count(running.job.tenant, running.charge, -1)
        self._count(entry.job.tenant, preemption.charge, 1)
        self._session.hold(entry.job, preemption.decision.placements)
        self._preemptions.append(preemption.decision)
        places = preemption.decision.placements
        self._reservations.record_preemption(entry.job, places, preemption.victims)

    def _admit(self, job: Job, places: Places, charge: Charge) -> None:
        self._session.hold(job, places)
        self._count(job.tenant, charge, 1)
        self._quota.held.add(job.tenant, charge)
        self._held.append((job.tenant, charge))
        self._admitted.append(Admit(job.id, places))
        if job.extra_workers and job.extends is None:
            self._starting_elastic.append(job)
        self._reservations.record_start(RunningJob(job, places, self._now, charge))

    def _count(self, tenant: Tenant, charge: Charge, sign: int) -> None:
        if not charge:
            return
        self._usage.add(tenant, charge, sign=sign)
        self._counted.append((tenant, charge, sign))
        if self._effective_usage is not None and self._effective_usage is not self._usage:
            self._effective_usage.add(
                tenant, charge, sign=sign * self._quota.history.weight_of_current
            )
        self._order.forget(tenant)
        self._planner.forget()

    def _cursors(self) -> list[_ClassCursor]:
        """Return the cursors of all pending jobs but those that were served before."""
        waiting, reserved = self._state.pending, self._state.reserved.keys() | self._served
        entries = [waiting.get(job) for job in reserved]
        apart = {id(entry.job_class) for entry in entries if entry is not None}
        cursors = []
        for job_class in self._classes_to_try():
            if id(job_class) in apart:
                rest = [entry for entry in job_class.entries if entry.job.id not in reserved]
                cursors.append(_ClassCursor(job_class, rest))
            else:
                cursors.append(_ClassCursor(job_class, job_class.entries))
        return [cursor for cursor in cursors if cursor.entries]

    def _classes_to_try(self) -> Iterable[JobClass]:
        """Return the job classes to try.

        A job class that is known to fail is left out where its failure has no effect on other job
        classes.
        """
        waiting, rules = self._state.pending, self._rules
        classes = waiting.job_classes()
        looks_at_all = (
            rules.order is OrderPolicy.STRICT
            or rules.reserve_after_seconds < inf
            or rules.preemption.any
            or bool(self._state.running.extra_workers)
            or any(cohort.order for cohort in self._quota.quotas.cohorts)
        )
        if looks_at_all:
            return classes
        cluster = self._session.cluster
        return [each for each in classes if waiting.may_fit(each.request_class, cluster)]
