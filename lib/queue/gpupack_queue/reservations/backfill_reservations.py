# SPDX-License-Identifier: Apache-2.0
"""Backfill reservations of a cycle, in the order of the queue heads."""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from math import inf

from gpupack_placement.cluster import Cluster
from gpupack_queue.job import Job, JobId, Places, RunningJob
from gpupack_queue.pending.pending_jobs import PendingJob
from gpupack_queue.planning import Planner
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
        self._computations_left = max_computed
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
        return self._heads.any_before(job) and len(self.all()) < len(self._heads)

    def cluster_with_reservations(self, job: Job) -> Cluster | None:
        """Return the cluster with all places held that are kept from the job; None: no places."""
        reservations = [
            each
            for each in self.before(job)
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

    def replace_places(self, moved: Mapping[JobId, tuple[Job, Places]]) -> None:
        """Give reservations of this cycle other places."""
        if not moved:
            return
        self._cached_cluster = None
        for number, each in enumerate(self._computed):
            if each.job.id in moved:
                self._computed[number] = replace(each, placements=moved[each.job.id][1])

    def record_placed(self, job: Job, placed: Iterable[BackfillReservation]) -> None:
        """Record that the job is placed in the clusters of these reservations."""
        self._stored.placed += ((reservation, job.id) for reservation in placed)

    def record_speculative(self, job: Job, heads: set[JobId]) -> None:
        """Record that the job is speculatively backfilled before these queue heads."""
        self._changes.speculative[job.id] = heads

    @property
    def may_compute(self) -> bool:
        """Tell whether one more reservation may be computed in this cycle."""
        return self._computations_left > 0

    @property
    def basis(self) -> tuple[object, ...]:
        """Return what a reservation without a start time depends on now."""
        return self._stored.basis()

    def look_again(self) -> None:
        """Let the next cycle be due at once."""
        self._due_at = self._now

    def any_before(self, job: Job) -> bool:
        """Tell whether what is reserved for any head is kept from the job."""
        return self._heads.any_before(job)

    def holds_back(self, head: Job, job: Job) -> bool:
        """Tell whether what is reserved for the head is kept from the job."""
        return self._heads.holds_back(head, job)

    def key(self, job: Job) -> tuple[object, ...]:
        """Return what identifies the reservations that hold the job back."""
        return tuple(
            (
                reservation.job.id,
                reservation.start_at,
                reservation.computed_at,
                reservation.cluster_then.growths,
            )
            for reservation in self.before(job)
        )

    def before(self, job: Job) -> list[BackfillReservation]:
        """Return the reservations that are kept from the job, as far as they are computed."""
        if not self._heads.any_before(job):
            return []
        return [
            reservation
            for reservation in self.all()
            if self._heads.holds_back(reservation.job, job)
        ]

    def discard(self, heads: AbstractSet[JobId]) -> None:
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
            (reservation for reservation in self.all() if reservation.job.id == job.id),
            None,
        )

    def remove_head(self, job: Job) -> None:
        """Drop a queue head, because other places are reserved for it in this cycle."""
        self.discard({job.id})
        self._heads.remove(job.id)
        self._cached_cluster = None

    def discard_early(self) -> None:
        """Discard the reservations that only jobs of lower priority must respect."""
        self.discard(self._heads.early)

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

    def all(self) -> list[BackfillReservation]:
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
