# SPDX-License-Identifier: Apache-2.0
"""One pass over the pending jobs: which start now, which preempt, which wait.

    jobs with reserved places ─► movable jobs on devices to drain: do they fit elsewhere? ─► Move
                              ─► the other jobs in order: priority, share, age
                                    │ fits the quota and the cluster ──────────► Admit
                                    │ fits once other jobs are preempted ──────► Preempt
                                    │ has waited long enough ──────────────────► reservation
                                    │  and movable jobs can run elsewhere ─────► Consolidate
                                    └ otherwise it waits; in strict order, all jobs behind it, too
                              ─► elastic gangs: GPUs that no pending job can use ─► Admit

A cycle changes nothing but the memory of failures. It books its decisions on a sheet.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import Enum, auto
from heapq import heapify, heappop, heappush
from math import inf

from gpupack_core.cluster import Cluster
from gpupack_core.queueing.backfill_reservations import BackfillReservations
from gpupack_core.queueing.charge import Charge
from gpupack_core.queueing.consolidation import Consolidator
from gpupack_core.queueing.decisions import (
    Admit,
    CancelReservation,
    Consolidate,
    Decisions,
    Move,
    Preempt,
)
from gpupack_core.queueing.elastic import Growing
from gpupack_core.queueing.job import Job, JobId, Places, RunningJob, Tenant
from gpupack_core.queueing.moves import Mover
from gpupack_core.queueing.order import Order
from gpupack_core.queueing.own_places import remain_held
from gpupack_core.queueing.patience import Patience
from gpupack_core.queueing.preemption import Preemption, Preemptor
from gpupack_core.queueing.quota import OrderPolicy
from gpupack_core.queueing.reservation import Planner, Reservation, is_free
from gpupack_core.queueing.session import Session
from gpupack_core.queueing.state import State
from gpupack_core.queueing.tree import TOP, NodeId
from gpupack_core.queueing.waiting import Entry, Lane
from gpupack_core.queueing.within import WithinQuota


class Outcome(Enum):
    """The outcome of an attempt to admit one job."""

    ADMITTED = auto()
    NO_QUOTA = auto()
    NO_ROOM = auto()
    WOULD_DELAY = auto()
    """It would take reserved places of a queue head."""
    HELD_STILL = auto()
    """Its quota allows it when jobs that are being preempted have ended."""


@dataclass(slots=True)
class _Turn:
    """The jobs of a lane that have not been tried yet, the next one first."""

    lane: Lane
    entries: list[Entry]
    next: int = 0

    @property
    def entry(self) -> Entry:
        return self.entries[self.next]


@dataclass(frozen=True, slots=True)
class Restrictions:
    """Restrictions of what a cycle decides: see Queue.cycle."""

    preempt: bool = True
    most: float = inf
    but: Collection[Tenant] = ()


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
        self._state, self._books, self._now = state, state.quota, now
        self._only = restrictions
        self._complete = True
        self._rules, self._usage = state.quota.rules, state.quota.usage
        self._felt = state.quota.effective_usage(state.running)
        self._order = Order(self._felt)
        self._sheet = Session(cluster, state.reserved.values())
        self._within = WithinQuota(state.quota, plan)
        self._foresight = BackfillReservations(
            state, self._sheet, plan, now, max_computed=self._rules.max_reservations_per_cycle
        )
        self._preemptor = Preemptor(state, self._sheet, self._within, self._foresight, now)
        self._patience = Patience(state, self._sheet, self._within, now)
        self._consolidator = Consolidator(state, self._sheet, self._within, self._foresight, now)
        self._mover = Mover(state, self._sheet, self._within, plan, now)
        self._counted: list[tuple[Tenant, Charge, int]] = []
        self._held: list[tuple[Tenant, Charge]] = []
        self._admitted: list[Admit] = []
        self._starting: list[Job] = []
        """The elastic gangs among them."""
        self._preemptions: list[Preempt] = []
        self._given_up: list[CancelReservation] = []
        self._moves: list[Move] = []
        self._consolidations: list[Consolidate] = []
        self._blocked: set[NodeId] = set()
        self._used_up: set[Tenant] = set()
        self._look_at = inf

    def run(self) -> Decisions:
        """Return all decisions that can be made now."""
        try:
            for reservation in tuple(self._state.reserved.values()):
                self._serve_reserved(reservation)
            if self._only.preempt:
                self._move()
            self._serve()
            self._grow()
        finally:
            for tenant, charge, sign in reversed(self._counted):
                self._usage.add(tenant, charge, sign=-sign)
            for tenant, charge in self._held:
                self._books.held.add(tenant, charge, sign=-1)
        self._foresight.save(complete=self._complete)
        self._state.computes_reservations_next = (
            self._preemptor.has_searched and self._foresight.is_postponed
        )
        look_at = min(
            self._look_at,
            self._foresight.due_at,
            self._preemptor.look_at,
            self._patience.look_at,
            self._mover.look_at,
            self._consolidator.look_at,
        )
        return Decisions(
            tuple(self._admitted),
            tuple(self._preemptions),
            tuple(self._given_up),
            tuple(self._moves),
            tuple(self._consolidations),
            None if look_at == inf else look_at,
            self._complete,
        )

    def _serve_reserved(self, reservation: Reservation) -> None:
        """Admit a job with reserved places as soon as it fits, on these places or elsewhere.

        A job that restarts on its own places starts only there while the rest of its last attempt
        still holds them. The reservation is given up when the victims do not end, or the job does
        not become pending again, within the patience of the rules, and when the victims have ended
        and the job fits nowhere.
        """
        alive = bool(self._state.victims_of(reservation))
        gives_up_at = reservation.since + self._rules.preemption.patience_seconds
        job, waits = reservation.job, reservation.job.id in self._state.pending
        if reservation.in_place and alive and not waits:
            return
        if (alive or not waits) and self._now >= gives_up_at:
            stuck = tuple(running.job.id for running in self._state.victims_of(reservation))
            self._given_up.append(CancelReservation(job.id, stuck))
            return
        if alive or not waits:
            self._look_at = min(self._look_at, gives_up_at)
        if not waits:
            return
        self._sheet.release(job, reservation.placements)
        self._count(job.tenant, reservation.charge, -1)
        if is_free(self._sheet.cluster, job, reservation.placements):
            found = self._within.payable(self._sheet.cluster, job, reservation.placements)
        elif self._now < gives_up_at and self._remains(reservation):
            found, alive = None, True
            self._look_at = min(self._look_at, gives_up_at)
        else:
            found = self._within.places(self._sheet.cluster, job)
        if found is not None and self._books.fits_with_victims(job.tenant, found[1]):
            self._admit(job, *found)
            return
        self._count(job.tenant, reservation.charge, 1)
        self._sheet.hold(job, reservation.placements)
        if not alive and found is None:
            self._given_up.append(CancelReservation(job.id, ()))

    def _remains(self, reservation: Reservation) -> bool:
        return remain_held(self._sheet.cluster, reservation, self._state.running)

    def _move(self) -> None:
        """Move jobs off devices to drain, before pending jobs: they were admitted earlier."""
        candidates = self._mover.candidates()
        if not candidates:
            return
        self._mover.heed()
        for running in candidates:
            tenant, charge = running.job.tenant, running.charge
            self._count(tenant, charge, -1)
            self._books.held.add(tenant, charge, sign=-1)
            moved = self._mover.seek(running)
            self._books.held.add(tenant, charge)
            if moved is None:
                self._count(tenant, charge, 1)
                continue
            self._count(tenant, moved.charge, 1)
            self._sheet.hold(running.job, moved.decision.placements)
            self._moves.append(moved.decision)
            self._foresight.record_move()
            self._mover.moves()
        self._mover.remember()

    def _serve(self) -> None:
        """Try the pending jobs in their order.

        An admission makes its tenant's share larger. That can only move jobs back in the order,
        which is seen when their turn comes. Victims make shares smaller, and then the order is
        computed again.
        """
        heap = [
            (self._order.precedence(turn.entry), n, turn) for n, turn in enumerate(self._turns())
        ]
        heapify(heap)
        while heap and TOP not in self._blocked:
            if len(self._admitted) >= self._only.most:
                self._complete = False
                return
            foreseen, number, turn = heappop(heap)
            entry = turn.entry
            if self._is_blocked(entry.job.tenant):
                continue
            precedence = self._order.precedence(entry)
            if precedence > foreseen:
                heappush(heap, (precedence, number, turn))
                continue
            preemptions = len(self._preemptions)
            self._take_turn(turn)
            if turn.next < len(turn.entries):
                heappush(heap, (self._order.precedence(turn.entry), number, turn))
            if self._rules.by_share and len(self._preemptions) > preemptions:
                heap = [(self._order.precedence(t.entry), n, t) for _, n, t in heap]
                heapify(heap)

    def _grow(self) -> None:
        """Admit extra workers of elastic gangs, after all pending jobs."""
        if not self._complete or TOP in self._blocked:
            return
        heap = [
            (self._order.precedence(turn.entry), n, turn) for n, turn in enumerate(self._growing())
        ]
        heapify(heap)
        while heap:
            if len(self._admitted) >= self._only.most:
                self._complete = False
                return
            _, number, turn = heappop(heap)
            if self._is_blocked(turn.entry.job.tenant):
                continue
            if self._try(turn.entry) is Outcome.ADMITTED and turn.advance():
                heappush(heap, (self._order.precedence(turn.entry), number, turn))

    def _growing(self) -> list[Growing]:
        """Return the gangs that start now, and those that were not resized recently.

        Gangs that are to end, to move or to shrink are left out of the latter.
        """
        state = self._state
        turns = state.elastic.beside(self._starting, self._now)
        if state.elastic:
            ready, resized = state.elastic.may_grow(
                state.pending,
                self._sheet.cluster,
                leaving=self._leaving(),
                calm_since=self._now - self._rules.grow_after_seconds,
            )
            turns += ready
            self._look_at = min(self._look_at, resized + self._rules.grow_after_seconds)
        return [turn for turn in turns if turn.entry.job.tenant not in self._only.but]

    def _leaving(self) -> set[JobId]:
        """Return the jobs that are to end or to move, and the gangs whose extra workers are."""
        ids = self._state.running_victims() | {move.job for move in self._moves}
        made = [*self._preemptions, *(each.preempt for each in self._consolidations)]
        ids |= {victim.job for preempt in made for victim in preempt.victims}
        extras = (self._state.running.extras.get(job) for job in tuple(ids))
        return ids | {one.job.extends for one in extras if one and one.job.extends is not None}

    def _take_turn(self, turn: _Turn) -> None:
        """Try the next job of a lane, and apply the outcome to the other jobs of the lane."""
        entry = turn.entry
        if entry.job.tenant in self._only.but:
            self._pass_over(turn)
            return
        outcome = self._try(entry)
        if outcome is Outcome.ADMITTED:
            turn.next += 1
        elif outcome is Outcome.WOULD_DELAY:
            self._block(entry.job.tenant)
            turn.entries = self._foresight.ending_in_time(turn.entries[turn.next + 1 :])
            turn.next = 0
        elif outcome is Outcome.HELD_STILL:
            turn.entries = []
            self._used_up.add(entry.job.tenant)
        elif self._waits_no_longer(entry, outcome) or self._preempt(entry):
            turn.next += 1
        else:
            turn.entries = []
            if outcome is Outcome.NO_ROOM:
                self._block(entry.job.tenant)
                self._foresight.add_head(entry)
                self._consolidate(entry)
            else:
                self._used_up.add(entry.job.tenant)

    def _pass_over(self, turn: _Turn) -> None:
        """Skip a job whose tenant is excluded from this cycle; keep its reservation."""
        entry = turn.entry
        turn.entries = []
        if not self._within.may_pay(self._sheet.cluster, entry.job):
            self._used_up.add(entry.job.tenant)
            return
        self._block(entry.job.tenant)
        self._foresight.skip_head(entry)

    def _try(self, entry: Entry) -> Outcome:
        job, waiting = entry.job, self._state.pending
        if not self._within.may_pay(self._sheet.cluster, job):
            return Outcome.NO_QUOTA
        if not waiting.may_fit(entry.lane.shape, self._sheet.cluster):
            return Outcome.NO_ROOM
        if self._foresight.would_delay(entry):
            return Outcome.WOULD_DELAY
        places = self._within.plan(self._sheet.cluster, job)
        if places is None:
            waiting.failed(entry.lane.shape)
            return Outcome.NO_ROOM
        return self._try_there(entry, places)

    def _try_there(self, entry: Entry, places: Places) -> Outcome:
        """Admit the job on these places, or elsewhere if they are not permitted."""
        job = entry.job
        found = self._within.payable(self._sheet.cluster, job, places)
        if found is None:
            return Outcome.NO_QUOTA
        if not self._books.fits_with_victims(job.tenant, found[1]):
            return Outcome.HELD_STILL
        if self._foresight.is_delay_unknown(job):
            return Outcome.WOULD_DELAY
        if not self._foresight.try_backfill(job, found[0]):
            beside = self._beside(entry)
            if isinstance(beside, Outcome):
                return beside
            found = beside
        self._admit(job, *found)
        return Outcome.ADMITTED

    def _beside(self, entry: Entry) -> tuple[Places, Charge] | Outcome:
        """Return places that avoid all reservations before the job, or why there are none.

        A refusal is remembered for the shape of the request, unless the quota decided it: other
        tenants may have another quota.
        """
        job, cluster = entry.job, self._foresight.cluster_with_reservations(entry.job)
        places = None if cluster is None else self._within.plan(cluster, job)
        found = None
        if cluster is not None and places is not None:
            found = self._within.payable(cluster, job, places)
        if found is not None and not self._books.fits_with_victims(job.tenant, found[1]):
            return Outcome.HELD_STILL
        if found is not None and self._foresight.try_backfill(job, found[0]):
            return found
        if places is None or (found is not None and found[0] == places):
            self._foresight.remember_delay(entry)
        return Outcome.WOULD_DELAY

    def _preempt(self, entry: Entry) -> bool:
        """Preempt other jobs for this one, if that is possible; return whether it was."""
        preemption = self._preemptor.seek(entry) if self._only.preempt else None
        if self._preemptor.has_searched:
            self._foresight.stop_computing()
        if preemption is None:
            return False
        self._stop_for(entry, preemption)
        return True

    def _waits_no_longer(self, entry: Entry, outcome: Outcome) -> bool:
        """Preempt speculatively backfilled jobs for this one, if due; return whether it was."""
        if outcome is not Outcome.NO_ROOM:
            return False
        if self._patience.begins(entry.job):
            self._foresight.discard(entry.job)
        preemption = self._patience.ends(entry.job) if self._only.preempt else None
        if preemption is None:
            return False
        self._stop_for(entry, preemption)
        return True

    def _consolidate(self, entry: Entry) -> None:
        """Move jobs for this one, if that is worth its cost."""
        if not self._only.preempt:
            return
        found = self._consolidator.seek(entry, busy=self._preemptor.has_searched)
        if found is None:
            return
        self._foresight.remove_head(entry.job)
        self._count(entry.job.tenant, found.charge, 1)
        self._sheet.hold(entry.job, found.decision.preempt.placements)
        for (running, charge), move in zip(found.moved, found.decision.moves, strict=True):
            self._count(running.job.tenant, running.charge, -1)
            self._count(running.job.tenant, charge, 1)
            self._sheet.hold(running.job, move.placements)
        self._consolidations.append(found.decision)
        self._foresight.record_move()

    def _stop_for(self, entry: Entry, preemption: Preemption) -> None:
        for running in preemption.stopped:
            self._count(running.job.tenant, running.charge, -1)
        self._count(entry.job.tenant, preemption.charge, 1)
        self._sheet.hold(entry.job, preemption.decision.placements)
        self._preemptions.append(preemption.decision)
        places = preemption.decision.placements
        self._foresight.record_preemption(entry.job, places, preemption.stopped)

    def _admit(self, job: Job, places: Places, charge: Charge) -> None:
        self._sheet.hold(job, places)
        self._count(job.tenant, charge, 1)
        self._books.held.add(job.tenant, charge)
        self._held.append((job.tenant, charge))
        self._admitted.append(Admit(job.id, places))
        if job.extra_workers and job.extends is None:
            self._starting.append(job)
        self._foresight.record_start(RunningJob(job, places, self._now, charge))

    def _count(self, tenant: Tenant, charge: Charge, sign: int) -> None:
        if not charge:
            return
        self._usage.add(tenant, charge, sign=sign)
        self._counted.append((tenant, charge, sign))
        if self._felt is not None and self._felt is not self._usage:
            self._felt.add(tenant, charge, sign=sign * self._books.history.weight_of_current)
        self._order.forget(tenant)
        self._within.forget()

    def _is_blocked(self, tenant: Tenant) -> bool:
        """Tell whether strict order holds the tenant's jobs back.

        A job that lacks GPUs blocks its strict cohort. A job that lacks quota blocks only its own
        tenant.
        """
        scope = self._books.strict_scope(tenant)
        return scope is not None and (scope in self._blocked or tenant in self._used_up)

    def _block(self, tenant: Tenant) -> None:
        """Block the strict scope of the tenant, if it has one."""
        scope = self._books.strict_scope(tenant)
        if scope is not None:
            self._blocked.add(scope)

    def _turns(self) -> list[_Turn]:
        """Return the turns of all pending jobs but those with reserved places."""
        waiting, reserved = self._state.pending, self._state.reserved
        entries = [waiting.get(job) for job in reserved]
        apart = {id(entry.lane) for entry in entries if entry is not None}
        turns = []
        for lane in self._lanes():
            if id(lane) in apart:
                rest = [entry for entry in lane.entries if entry.job.id not in reserved]
                turns.append(_Turn(lane, rest))
            else:
                turns.append(_Turn(lane, lane.entries))
        return [turn for turn in turns if turn.entries]

    def _lanes(self) -> Iterable[Lane]:
        """Return the lanes to try.

        A lane that is known to fail is left out where its failure has no effect on other lanes.
        """
        waiting, rules = self._state.pending, self._rules
        looks_at_all = (
            rules.order is OrderPolicy.STRICT
            or rules.reserve_after_seconds < inf
            or rules.preemption.any
            or bool(self._state.running.extras)
            or any(cohort.order for cohort in self._books.quotas.cohorts)
        )
        if looks_at_all:
            return waiting.lanes()
        cluster = self._sheet.cluster
        return [lane for lane in waiting.lanes() if waiting.may_fit(lane.shape, cluster)]
