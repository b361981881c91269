# SPDX-License-Identifier: Apache-2.0
"""Reservations: for queue heads that lack GPUs, and for preemptors.

Backfill reservations follow EASY backfill. The earliest moment is found at which a job fits
(running jobs are removed in the order in which they end), and its places then. A later job may
start now if it ends by that moment, or if both fit at that moment: it is placed in the cluster of
that moment, too, where the job that has the reservation may get other places. Where durations are
exact, that job never starts later than without backfill. A job of unknown duration counts as ending
after all others, the oldest first. A job that runs forever never ends: nothing is reserved for a
job that only its end would help.

Source: Lifka, «The ANL/IBM SP Scheduling System» (JSSPP '95).
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import inf

from gpupack_placement.cluster import NO_ROW, Cluster
from gpupack_placement.feasibility import usable
from gpupack_queue.charge import Charge
from gpupack_queue.job import Job, JobId, Places, RunningJob
from gpupack_queue.pending.pending_jobs import may_fit_on_row
from gpupack_queue.planning import Planner
from gpupack_queue.running.projected_cluster import (
    FeasibleEnds,
    ProjectedCluster,
    allocate_job,
    release_job,
)


@dataclass(frozen=True, slots=True)
class Reservation:
    """Places reserved for a preemptor, or for a job that moves; times in seconds.

    A job that moves is its own victim. After its end it waits for its places. `in_place`: the job
    has these places, or had them last; it waits for them while its last attempt still holds them.
    `grace_seconds`: the longest grace period of a victim, within which it counts as leaving.
    """

    job: Job
    placements: Places
    victims: tuple[JobId, ...]
    since: float
    charge: Charge
    in_place: bool = False
    grace_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class BackfillReservation:
    """A backfill reservation: the latest start of a queue head, and the cluster at that time.

    The queue head is placed in that cluster. `placements` None: nothing is reserved, because it
    fits nowhere, whatever ends. `start_at` infinite: no start time is known. `is_estimated`: it
    depends on learned durations of running jobs. Jobs that were speculatively backfilled before the
    head count as removed. `no_end_helps`: it would fit nowhere without the other reservations
    either. `basis`: what a reservation without a start time depends on.
    """

    job: Job
    start_at: float
    cluster_then: ProjectedCluster
    placements: Places | None
    disruptions: int
    computed_at: float
    is_estimated: bool = False
    no_end_helps: bool = False
    basis: tuple[object, ...] = ()

    def surely_ends_before(self, latest_end: float) -> bool:
        """Tell whether a job with this deadline delays the head by no more than it must.

        A head without a known start time waits for jobs without a deadline. They count as ending
        after all jobs with one.
        """
        if self.start_at == inf:
            return latest_end < inf
        return not self.is_estimated and latest_end <= self.start_at

    def copy(self) -> "BackfillReservation":
        """Return a copy; jobs that are placed in its cluster later are not placed in this one's."""
        return replace(self, cluster_then=self.cluster_then.copy())

    def include_end(self, running: RunningJob) -> None:
        """Include that a job has ended, or will have ended by then, whatever was expected of it."""
        if self.cluster_then.remove_running(running):
            self._record_growth(running.placements)

    def include_withdrawal(self, job: JobId) -> None:
        """Include that a job no longer waits."""
        places = self.cluster_then.places_of(job)
        if places is not None:
            self.cluster_then.remove(job)
            self._record_growth(places)

    def _record_growth(self, released: Places) -> None:
        """Record that more is free then, if that is so where a worker of the head may fit.

        The head may get these places, and leave its own to a later job.
        """
        future, gang = self.cluster_then, self.job.gang
        future.settle_at(released)
        rows = future.cluster.rows({place.node for place in released}).tolist()
        future.growths += any(
            row != NO_ROW and may_fit_on_row(future.cluster, gang, row) for row in rows
        )

    def include_preemption(
        self, job: Job, placements: Places, victims: Iterable[RunningJob]
    ) -> bool:
        """Include that these jobs are preempted for the job.

        False: the job takes reserved places, or the reservation has to be computed again.
        """
        if self.is_estimated:
            return False
        for running in victims:
            self.include_end(running)
        self.cluster_then.remove(job.id)
        return self.cluster_then.place(job, placements)

    def include_reservation(self, other: "BackfillReservation") -> bool:
        """Include another reservation; False: this one has to be computed again."""
        places = other.placements or ()
        if self.cluster_then.places_of(other.job.id) == places:
            return True
        self.cluster_then.remove(other.job.id)
        return self.cluster_then.place(other.job, places)

    def include_start(self, running: RunningJob, *, is_speculative: bool) -> bool:
        """Include that the job runs; False: it takes reserved places.

        `is_speculative`: it was speculatively backfilled before the queue head.
        """
        if self.placements is None:
            return True
        self.cluster_then.remove(running.job.id)
        if self._ends_before(running, is_speculative=is_speculative):
            return True
        return self.cluster_then.place(running.job, running.placements)

    def include_change(
        self, before: RunningJob, after: RunningJob, *, is_speculative: bool
    ) -> bool:
        """Include that a running job has other places or another deadline.

        False: the job would be in the way of the queue head.
        """
        if self.placements is None:
            return True
        was_held = self.cluster_then.remove_running(before)
        if not self.include_start(after, is_speculative=is_speculative):
            return False
        is_held = self.cluster_then.places_of(after.job.id) == before.placements
        if was_held and not is_held:
            self._record_growth(before.placements)
        return True

    def _ends_before(self, running: RunningJob, *, is_speculative: bool) -> bool:
        """Tell whether the job ends in time, or can be preempted for the queue head.

        Extra workers are preempted for any pending job. A speculatively backfilled job
        that is expected to end in time counts as ending then: it can be preempted if it does not.
        """
        if running.job.extends is not None:
            return True
        if is_speculative and running.job.expected_end(running.started) <= self.start_at < inf:
            return True
        return self.surely_ends_before(running.latest_end)


