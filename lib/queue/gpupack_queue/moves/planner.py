# SPDX-License-Identifier: Apache-2.0
"""Moves for maintenance: a job stops and starts again on places that are reserved for it.

A job moves only if it has new places now. They are searched for the longest running job first:
within the quota without what the job holds, and outside places that are reserved for other jobs. A
job may get again what it holds and need not leave.
"""

from dataclasses import dataclass
from math import inf
from typing import Final

from gpupack_placement.cluster import Cluster
from gpupack_placement.request import Gang
from gpupack_queue.charge import Charge
from gpupack_queue.decisions import Move, PreemptionReason
from gpupack_queue.job import RunningJob, Tenant
from gpupack_queue.planning import Planner
from gpupack_queue.quotas.quota_planner import QuotaPlanner
from gpupack_queue.reservations.backfill_reservations import BackfillReservations
from gpupack_queue.running.drain import node_to_drain
from gpupack_queue.state.queue_state import State
from gpupack_queue.state.session import Session

MAX_PLANS: Final = 8
"""The maximum number of plans in one cycle, so that it is short; the next one is due at once."""


@dataclass(frozen=True, slots=True)
class PlannedMove:
    """The decision and its effect on quota usage."""

    decision: Move
    running: RunningJob
    charge: Charge


class MovePlanner:
    """The moves of one cycle."""

    def __init__(
        self, state: State, session: Session, planner: QuotaPlanner, plan: Planner, now: float
    ) -> None:
        self._state, self._session, self._planner, self._now = state, session, planner, now
        self._reservations = BackfillReservations(
            state, session, plan, now, max_computed=state.quota.rules.max_reservations_per_cycle
        )
        self._failed: set[tuple[Tenant, Gang]] = set()
        self._plans = 0
        self._due_at = inf

    @property
    def due_at(self) -> float:
        """Return the time at which a job could be moved that has not been tried now."""
        return min(self._due_at, self._reservations.due_at)

    def candidates(self) -> list[RunningJob]:
        """Return the movable jobs on devices to drain, the longest running first."""
        state = self._state
        if not state.drains or not state.running.movable:
            return []
        apart = state.running_victims() | state.stuck.keys()
        found = (
            running
            for running in state.running.movable.values()
            if running.job.id not in apart and node_to_drain(running.placements, state.drains)
        )
        return sorted(found, key=lambda running: (running.started, running.job.id))

    def respect_reservations(self) -> None:
        """Respect the reservations of the last cycle's queue heads."""
        self._reservations.add_last_heads()

    def plan(self, running: RunningJob) -> PlannedMove | None:
        """Return the job's new places; its own charge must not be counted during this call."""
        job = running.job
        kind = job.tenant, job.gang
        if kind in self._failed:
            return None
        if self._plans >= MAX_PLANS:
            self._due_at = self._now
            return None
        if self._reservations.is_delay_unknown(job):
            return None
        self._plans += 1
        found = self._planner.place(self._without(running), job)
        if found is None or not self._state.quota.fits_with_victims(job.tenant, found[1]):
            self._failed.add(kind)
            return None
        return PlannedMove(Move(job.id, found[0], PreemptionReason.MAINTENANCE), running, found[1])

    def record_move(self) -> None:
        """Record that a job moves in this cycle: less is free."""
        self._reservations.record_move()

    def save_reservations(self) -> None:
        """Keep the reservations of the queue heads for the rest of the cycle."""
        self._reservations.save(complete=False)

    def _without(self, running: RunningJob) -> Cluster:
        """Return what is free once the job has ended, without places reserved for queue heads."""
        reserved = self._reservations.cluster_with_reservations(running.job)
        cluster = (self._session.cluster if reserved is None else reserved).overlay()
        for placement in running.placements:
            cluster.assume_free(placement)
        return cluster
