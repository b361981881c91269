# SPDX-License-Identifier: Apache-2.0
"""The computation of a backfill reservation: when and where a queue head fits at the latest."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from gpupack_queue.job import Job, JobId, Places, RunningJob
from gpupack_queue.planning import Planner
from gpupack_queue.running.projected_cluster import JobEnds, ProjectedCluster
from gpupack_queue.state.queue_state import State
from gpupack_queue.state.reservation import BackfillReservation, earliest_fit
from gpupack_queue.state.session import Session


@dataclass(slots=True)
class CycleChanges:
    """The decisions of one cycle that change reservations; mutable."""

    starting: list[RunningJob] = field(default_factory=list)
    preemptions: list[tuple[Job, Places, Sequence[RunningJob]]] = field(default_factory=list)
    """The preemptors, each with its places and its victims."""
    has_moves: bool = False
    """Whether a job moves: earlier reservations count it at its former place."""
    speculative: dict[JobId, set[JobId]] = field(default_factory=dict)
    """Jobs that are speculatively backfilled, each with the heads that it passes."""


class ReservationPlanner:
    """The computations of one cycle."""

    def __init__(
        self, state: State, session: Session, plan: Planner, now: float, changes: CycleChanges
    ) -> None:
        self._state, self._session, self._plan, self._now = state, session, plan, now
        self._changes = changes
        self._cached_ends: tuple[int, JobEnds] | None = None
        """The ends of running jobs, with the number of jobs that start in this cycle.

        They serve heads before which no job was speculatively backfilled.
        """

    def compute(
        self,
        job: Job,
        before: Collection[BackfillReservation],
        *,
        may_fit_now: bool,
        basis: tuple[object, ...],
    ) -> BackfillReservation:
        """Compute the reservation of a head, with the reservations of the heads before it held.

        Jobs that were backfilled before the head and all extra workers count as removed.
        `may_fit_now`: it is not admitted in this cycle, even if it fits.
        """
        cluster = self._session.cluster.overlay()
        backfilled = self._speculative_before(job)
        extras = self._extra_workers()
        removed = {one.job.id: one for one in (*backfilled, *extras)}
        for one in removed.values():
            for placement in one.placements:
                cluster.assume_free(placement)
        starting = {one.job.id for one in self._changes.starting}
        reserved = {
            job_id: each.placements
            for job_id, each in self._state.reserved.items()
            if job_id not in starting
        }
        future = ProjectedCluster(cluster, self._ends(backfilled), removed=removed, placed=reserved)
        placements: Places | None
        is_estimated = (
            future.is_estimated and self._state.quota.rules.max_backfill_delay_seconds < inf
        )
        for other in before:
            future.adopt(other.job, other.placements or ())
        may_fit = backfilled or extras or may_fit_now
        placements = self._plan(cluster, job) if may_fit else None
        at = self._now
        if placements is None:
            at, placements = earliest_fit(future, job, self._plan)
        future.adopt(job, placements or ())
        return BackfillReservation(
            job,
            at,
            future,
            placements,
            self._state.disruptions,
            self._now,
            is_estimated,
            no_end_helps=placements is None and self._no_end_helps(job, before, removed, reserved),
            basis=basis,
        )

    def _no_end_helps(
        self,
        job: Job,
        before: Collection[BackfillReservation],
        removed: Mapping[JobId, RunningJob],
        reserved: Mapping[JobId, Places],
    ) -> bool:
        """Tell whether a head fits in no future, whatever is reserved for other heads."""
        if not any(other.placements for other in before):
            return True
        cluster = self._session.cluster.overlay()
        for one in removed.values():
            for placement in one.placements:
                cluster.assume_free(placement)
        if self._plan(cluster, job) is not None:
            return False
        ends = self._ends([one for one in removed.values() if one.job.extends is None])
        future = ProjectedCluster(cluster, ends, removed=removed, placed=reserved)
        return earliest_fit(future, job, self._plan)[1] is None

    def _speculative_before(self, job: Job) -> list[RunningJob]:
        """Return the jobs that were speculatively backfilled before the job.

        They can be preempted for it, so its reservation does not depend on their ends.
        """
        known = set(self._state.speculative.jobs_before(job.id))
        running = [self._state.running.get(job) for job in known - self._state.running_victims()]
        return [one for one in running if one is not None] + [
            one
            for one in self._changes.starting
            if job.id in self._changes.speculative.get(one.job.id, ())
        ]

    def _extra_workers(self) -> list[RunningJob]:
        """Return the extra workers of elastic gangs, which are preempted for any pending job."""
        starting = [
            running for running in self._changes.starting if running.job.extends is not None
        ]
        return [*self._state.running.extra_workers.values(), *starting]

    def _ends(self, backfilled: Sequence[RunningJob]) -> JobEnds:
        """Return the ends of jobs that run and of jobs that start in this cycle."""
        table, starting = self._state.running.table, self._changes.starting
        if backfilled:
            return table.expected_ends(self._now, starting, [job.job.id for job in backfilled])
        if self._cached_ends is None or self._cached_ends[0] != len(starting):
            self._cached_ends = len(starting), table.expected_ends(self._now, starting)
        return self._cached_ends[1]
