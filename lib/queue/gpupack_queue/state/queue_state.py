# SPDX-License-Identifier: Apache-2.0
"""The state of a queue between two cycles."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from gpupack_placement.cluster import Cluster
from gpupack_queue.charge import Charge
from gpupack_queue.job import (
    NO_USER,
    Job,
    JobId,
    Places,
    ReservationId,
    RunningJob,
    Tenant,
    longest_grace,
)
from gpupack_queue.pending.elastic_gangs import ElasticGangs
from gpupack_queue.pending.model_fallback import ModelFallbacks
from gpupack_queue.pending.never import NeverAnswers
from gpupack_queue.pending.order import Order
from gpupack_queue.pending.pending_jobs import Failures, PendingJobs
from gpupack_queue.quotas.quota_usage import QuotaUsage
from gpupack_queue.quotas.user_shares import UserShares, bounded_user
from gpupack_queue.running.drain import Drains
from gpupack_queue.running.running_jobs import RunningJobs
from gpupack_queue.state.estimate_cache import EstimateCache
from gpupack_queue.state.reservation import BackfillReservation, Reservation
from gpupack_queue.state.speculative_backfill import SpeculativeBackfills
from gpupack_queue.window import Window, WindowPreemption


@dataclass(frozen=True, slots=True)
class Findings:
    """The findings of cycles that decided nothing."""

    failures: Failures
    backfill_reservations: tuple[BackfillReservation, ...]
    heads: tuple[JobId, ...]
    disruptions: int
    run_changes: int
    reserved: frozenset[JobId]
    never: NeverAnswers


@dataclass(slots=True)
class State:
    """The state of a queue; mutable; only Queue changes it, except for what cycles remember."""

    quota: QuotaUsage
    pending: PendingJobs
    running: RunningJobs = field(default_factory=RunningJobs)
    reserved: dict[JobId, Reservation] = field(default_factory=dict)
    """The reserved places by preemptor, in the order of the decisions.

    A job that moves is its own victim.
    """
    stuck: dict[JobId, JobId] = field(default_factory=dict)
    """The victims that have not ended in time, each with the job for which they were to end."""
    beneficiaries: dict[JobId, None] = field(default_factory=dict)
    """The pending jobs whose victims have ended late: they are the first that may start."""
    backfill_reservations: list[BackfillReservation] = field(default_factory=list)
    """The backfill reservations, in the order of the queue heads; computed when needed."""
    speculative: SpeculativeBackfills = field(default_factory=SpeculativeBackfills)
    """The jobs that were speculatively backfilled before queue heads."""
    drains: Drains = field(default_factory=dict)
    """The devices that movable jobs are to leave."""
    elastic: ElasticGangs = field(default_factory=ElasticGangs)
    """The running gangs that may grow."""
    windows: tuple[Window, ...] = ()
    """The current and following windows of all time-window reservations."""
    window_preemptions: dict[ReservationId, WindowPreemption] = field(default_factory=dict)
    """The preemptions for windows whose victims have not all ended."""
    window_searches: dict[ReservationId, float] = field(default_factory=dict)
    """The times of the last searches for victims for windows that found none."""
    window_charges: dict[ReservationId, tuple[Tenant, Charge]] = field(default_factory=dict)
    """What counts against quotas for active windows beyond what their own jobs have."""
    heads: tuple[JobId, ...] = ()
    """The queue heads of the last cycle, with or without a computed reservation."""
    waiting_tenants: frozenset[Tenant] = frozenset()
    """The tenants with jobs that lacked GPUs in the last cycle and could have a reservation."""
    computes_reservations_next: bool = False
    """Whether the next cycle makes reservations and does not search for victims.

    The last one did the reverse. Both in one cycle would take too long.
    """
    disruptions: int = 0
    """The number of failures, repairs and configurations; each makes reservations void."""
    run_changes: int = 0
    """The number of jobs that began to run, ended or were withdrawn."""
    open_ends: int = 0
    """The number of ended jobs that had no deadline.

    Each may let a queue head start of which no start time was known.
    """
    endless_ends: int = 0
    """Those among them that were taken to run forever."""
    never: NeverAnswers = field(default_factory=NeverAnswers)
    """The jobs that can never start on the nodes and within the quotas of now."""
    estimates: EstimateCache = field(default_factory=EstimateCache)
    """The start estimates of the first pending jobs."""
    fallbacks: ModelFallbacks = field(default_factory=ModelFallbacks)
    """The pending jobs with an order of models."""

    def copy(self) -> "State":
        """Return an independent copy."""
        return replace(
            self,
            quota=self.quota.copy(),
            pending=self.pending.copy(),
            running=self.running.copy(),
            reserved=self.reserved.copy(),
            stuck=self.stuck.copy(),
            beneficiaries=self.beneficiaries.copy(),
            window_preemptions=self.window_preemptions.copy(),
            window_searches=self.window_searches.copy(),
            window_charges=self.window_charges.copy(),
            backfill_reservations=[
                reservation.copy() for reservation in self.backfill_reservations
            ],
            speculative=self.speculative.copy(),
            drains=dict(self.drains),
            elastic=self.elastic.copy(),
            never=self.never.copy(),
            estimates=EstimateCache(),
            fallbacks=self.fallbacks.copy(),
        )

    def findings(self) -> "Findings":
        """Return what cycles remember, for the state of which this one is a copy."""
        reservations = tuple(reservation.copy() for reservation in self.backfill_reservations)
        return Findings(
            self.pending.failures(),
            reservations,
            self.heads,
            self.disruptions,
            self.run_changes,
            frozenset(self.reserved),
            self.never.copy(),
        )

    def restore(self, found: "Findings") -> None:
        """Take over what cycles of a copy found, as a cycle here would have found it, too."""
        self.pending.restore(found.failures)
        self.never = found.never
        counts = self.disruptions, self.run_changes
        is_same = (found.disruptions, found.run_changes) == counts
        if is_same and found.reserved == self.reserved.keys():
            self.backfill_reservations, self.heads = list(found.backfill_reservations), found.heads

    def remove_pending(self, job: JobId) -> None:
        """Remove a job that was admitted or withdrawn; no effect if it does not wait."""
        self.pending.remove(job)
        self.fallbacks.remove(job)

    def running_victims(self, *, by: float = inf) -> set[JobId]:
        """Return the running jobs that are to end for another job or for a window.

        `by`: only those whose grace periods end by then.
        """
        preemptions: list[Reservation | WindowPreemption] = [
            *self.reserved.values(),
            *self.window_preemptions.values(),
        ]
        return {
            job
            for each in preemptions
            if each.since + each.grace_seconds <= by
            for job in each.victims
            if job in self.running
        }

    def victims_for_windows(self) -> list[RunningJob]:
        """Return the running jobs that are to end for windows."""
        victims = {job for each in self.window_preemptions.values() for job in each.victims}
        found = map(self.running.get, sorted(victims))
        return [running for running in found if running is not None]

    def forget_window_victim(self, job: JobId) -> None:
        """Forget that a job was to end for a window, since it has ended."""
        for reservation, each in tuple(self.window_preemptions.items()):
            if job in each.victims:
                rest = tuple(victim for victim in each.victims if victim != job)
                self.window_preemptions[reservation] = replace(each, victims=rest)
                if not rest:
                    del self.window_preemptions[reservation]

    def grace_seconds(self, victims: Iterable[JobId]) -> float:
        """Return the longest grace period of these jobs, of those that run."""
        return longest_grace(filter(None, map(self.running.get, victims)))

    def forget_beneficiaries(self) -> None:
        """Forget the jobs that did not start when their last victims had ended."""
        waiting = set(self.stuck.values())
        self.beneficiaries = {job: None for job in self.beneficiaries if job in waiting}

    def victims_of(self, reservation: Reservation) -> tuple[RunningJob, ...]:
        """Return the victims that have not ended yet."""
        found = map(self.running.get, reservation.victims)
        return tuple(running for running in found if running is not None)

    def extra_workers_of(self, running: Iterable[RunningJob]) -> list[RunningJob]:
        """Return the running extra workers of these gangs."""
        ids = [
            extra for one in running for extra in sorted(self.elastic.extra_workers_of(one.job.id))
        ]
        return [self.running.extra_workers[extra] for extra in ids]

    def record_start(self, running: RunningJob) -> None:
        """Record that a job runs; drop the reservations of which it takes."""
        self.run_changes += 1
        self.running.add(running)
        job = running.job.id
        self._drop_reservations(
            job,
            lambda reservation: reservation.include_start(
                running, is_speculative=self._is_speculative(job, reservation)
            ),
        )

    def record_change(self, before: RunningJob, after: RunningJob) -> None:
        """Record other places or another deadline of a job; drop the reservations it breaks."""
        self.run_changes += 1
        self.running.remove(before.job.id)
        self.running.add(after)
        self.open_ends += before.latest_end == inf > after.latest_end
        self.endless_ends += before.job.is_endless and not after.job.is_endless
        job = after.job.id
        self._drop_reservations(
            job,
            lambda reservation: reservation.include_change(
                before, after, is_speculative=self._is_speculative(job, reservation)
            ),
        )

    def record_preemption(self, job: Job, places: Places, victims: Sequence[RunningJob]) -> None:
        """Record a preemption; drop the reservations of which the preemptor takes."""
        self._drop_reservations(
            job.id, lambda reservation: reservation.include_preemption(job, places, victims)
        )

    def _drop_reservations(
        self, owner: JobId, include: Callable[[BackfillReservation], bool]
    ) -> None:
        """Drop the owner's reservation and those that cannot include a change."""
        broken = {each.job.id for each in self._valid_reservations() if not include(each)}
        self.backfill_reservations = [
            reservation
            for reservation in self.backfill_reservations
            if reservation.job.id not in broken | {owner}
        ]

    def _is_speculative(self, job: JobId, reservation: BackfillReservation) -> bool:
        return job in self.speculative.jobs_before(reservation.job.id)

    def record_end(self, running: RunningJob) -> None:
        """Record that a job no longer runs."""
        self.run_changes += 1
        self.open_ends += running.latest_end == inf
        self.endless_ends += running.job.is_endless
        for reservation in self._valid_reservations():
            reservation.include_end(running)

    def record_withdrawal(self, job: JobId) -> None:
        """Record that a job no longer waits."""
        self.run_changes += 1
        for reservation in self._valid_reservations():
            reservation.include_withdrawal(job)

    def _valid_reservations(self) -> list[BackfillReservation]:
        """Return the reservations that are not void; the nodes of the others may have changed."""
        return [
            reservation
            for reservation in self.backfill_reservations
            if reservation.disruptions == self.disruptions
        ]

    def reservation_of(self, job: Job) -> BackfillReservation | None:
        """Return the job's backfill reservation; None: it has none."""
        return next(
            (
                reservation
                for reservation in self.backfill_reservations
                if reservation.job.id == job.id
            ),
            None,
        )

    def record_release(self, cluster: Cluster, places: Places) -> None:
        """Record that these places are free again."""
        for placement in places:
            row = cluster.row(placement.node)
            if row is not None:
                self.pending.record_release(row)

    def user_shares(self) -> UserShares:
        """Return the shares of users by what runs."""
        return UserShares(self.quota, self.running)

    def order(self) -> Order:
        """Return the present order of pending jobs."""
        return Order(self.quota.effective_usage(self.running), self.user_shares())

    def with_bounded_user(self, job: Job) -> Job:
        """Return the job without its user, if its tenant has too many of them."""
        pending, running = self.pending.users(job.tenant), self.running.usage_by_user(job.tenant)
        user = bounded_user(job, {*pending, *running} - {NO_USER})
        return job if user == job.user else replace(job, user=user)

    def recount(self, cluster: Cluster) -> None:
        """Count charges again under new keys, and usage in a new tree.

        What is held for windows is counted again by the next cycle.
        """
        self.window_charges.clear()
        for running in tuple(self.running):
            charge = self.quota.charge(cluster, running.placements)
            if charge != running.charge:
                self.running.remove(running.job.id)
                self.running.add(replace(running, charge=charge))
        for job, held in self.reserved.items():
            charge = self.quota.charge(cluster, held.placements)
            self.reserved[job] = replace(held, charge=charge)
        self.rebuild()

    def rebuild(self) -> None:
        """Count usage in a new tree.

        It is that of running jobs without victims, of preemptors and of windows.
        """
        self.quota.rebuild(self.running.usage_by_tenant().items())
        for job in self.running_victims():
            running = self.running.get(job)
            if running is not None:
                self.quota.usage.add(running.job.tenant, running.charge, sign=-1)
        for held in self.reserved.values():
            self.quota.usage.add(held.job.tenant, held.charge)
        for tenant, charge in self.window_charges.values():
            self.quota.usage.add(tenant, charge)
