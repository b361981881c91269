# SPDX-License-Identifier: Apache-2.0
"""Backfill reservations of a cycle, and whether a later job would delay one of them."""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from math import inf

from gpupack_placement.cluster import Cluster
from gpupack_placement.gang import has_slots
from gpupack_queue.job import Job, JobId, Places, RunningJob
from gpupack_queue.pending.pending_jobs import PendingJob
from gpupack_queue.planning import Planner
from gpupack_queue.reservations.future_statement import FutureStatement
from gpupack_queue.reservations.queue_heads import QueueHeads
from gpupack_queue.reservations.reservation_planner import CycleChanges, ReservationPlanner
from gpupack_queue.reservations.stored_reservations import StoredReservations
from gpupack_queue.running.projected_cluster import adopt_job
from gpupack_queue.state.queue_state import State
from gpupack_queue.state.reservation import BackfillReservation
from gpupack_queue.state.session import Session


class BackfillReservations:
    """The backfill reservations of one cycle, computed when a job comes that could take of them.

    `max_computed`: the maximum number of reservations that are computed. No job passes a queue head
    whose reservation has not been computed: that is put off to the next cycle, which is due at
    once.
    """

    def __init__(
        self,
        state: State,
        session: Session,
        plan: Planner,
        now: float,
        *,
        max_computed: float = inf,
    ) -> None:
        self._state, self._session, self._plan, self._now = state, session, plan, now
        self._computations_left = self._moves_left = max_computed
        self._postponed: set[int] = set()
        """The classes of requests for which a later cycle tries to move reservations."""
        self.is_postponed = False
        """Whether a reservation is to be computed in a later cycle."""
        self._heads = QueueHeads(state, now)
        self._computed: list[BackfillReservation] = []
        self._changes = CycleChanges()
        self._planner = ReservationPlanner(state, session, plan, now, self._changes)
        self._stored = StoredReservations(state, session, plan, now, self._changes)
        self._cached_cluster: tuple[frozenset[JobId], Cluster] | None = None
        """The heads whose places are held, and the cluster in which they are."""
        self.has_computed = False
        """Whether a reservation was computed in this cycle."""
        self._due_at = inf

    @property
    def due_at(self) -> float:
        """Return when a job needs a reservation, or a reservation has to be checked."""
        return min(self._due_at, self._heads.due_at)

    def add_head(self, entry: PendingJob) -> None:
        """Record a job that lacks GPUs, which gets a reservation if it can have one."""
        self._heads.add(entry)

    def add_last_heads(self) -> None:
        """Record the queue heads of the last cycle, except those with reserved places."""
        for head in map(self._state.pending.get, self._state.heads):
            if head is not None and head.job.id not in self._state.reserved:
                self.add_head(head)

    def skip_head(self, entry: PendingJob) -> None:
        """Record that a queue head is not admitted in this cycle, even if it fits.

        It stays a head.
        """
        if entry.job.id in self._state.heads:
            self._stored.skipped.add(entry.job.id)
            self.add_head(entry)

    def record_start(self, running: RunningJob) -> None:
        """Record that a job was admitted in this cycle."""
        self._changes.starting.append(running)
        if self._cached_cluster is not None:
            adopt_job(self._cached_cluster[1], running.job, running.placements)

    def record_preemption(self, job: Job, places: Places, victims: Sequence[RunningJob]) -> None:
        """Record that these jobs are preempted for the job in this cycle."""
        self._changes.preemptions.append((job, places, victims))
        self._cached_cluster = None

    def record_move(self) -> None:
        """Record that a job moves in this cycle."""
        self._changes.has_moves = True
        self._cached_cluster = None

    def stop_computing(self) -> None:
        """Compute no more reservations in this cycle."""
        self._computations_left = 0

    def is_delay_unknown(self, job: Job) -> bool:
        """Tell whether it is unknown in this cycle which queue heads the job would delay."""
        return self._heads.any_before(job) and len(self._reservations()) < len(self._heads)

    def would_delay(self, entry: PendingJob) -> bool:
        """Tell whether a job of this request class is known to delay a queue head now.

        That is known if an earlier job of the request class was refused and nothing was released
        since, unless this job ends in time. The result is also true where the delay is unknown in
        this cycle.
        """
        delayed = entry.job_class.request_class.delayed_at_release
        if id(entry.job_class.request_class) in self._postponed:
            return not self.ending_in_time((entry,))
        if delayed is None and self._computations_left:
            return False
        if self.is_delay_unknown(entry.job):
            return True
        if delayed is None:
            return False
        if delayed[0] != self._reservations_key(entry.job) or self.ending_in_time((entry,)):
            return False
        return not self._has_relevant_release(entry, since=delayed[1])

    def _has_relevant_release(self, entry: PendingJob, *, since: int) -> bool:
        return self._state.pending.has_relevant_release(
            entry.job_class.request_class, since=since, cluster=self._session.cluster
        )

    def remember_delay(self, entry: PendingJob) -> None:
        """Remember that any job of this request class would delay a queue head now."""
        entry.job_class.request_class.delayed_at_release = (
            self._reservations_key(entry.job),
            self._state.pending.releases,
        )

    def try_backfill(self, job: Job, places: Places, *, may_move: bool = False) -> bool:
        """Tell whether the job delays no queue head there; if so, place it in their futures.

        It must not be called where the delay is unknown in this cycle. `may_move`: reservations may
        get other places, as long as they start at the same time.
        """
        if not self._heads.any_before(job):
            self._discard(self._heads.early)
            return True
        statement, moved = FutureStatement(), dict[JobId, tuple[Job, Places]]()
        placed: list[BackfillReservation] = []
        crossed: set[JobId] = set()
        passed: set[JobId] = set()
        for reservation in self._reservations():
            ends = self._ends_before(job, reservation)
            if reservation.placements is not None and self._passes_on_estimate(job, reservation):
                passed.add(reservation.job.id)
            own = () if ends else ((job, places),)
            if not ends or (moved and reservation.placements is not None):
                if self._place(statement, reservation, own, moved, may_move=may_move):
                    placed += () if ends else (reservation,)
                elif self._heads.holds_back(reservation.job, job):
                    statement.discard()
                    return False
                else:
                    crossed.add(reservation.job.id)
        self._stored.placed += ((reservation, job.id) for reservation in placed)
        self._move(moved)
        self._discard(crossed)
        if passed - crossed:
            self._changes.speculative[job.id] = passed - crossed
        return True

    def try_move(self, entry: PendingJob, places: Places) -> bool | None:
        """Tell whether the job delays no queue head there once reservations have other places.

        They start at the same time there. None: a later cycle tries it. A failure is not repeated
        until something is released that can make a difference.
        """
        job_class, key = entry.job_class, self._reservations_key(entry.job)
        failed = job_class.move_failed_at
        if failed is not None and failed[0] == key:
            job_class.move_failed_at = None
            if not self._has_relevant_release(entry, since=failed[1]):
                job_class.move_failed_at = failed
                return False
        if self._may_move(entry.job, places):
            if self._moves_left <= 0:
                self._due_at = self._now
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
            for reservation in self._reservations_before(job)
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

    def _move(self, moved: Mapping[JobId, tuple[Job, Places]]) -> None:
        """Give reservations of this cycle other places."""
        if not moved:
            return
        self._cached_cluster = None
        for number, each in enumerate(self._computed):
            if each.job.id in moved:
                self._computed[number] = replace(each, placements=moved[each.job.id][1])

    def ending_in_time(self, entries: Sequence[PendingJob]) -> list[PendingJob]:
        """Return the entries of one job class whose jobs end before any reservation starts."""
        if not entries:
            return []
        least = self._least_urgent(entries)
        if self.is_delay_unknown(least):
            return []
        reservations = [
            reservation
            for reservation in self._reservations_before(least)
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
        if reservation.start_at == inf and reservation.basis != self._stored.basis():
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

    def cluster_with_reservations(self, job: Job) -> Cluster | None:
        """Return the cluster with all places held that are kept from the job; None: no places."""
        reservations = [
            each
            for each in self._reservations_before(job)
            if each.job.id != job.id and each.placements is not None
        ]
        if not reservations:
            return None
        owners = frozenset(reservation.job.id for reservation in reservations)
        if self._cached_cluster is None or self._cached_cluster[0] != owners:
            cluster = self._session.cluster.overlay()
            for reservation in reservations:
                adopt_job(cluster, reservation.job, reservation.placements or ())
            self._cached_cluster = owners, cluster
        return self._cached_cluster[1]

    def _reservations_key(self, job: Job) -> tuple[object, ...]:
        """Return what identifies the reservations that hold the job back."""
        return tuple(
            (
                reservation.job.id,
                reservation.start_at,
                reservation.computed_at,
                reservation.cluster_then.growths,
            )
            for reservation in self._reservations_before(job)
        )

    def _reservations_before(self, job: Job) -> list[BackfillReservation]:
        if not self._heads.any_before(job):
            return []
        return [
            reservation
            for reservation in self._reservations()
            if self._heads.holds_back(reservation.job, job)
        ]

    def _discard(self, heads: AbstractSet[JobId]) -> None:
        """Discard these reservations and those that rest on them; they are computed when needed."""
        if not heads:
            return
        self._stored.void |= heads
        made = (
            number
            for number, reservation in enumerate(self._computed)
            if reservation.job.id in heads
        )
        del self._computed[next(made, len(self._computed)) :]
        self._cached_cluster = None

    def is_head(self, job: Job) -> bool:
        """Tell whether the job is among the queue heads by now."""
        return job.id in self._heads

    def reservation_of(self, job: Job) -> BackfillReservation | None:
        """Return the reservation of a queue head; None: it is unknown in this cycle."""
        return next(
            (reservation for reservation in self._reservations() if reservation.job.id == job.id),
            None,
        )

    def remove_head(self, job: Job) -> None:
        """Drop a queue head, because other places are reserved for it in this cycle."""
        self._discard({job.id})
        self._heads.remove(job.id)
        self._cached_cluster = None

    def discard(self, job: Job) -> None:
        """Discard the reservation of the job."""
        self._discard({job.id})

    def save(self, *, complete: bool = True) -> None:
        """Keep the reservations of the queue heads for the next cycle.

        `complete` False: not all jobs were tried, and the heads of the last cycle may still be
        heads.
        """
        for reservation, job_id in self._stored.placed:
            reservation.cluster_then.remove(job_id)
        for reservation in self._computed:
            for running in self._changes.starting:
                reservation.cluster_then.remove_running(running)
        for running in self._changes.starting:
            self._state.speculative.remove(running.job.id)
        for job, heads in self._changes.speculative.items():
            self._state.speculative.add(job, heads)
        found = [entry.job.id for entry in self._heads]
        if not complete:
            starting = {running.job.id for running in self._changes.starting}
            before = (job for job in self._state.heads if job in self._state.pending)
            found += [job for job in before if job not in starting and job not in found]
        self._state.heads = tuple(found)
        waiting = self._heads.waiting_tenants()
        self._state.waiting_tenants = waiting | (
            frozenset() if complete else self._state.waiting_tenants
        )
        heads = set(self._state.heads)
        made = {reservation.job.id for reservation in self._computed}
        old = [
            reservation
            for reservation in self._state.backfill_reservations
            if reservation.job.id not in made | self._stored.void
        ]
        self._state.backfill_reservations = [
            reservation for reservation in (*self._computed, *old) if reservation.job.id in heads
        ]

    def _reservations(self) -> list[BackfillReservation]:
        """Return the reservations of all heads, or of the first ones: the rest is put off."""
        while len(self._computed) < len(self._heads):
            job = self._heads[len(self._computed)].job
            reservation = self._stored.valid(job, self._computed)
            if reservation is None and not self._computations_left:
                self.is_postponed, self._due_at = True, self._now
                break
            if reservation is None:
                self._computations_left -= 1
                self.has_computed = True
                reservation = self._planner.compute(
                    job,
                    self._computed,
                    may_fit_now=job.id in self._stored.skipped,
                    basis=self._stored.basis(),
                )
            self._cached_cluster = None
            self._computed.append(reservation)
            if reservation.placements is None:
                self._heads.record_none(job, no_end_helps=reservation.no_end_helps)
            else:
                self._heads.record_reservation(job.id)
            self._due_at = min(self._due_at, self._stored.due_at(reservation))
        return self._computed