def is_free(cluster: Cluster, job: Job, placements: Places) -> bool:
    """Tell whether the job can start on exactly these places: free, and on healthy devices."""
    roles = job.gang.role_of_each_worker()
    for role, placement in zip(roles, placements, strict=False):
        rows = usable(cluster, role.request)
        row, node = cluster.row(placement.node), cluster.node(placement.node)
        if row is None or node is None or not rows[row]:
            return False
        healthy = {device.uuid for device in node.devices if device.health.takes_work}
        if not {grant.uuid for grant in placement.devices} <= healthy:
            return False
    if not allocate_job(cluster, job, placements):
        return False
    release_job(cluster, job, placements)
    return True


def earliest_fit(future: ProjectedCluster, job: Job, plan: Planner) -> tuple[float, Places | None]:
    """Return the moment at which the job fits, and its places; infinity and None: never.

    The future is left at that moment.

    More free GPUs never make a plan fail. A plan for a gang is expensive, and many ends leave too
    little for it. So gangs are planned after 1, 2, 4, … ends that make space for a worker, and then
    a binary search finds the first end that suffices.
    """
    ends = future.feasible_ends(job.gang)
    if ends is None:
        return future.settle(), None
    fails, plan_after, fitting_ends = 0, 1, 0
    for number in range(len(ends)):
        rows = future.advance(ends.nodes(number, number), after=ends.end(number))
        fitting_ends += any(may_fit_on_row(future.cluster, job.gang, row) for row in rows)
        if fitting_ends < plan_after and number + 1 < len(ends):
            continue
        placements = plan(future.cluster, job) if fitting_ends else None
        if placements is not None:
            return _first(future, job, ends, plan, ((fails, number), placements))
        fails = number + 1
        plan_after, fitting_ends = (plan_after * 2, 0) if job.gang.workers > 1 else (1, 0)
    return future.settle(), None


def _first(
    future: ProjectedCluster,
    job: Job,
    ends: FeasibleEnds,
    plan: Planner,
    found: tuple[tuple[int, int], Places],
) -> tuple[float, Places]:
    """Return the first of these ends after which it fits; it fits after the last of them."""
    (low, high), places = found
    current = high
    while low < high:
        middle = (low + high) // 2
        _move(future, ends, current, middle)
        current = middle
        placements = plan(future.cluster, job)
        if placements is None:
            low = middle + 1
        else:
            high, places = middle, placements
    _move(future, ends, current, high)
    return future.settle(ends.end(high)), places


def _move(future: ProjectedCluster, ends: FeasibleEnds, current: int, to: int) -> None:
    """Bring the future from the moment after one end to that after another."""
    if current != to:
        nodes = ends.nodes(min(current, to) + 1, max(current, to))
        future.advance(nodes, after=ends.end(to))
