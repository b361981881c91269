# SPDX-License-Identifier: Apache-2.0
"""Backfill reservations of earlier cycles, and whether they hold in this one."""

from collections.abc import Collection
from math import inf
from typing import Final

from gpupack_queue.job import Job, JobId, RunningJob
from gpupack_queue.planning import Planner
from gpupack_queue.reservations.reservation_planner import CycleChanges
from gpupack_queue.state.queue_state import State
from gpupack_queue.state.reservation import BackfillReservation
from gpupack_queue.state.session import Session

RECOMPUTE_AFTER_SECONDS: Final = 5.0
"""The seconds for which a reservation stands that rests on overdue or unknown ends of jobs."""


class StoredReservations:
    """The reservations in a queue's state, as one cycle uses them; mutable."""

    def __init__(
        self, state: State, session: Session, plan: Planner, now: float, changes: CycleChanges
    ) -> None:
        self._state, self._session, self._plan, self._now = state, session, plan, now
        self._changes = changes
        self.void: set[JobId] = set()
        """The heads whose reservation of an earlier cycle does not hold in this one."""
        self.skipped: set[JobId] = set()
        """The heads that may fit now, and are not admitted in this cycle."""
        self.placed: list[tuple[BackfillReservation, JobId]] = []
        """The reservations in whose future a job of this cycle is placed, each with the job.

        The job does not run until its start is reported.
        """

    def due_at(self, reservation: BackfillReservation) -> float:
        """Return the time at which time alone makes a computation of the reservation due."""
        if reservation.placements is None or (
            reservation.start_at == inf and reservation.basis == self.basis()
        ):
            return inf
        return _stands_until(reservation)

    def basis(self) -> tuple[object, ...]:
        """Return what a reservation without a start time depends on."""
        return self._state.open_ends, self._state.endless_ends, tuple(self._state.reserved)

    def valid(
        self, job: Job, before: Collection[BackfillReservation]
    ) -> BackfillReservation | None:
        """Return the head's reservation, if it holds with those of the heads before it."""
        found = None if job.id in self.void else self._state.reservation_of(job)
        changes = self._changes
        if found is None or found.disruptions != self._state.disruptions or changes.has_moves:
            return None
        if found.job.gang != job.gang:
            return None
        is_same = found.basis[1:] == self.basis()[1:]
        if found.no_end_helps and not changes.preemptions and is_same:
            return None if self._fits_now(found) else found
        if not self._agrees_with_decisions(found, before) or self._fits_now(found):
            self.void.add(job.id)
            return None
        return found if self._now < _stands_until(found) else None

    def _agrees_with_decisions(
        self, found: BackfillReservation, before: Collection[BackfillReservation]
    ) -> bool:
        """Tell whether it agrees with the decisions of this cycle and with earlier reservations."""
        self._remove_jobs_behind(found, before)
        return (
            all(
                found.include_start(one, is_speculative=self._is_speculative_before(one, found.job))
                for one in self._changes.starting
            )
            and all(found.include_preemption(*each) for each in self._changes.preemptions)
            and all(found.include_reservation(other) for other in before)
        )

    def _is_speculative_before(self, running: RunningJob, head: Job) -> bool:
        job = running.job.id
        return job in self._state.speculative.jobs_before(
            head.id
        ) or head.id in self._changes.speculative.get(job, ())

    def _fits_now(self, found: BackfillReservation) -> bool:
        """Tell whether a head that is not admitted in this cycle fits sooner than estimated."""
        if found.job.id not in self.skipped or found.start_at <= self._now:
            return False
        return self._plan(self._session.cluster, found.job) is not None

    def _remove_jobs_behind(
        self, found: BackfillReservation, before: Collection[BackfillReservation]
    ) -> None:
        """Remove jobs that may now be behind it: they were before it, and still wait."""
        known = {reservation.job.id for reservation in before} | {
            job_id for _, job_id in self.placed
        }
        for other in found.cluster_then.placed_jobs():
            behind = other not in known and other != found.job.id
            if behind and other in self._state.pending and other not in self._state.reserved:
                found.cluster_then.remove(other)


def _stands_until(reservation: BackfillReservation) -> float:
    """Return the time until which the reservation holds if no job starts or ends."""
    lasts = reservation.computed_at + RECOMPUTE_AFTER_SECONDS
    return lasts if reservation.start_at == inf else max(lasts, reservation.start_at)
