# SPDX-License-Identifier: Apache-2.0
"""Backfill: whether a later job may start before queue heads that have a reservation."""

from collections.abc import Sequence
from math import inf

from gpupack_placement.gang import has_slots
from gpupack_queue.job import Job, JobId, Places
from gpupack_queue.pending.pending_jobs import PendingJob
from gpupack_queue.planning import Planner
from gpupack_queue.reservations.backfill_reservations import BackfillReservations
from gpupack_queue.reservations.future_statement import FutureStatement
from gpupack_queue.state.queue_state import State
from gpupack_queue.state.reservation import BackfillReservation
from gpupack_queue.state.session import Session


class Backfill:
    """The backfill of one cycle.

    `max_moves`: the maximum number of jobs for which reservations are moved; others wait for the
    next cycle, which is due at once.
    """

    def __init__(
        self,
        state: State,
        session: Session,
        plan: Planner,
        now: float,
        reservations: BackfillReservations,
        *,
        max_moves: float = inf,
    ) -> None:
        self._state, self._session, self._plan, self._now = state, session, plan, now
        self.reservations, self._moves_left = reservations, max_moves
        self._postponed: set[int] = set()
        """The classes of requests for which a later cycle tries to move reservations."""

    def would_delay(self, entry: PendingJob) -> bool:
        """Tell whether a job of this request class is known to delay a queue head now.

        That is known if an earlier job of the request class was refused and nothing was released
        since, unless this job ends in time. The result is also true where the delay is unknown in
        this cycle.
        """
        delayed = entry.job_class.request_class.delayed_at_release
        if id(entry.job_class.request_class) in self._postponed:
            return not self.ending_in_time((entry,))
        if delayed is None and self.reservations.may_compute:
            return False
        if self.reservations.is_delay_unknown(entry.job):
            return True
        if delayed is None:
            return False
        if delayed[0] != self.reservations.key(entry.job) or self.ending_in_time((entry,)):
            return False
        return not self._has_relevant_release(entry, since=delayed[1])

    def _has_relevant_release(self, entry: PendingJob, *, since: int) -> bool:
        return self._state.pending.has_relevant_release(
            entry.job_class.request_class, since=since, cluster=self._session.cluster
        )

    def remember_delay(self, entry: PendingJob) -> None:
        """Remember that any job of this request class would delay a queue head now."""
        entry.job_class.request_class.delayed_at_release = (
            self.reservations.key(entry.job),
            self._state.pending.releases,
        )

    def try_backfill(self, job: Job, places: Places, *, may_move: bool = False) -> bool:
        """Tell whether the job delays no queue head there; if so, place it in their futures.

        It must not be called where the delay is unknown in this cycle. `may_move`: reservations may
        get other places, as long as they start at the same time.
        """
        if not self.reservations.any_before(job):
            self.reservations.discard_early()
            return True
        statement, moved = FutureStatement(), dict[JobId, tuple[Job, Places]]()
        placed: list[BackfillReservation] = []
        crossed: set[JobId] = set()
        passed: set[JobId] = set()
        for reservation in self.reservations.all():
            ends = self._ends_before(job, reservation)
            if reservation.placements is not None and self._passes_on_estimate(job, reservation):
                passed.add(reservation.job.id)
            own = () if ends else ((job, places),)
            if not ends or (moved and reservation.placements is not None):
                if self._place(statement, reservation, own, moved, may_move=may_move):
                    placed += () if ends else (reservation,)
                elif self.reservations.holds_back(reservation.job, job):
                    statement.discard()
                    return False
                else:
                    crossed.add(reservation.job.id)
        self.reservations.record_placed(job, placed)
        self.reservations.replace_places(moved)
        self.reservations.discard(crossed)
        if passed - crossed:
            self.reservations.record_speculative(job, passed - crossed)
        return True

    def try_move(self, entry: PendingJob, places: Places) -> bool | None:
        """Tell whether the job delays no queue head there once reservations have other places.

        They start at the same time there. None: a later cycle tries it. A failure is not repeated
        until something is released that can make a difference.
        """
        job_class, key = entry.job_class, self.reservations.key(entry.job)
        failed = job_class.move_failed_at
        if failed is not None and failed[0] == key:
            job_class.move_failed_at = None
            if not self._has_relevant_release(entry, since=failed[1]):
                job_class.move_failed_at = failed
                return False
        if self._may_move(entry.job, places):
            if self._moves_left <= 0:
                self.reservations.look_again()
                self._postponed.add(id(job_class.request_class))
                return None
            self._moves_left -= 1
            if self.try_backfill(entry.job, places, may_move=True):
                return True
        job_class.move_failed_at = key, self._state.pending.releases
        return False

    def _may_move(self, job: Job, places: Places) -> bool:
        """Tell whether each reservation alone may get other places; necessary, not sufficient."""
        return all(
            self._has_other_places(reservation, job, places)
            for reservation in self.reservations.before(job)
            if reservation.placements is not None and not self._ends_before(job, reservation)
        )

    def _has_other_places(self, reservation: BackfillReservation, job: Job, places: Places) -> bool:
        """Tell whether enough workers of the head fit at its time besides the job."""
        future, head, statement = reservation.cluster_then, reservation.job, FutureStatement()
        if not statement.place(future, job, places):
            statement.remove(future, head)
            if not statement.place(future, job, places):
                statement.discard()
                return True  # another job holds the places, and may move
            found = has_slots(future.cluster, head.gang)
        else:
            found = True
        statement.discard()
        return found

    def _passes_on_estimate(self, job: Job, reservation: BackfillReservation) -> bool:
        """Tell whether the job is backfilled speculatively, if it is backfilled."""
        if self._ends_before(job, reservation):
            return not self._surely_ends_before(job, reservation)
        return reservation.is_estimated and self._may_backfill_on_estimate(job, reservation)

    def _place(
        self,
        statement: FutureStatement,
        reservation: BackfillReservation,
        own: Sequence[tuple[Job, Places]],
        moved: dict[JobId, tuple[Job, Places]],
        *,
        may_move: bool,
    ) -> bool:
        """Place a job in the future of a reservation; the head there moves if it has to.

        `moved`: earlier heads with their new places, to which the head is added if it moves.
        """
        future, head = reservation.cluster_then, reservation.job
        if not moved and all(statement.place(future, *each) for each in own):
            return True
        if not may_move or reservation.placements is None:
            return False
        for job in (head, *(job for job, _ in moved.values())):
            statement.remove(future, job)
        if not all(statement.place(future, *each) for each in (*moved.values(), *own)):
            return False
        if statement.place(future, head, reservation.placements):
            return True
        places = self._plan(future.cluster, head)
        if places is None or not statement.place(future, head, places):
            return False
        moved[head.id] = head, places
        return True

    def ending_in_time(self, entries: Sequence[PendingJob]) -> list[PendingJob]:
        """Return the entries of one job class whose jobs end before any reservation starts."""
        if not entries:
            return []
        least = self._least_urgent(entries)
        if self.reservations.is_delay_unknown(least):
            return []
        reservations = [
            reservation
            for reservation in self.reservations.before(least)
            if reservation.placements is not None
        ]
        until = min((reservation.start_at for reservation in reservations), default=inf)
        if self._now + entries[0].job_class.shortest_seconds > until:
            return []
        return [
            e
            for e in entries
            if all(self._ends_before(e.job, reservation) for reservation in reservations)
        ]

    def _least_urgent(self, entries: Sequence[PendingJob]) -> Job:
        """Return the least urgent job of a class; a class is sorted by priority if that counts."""
        if self._state.quota.rules.by_priority:
            return entries[-1].job
        return min(entries, key=lambda entry: entry.job.priority).job

    def _ends_before(self, job: Job, reservation: BackfillReservation) -> bool:
        """Tell whether the job is not in the way: it ends in time, or the head has no places.

        An estimate is enough where the job can be preempted for the head.
        """
        if reservation.placements is None or self._surely_ends_before(job, reservation):
            return True
        return job.expected_end(
            self._now
        ) <= reservation.start_at < inf and self._may_backfill_on_estimate(job, reservation)

    def _surely_ends_before(self, job: Job, reservation: BackfillReservation) -> bool:
        if reservation.start_at == inf and reservation.basis != self.reservations.basis:
            return False  # a job without a deadline has ended: a start time may be known now
        return reservation.surely_ends_before(job.latest_end(self._now))

    def _may_backfill_on_estimate(self, job: Job, reservation: BackfillReservation) -> bool:
        """Tell whether the job may be speculatively backfilled before this head.

        It may not once the head would fit without the jobs that were.
        """
        delayed, delay = (
            self._state.speculative.delayed_since,
            self._state.quota.rules.max_backfill_delay_seconds,
        )
        return job.preemptible and reservation.job.id not in delayed and delay < inf
