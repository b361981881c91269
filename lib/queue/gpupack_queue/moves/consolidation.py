# SPDX-License-Identifier: Apache-2.0
"""The decision to move jobs for a pending job, if that is worth its cost.

    a queue head lacks GPUs ─► enough GPUs are free in total, and it has waited long enough
                            ─► its start estimate without moves: the gain
                            ─► which jobs could move, and where (compaction.py), for a part of that

    gained = the job's GPUs · (its estimated start - now; at most its duration and the horizon)
    lost   = GPUs of each moved job · (restart + its unsaved work, at most `checkpoint`)

Consolidation happens only for jobs with a backfill reservation: the first that lack GPUs and have
waited long enough.
"""

from dataclasses import dataclass
from math import inf

from gpupack_devices.units import WHOLE_GPU
from gpupack_queue.charge import Charge, min_charge, permitted_models
from gpupack_queue.decisions import Consolidate, Move, Preempt, PreemptionReason, Victim
from gpupack_queue.job import Job, RunningJob
from gpupack_queue.moves.consolidation_search import (
    ConsolidationPlan,
    ConsolidationSearch,
    MovingJob,
    PlacementStatement,
)
from gpupack_queue.moves.move_policy import MovePolicy
from gpupack_queue.pending.pending_jobs import PendingJob
from gpupack_queue.quotas.quota_planner import QuotaPlanner
from gpupack_queue.reservations.backfill_reservations import BackfillReservations
from gpupack_queue.running.bounds import free_milli
from gpupack_queue.running.candidates import Candidates
from gpupack_queue.running.running_table import Loss
from gpupack_queue.state.queue_state import State
from gpupack_queue.state.reservation import BackfillReservation
from gpupack_queue.state.session import Session


@dataclass(frozen=True, slots=True)
class PlannedConsolidation:
    """The decision and its effect on quota usage."""

    decision: Consolidate
    charge: Charge
    moves: tuple[tuple[RunningJob, Charge], ...]
    """The moved jobs, each with what it will count."""


class ConsolidationPlanner:
    """The consolidation of one cycle; it searches at most once."""

    def __init__(
        self,
        state: State,
        session: Session,
        planner: QuotaPlanner,
        reservations: BackfillReservations,
        now: float,
    ) -> None:
        self._state, self._session, self._planner, self._now = state, session, planner, now
        self._reservations, self._rules = reservations, state.quota.rules.consolidation
        self._has_searched = False
        self.due_at = inf
        """The next time at which a search could have another result."""

    def plan(self, entry: PendingJob, *, postpone: bool) -> PlannedConsolidation | None:
        """Return the moves for a job that lacks GPUs; None: none, or none yet.

        `postpone`: a search is put off to the next cycle.
        """
        if not self._may_search(entry):
            return None
        reservation = self._reservations.reservation_of(entry.job)
        if reservation is None:
            return None
        if postpone or self._has_searched or self._reservations.has_computed:
            self.due_at = self._now
            return None
        gained = self._gain(entry.job, reservation)
        found = self._search(entry.job, self._rules.ratio * gained) if gained > 0 else None
        if found is None:
            entry.job_class.consolidation_searched_at = self._now
            return None
        return self._consolidation(entry.job, found, gained)

    def _may_search(self, entry: PendingJob) -> bool:
        if not self._rules.any or not entry.job.preempts or not self._state.running.movable:
            return False
        if not self._reservations.is_head(entry.job) or not self._is_due(entry):
            return False
        return self._is_enough_free(entry.job)

    def _is_due(self, entry: PendingJob) -> bool:
        due, searched = (
            entry.pending_since + self._rules.min_wait_seconds,
            entry.job_class.consolidation_searched_at,
        )
        if searched is not None:
            due = max(due, searched + self._rules.retry_seconds)
        if due > self._now:
            self.due_at = min(self.due_at, due)
        return due <= self._now and (searched is None or searched < self._now)

    def _is_enough_free(self, job: Job) -> bool:
        """Tell whether enough GPUs are free in total: moves free no more of them."""
        return free_milli(self._session.cluster, job.gang) >= min_charge(job.gang)

    def _gain(self, job: Job, reservation: BackfillReservation) -> float:
        """Return the gain of a start now, in milli-GPU times seconds.

        A job for which nothing can be reserved has no known start, as behind jobs without an end.
        """
        lasts = job.expected_end(0.0)
        return min_charge(job.gang) * min(
            reservation.start_at - self._now, lasts, self._rules.horizon_seconds
        )

    def _search(self, job: Job, budget: float) -> ConsolidationPlan | None:
        self._has_searched = True
        quota, cluster = self._state.quota, self._session.cluster
        keys = frozenset(quota.keys.allowed(cluster, permitted_models(job.gang)))
        rights = MovePolicy(quota, job, keys)
        candidates = self._candidates(rights)
        if not candidates:
            return None
        reserved = self._reservations.cluster_with_reservations(job)
        compaction = ConsolidationSearch(
            job,
            cluster if reserved is None else reserved,
            candidates,
            PlacementStatement(quota, self._planner),
            max_moves=self._rules.max_moves,
            budget=budget,
        )
        found = compaction.run()
        if found is None or not quota.fits_with_victims(job.tenant, found.charge):
            return None
        if sum(map(self._cost, found.moving)) > budget:
            return None
        fair = all(rights.allows(one.running, found.charge) for one in found.moving)
        return found if fair else None

    def _cost(self, leaving: MovingJob) -> float:
        """Return the cost of one move, including the extra workers that end with the gang."""
        extras = self._state.extra_workers_of([leaving.running])
        extra_milli = sum(milli for extra in extras for milli in extra.charge.values())
        return leaving.cost + extra_milli * self._rules.restart_seconds

    def _candidates(self, rights: MovePolicy) -> Candidates:
        table, state = self._state.running.table, self._state
        kinds = {
            number: self._rules.cooldown_seconds
            for _, of_tenant in table.kinds()
            for number, sample in of_tenant.items()
            if rights.may_move(sample)
        }
        candidates, later = table.candidates(
            kinds,
            self._now,
            state.running_victims() | state.stuck.keys(),
            loss=Loss(self._rules.checkpoint_seconds, self._rules.restart_seconds),
        )
        self.due_at = min(self.due_at, later)
        return candidates

    def _consolidation(
        self, job: Job, found: ConsolidationPlan, gained: float
    ) -> PlannedConsolidation:
        leaving = found.moving
        victims = tuple(
            Victim(one.running.job.id, PreemptionReason.CONSOLIDATION, self._cost(one) / WHOLE_GPU)
            for one in leaving
        )
        decision = Consolidate(
            Preempt(job.id, victims, found.places),
            tuple(
                Move(one.running.job.id, one.places, PreemptionReason.CONSOLIDATION)
                for one in leaving
            ),
            gained / WHOLE_GPU,
        )
        return PlannedConsolidation(
            decision, found.charge, tuple((one.running, one.charge) for one in leaving)
        )
