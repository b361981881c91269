# SPDX-License-Identifier: Apache-2.0
"""Preemption in a cycle: the search for victims, and the preemptor's places afterwards."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from typing import Final

from gpupack_devices.units import WHOLE_GPU
from gpupack_placement.cluster import Cluster
from gpupack_queue.charge import Charge, permitted_models
from gpupack_queue.decisions import Preempt, Victim
from gpupack_queue.job import Job, JobId, RunningJob
from gpupack_queue.pending.pending_jobs import PendingJob
from gpupack_queue.preemption.policies import PreemptionPolicy
from gpupack_queue.preemption.victim_check import VictimSet
from gpupack_queue.preemption.victim_search import VictimSearch
from gpupack_queue.quotas.quota_planner import QuotaPlanner
from gpupack_queue.reservations.backfill import Backfill
from gpupack_queue.running.projected_cluster import adopt_job, allocate_job
from gpupack_queue.state.queue_state import State
from gpupack_queue.state.session import Session
from gpupack_queue.windows.holds import protected_jobs

MAX_CHECKS_PER_SEARCH: Final = 8
"""The maximum number of jobs in a cycle, by search, for which candidates are looked for.

Where the policies permit none, no search follows, and the check costs little.
"""


@dataclass(frozen=True, slots=True)
class PlannedPreemption:
    """The decision and its effect on quota usage."""

    decision: Preempt
    victims: tuple[RunningJob, ...]
    charge: Charge


class PreemptionPlanner:
    """The preemptions of one cycle."""

    def __init__(
        self,
        state: State,
        session: Session,
        planner: QuotaPlanner,
        backfill: Backfill,
        now: float,
    ) -> None:
        self._backfill, self._reservations = backfill, backfill.reservations
        self._state, self._session, self._planner, self._now = state, session, planner, now
        self._rules = state.quota.rules.preemption
        self._searches = self._checks = 0
        self._max_searches = (
            0 if state.computes_reservations_next else self._rules.max_searches_per_cycle
        )
        self._ending = state.running_victims() | state.stuck.keys()
        self.due_at = inf
        """The next time at which a search could have another result."""

    @property
    def has_searched(self) -> bool:
        """Tell whether candidates were searched for victims in this cycle."""
        return self._searches > 0

    def plan(self, entry: PendingJob) -> PlannedPreemption | None:
        """Return victims for the job at the lowest cost that is found; None: none are.

        The victims are only extra workers of elastic gangs, if they are enough: these are preempted
        for any pending job.
        """
        extras = self._extra_workers()
        by_right = self._rules.any and entry.job.preempts
        if not (by_right or extras) or (extras and self._reservations.is_delay_unknown(entry.job)):
            return None
        if not self._may_search(entry):
            return None
        self._checks += 1
        job = entry.job
        found = self._search_extra_workers(job) if extras else None
        if found is None and by_right:
            found = (
                self._search_ignoring_extra_workers(job, extras)
                if extras
                else self._search_by_policy(job)
            )
        if found is None:
            entry.job_class.searched_at = self._now
            return None
        self._ending |= {running.job.id for running in found.victims}
        return found

    def earliest_preemption(self, job: Job) -> float | None:
        """Return when enough running jobs can be preempted for the job; None: never as things are.

        The minimum run times of the victims are over at that time.
        """
        if not self._rules.any or not job.preempts:
            return None
        policy = self._policy(job, may_preempt_own=self._may_preempt_own_tenant(job))
        protected = self._protected_seconds(policy)
        if not protected:
            return None
        table = self._state.running.table
        spared = self._spared(job)
        times = [self._now, *table.unprotected_times(protected, self._now, spared)]
        if self._victims_at(times[-1], policy, protected, spared) is None:
            return None
        low, high = 0, len(times) - 1
        while low < high:
            middle = (low + high) // 2
            if self._victims_at(times[middle], policy, protected, spared) is None:
                low = middle + 1
            else:
                high = middle
        return times[high]

    def _victims_at(
        self,
        at: float,
        policy: PreemptionPolicy,
        protected: Mapping[int, float],
        spared: set[JobId],
    ) -> VictimSet | None:
        """Return victims among the jobs that run now, as it will be at that time."""
        cluster, table = self._session.cluster, self._state.running.table
        candidates, _ = table.candidates(protected, at, spared)
        if not candidates:
            return None
        search = VictimSearch(policy, candidates, cluster, self._planner)
        return search.run(quota_only=self._planner.plan(cluster, policy.job) is not None)

    def _extra_workers(self) -> list[RunningJob]:
        """Return the extra workers that are not being preempted, the longest running first."""
        running = self._state.running.extra_workers.values()
        if not running:
            return []
        alive = (one for one in running if one.job.id not in self._ending)
        return sorted(alive, key=lambda one: (one.started, one.job.id))

    def _search_extra_workers(self, job: Job) -> PlannedPreemption | None:
        """Search for victims among extra workers, without places of queue heads before the job.

        Otherwise any job could take these places.
        """
        kinds = {
            number: 0.0
            for _, of_tenant in self._state.running.table.kinds()
            for number, sample in of_tenant.items()
            if sample.job.extends is not None
        }
        policy = self._policy(job, may_preempt_own=False)
        found = self._search(policy, self._session.cluster, kinds)
        if found is not None and not self._backfill.try_backfill(job, found.places):
            reserved = self._reservations.cluster_with_reservations(job)
            found = None if reserved is None else self._search(policy, reserved, kinds)
            if found is not None and not self._backfill.try_backfill(job, found.places):
                found = None
        return None if found is None else self._preemption(policy, found, ())

    def _search_by_policy(self, job: Job) -> PlannedPreemption | None:
        policy = self._policy(job, may_preempt_own=self._may_preempt_own_tenant(job))
        found = self._search(policy, self._session.cluster, self._protected_seconds(policy))
        return None if found is None else self._preemption(policy, found, ())

    def _search_ignoring_extra_workers(
        self, job: Job, extras: Sequence[RunningJob]
    ) -> PlannedPreemption | None:
        """Search for victims as if no extra workers ran, and add those that are in the way."""
        cluster = self._session.cluster.overlay()
        for extra in extras:
            for placement in extra.placements:
                cluster.assume_free(placement)
        with self._without_usage_of(extras):
            policy = self._policy(job, may_preempt_own=self._may_preempt_own_tenant(job))
            found = self._search(policy, cluster, self._protected_seconds(policy))
            if found is None:
                return None
            in_the_way = self._in_the_way(job, found, extras, cluster)
        gangs = {one.running.job.id for one in found.victims}
        own = [extra for extra in extras if extra.job.extends in gangs]
        if len(in_the_way) > len(own):
            with self._without_usage_of(own):
                alone = self._with_own_extra_workers(policy, found, own)
            if alone is not None:
                found, in_the_way = alone, own
        return self._preemption(policy, found, in_the_way)

    def _with_own_extra_workers(
        self, policy: PreemptionPolicy, found: VictimSet, own: Sequence[RunningJob]
    ) -> VictimSet | None:
        """Return the same victims, if they and their own extra workers are enough."""
        cluster = self._session.cluster.overlay()
        preempted = [one.running for one in found.victims]
        for running in (*preempted, *own):
            for placement in running.placements:
                cluster.assume_free(placement)
        for places, charge in self._planner.placements(cluster, policy.job):
            if policy.allows(preempted, charge):
                return VictimSet(found.victims, places, charge)
        return None

    def _in_the_way(
        self, job: Job, found: VictimSet, extras: Sequence[RunningJob], cluster: Cluster
    ) -> list[RunningJob]:
        """Return the extra workers of preempted gangs, and those that prevent these places."""
        gangs = {one.running.job.id for one in found.victims}
        for victim in found.victims:
            for placement in victim.running.placements:
                cluster.assume_free(placement)
        adopt_job(cluster, job, found.places)
        usage, preempted = self._state.quota.usage, list[RunningJob]()
        counted = [(one.running.job.tenant, one.running.charge, -1) for one in found.victims]
        counted.append((job.tenant, found.charge, 1))
        for tenant, charge, sign in counted:
            usage.add(tenant, charge, sign=sign)
        for extra in extras:
            tenant, charge = extra.job.tenant, extra.charge
            goes = extra.job.extends in gangs or not usage.fits(tenant, charge)
            if goes or not allocate_job(cluster, extra.job, extra.placements):
                preempted.append(extra)
                continue
            usage.add(tenant, charge)
            counted.append((tenant, charge, 1))
        for tenant, charge, sign in counted:
            usage.add(tenant, charge, sign=-sign)
        return preempted

    @contextmanager
    def _without_usage_of(self, extras: Sequence[RunningJob]) -> Iterator[None]:
        usage = self._state.quota.usage
        for extra in extras:
            usage.add(extra.job.tenant, extra.charge, sign=-1)
        self._planner.forget()
        try:
            yield
        finally:
            for extra in extras:
                usage.add(extra.job.tenant, extra.charge)
            self._planner.forget()

    def _policy(self, job: Job, *, may_preempt_own: bool) -> PreemptionPolicy:
        keys = frozenset(
            self._state.quota.keys.allowed(self._session.cluster, permitted_models(job.gang))
        )
        return PreemptionPolicy(self._state.quota, job, keys, may_preempt_own=may_preempt_own)

    def _preemption(
        self, policy: PreemptionPolicy, found: VictimSet, extras: Sequence[RunningJob]
    ) -> PlannedPreemption:
        preempted = tuple(one.running for one in found.victims)
        victims = tuple(
            Victim(
                running.job.id,
                policy.reason_for(running, preempted, found.charge),
                running.loss(self._now) / WHOLE_GPU,
            )
            for running in (*preempted, *extras)
        )
        decision = Preempt(policy.job.id, victims, found.places)
        return PlannedPreemption(decision, (*preempted, *extras), found.charge)

    def _may_search(self, entry: PendingJob) -> bool:
        """Tell whether a search is due; it never takes place twice at one instant."""
        searched = entry.job_class.searched_at
        if searched is not None:
            due = searched + self._rules.retry_seconds
            if due > self._now:
                self.due_at = min(self.due_at, due)
            if due > self._now or searched >= self._now:
                return False
        checks = MAX_CHECKS_PER_SEARCH * self._max_searches
        if self._searches >= self._max_searches or self._checks >= checks:
            self.due_at = self._now
            return False
        return True

    def _search(
        self, policy: PreemptionPolicy, cluster: Cluster, protected: Mapping[int, float]
    ) -> VictimSet | None:
        if not protected:
            return None
        table = self._state.running.table
        candidates, later = table.candidates(protected, self._now, self._spared(policy.job))
        self.due_at = min(self.due_at, later)
        if not candidates:
            return None
        self._searches += 1
        search = VictimSearch(policy, candidates, cluster, self._planner)
        return search.run(quota_only=self._planner.plan(cluster, policy.job) is not None)

    def _spared(self, job: Job) -> set[JobId]:
        """Return the jobs that are not preempted for the job, or are being preempted already."""
        return self._ending | protected_jobs(self._state, self._now, job)

    def _may_preempt_own_tenant(self, job: Job) -> bool:
        own = self._state.running.of_tenant(job.tenant) if self._rules.priority else ()
        return any(one.job.priority < job.priority and one.job.extends is None for one in own)

    def _protected_seconds(self, policy: PreemptionPolicy) -> dict[int, float]:
        """Return by kind how long its jobs are protected, for all kinds with possible victims."""
        return {
            number: self._state.quota.min_runtime(tenant)
            for tenant, kinds in self._state.running.table.kinds()
            if policy.may_preempt_tenant(tenant)
            for number, sample in kinds.items()
            if sample.job.extends is None
            and policy.may_preempt_job(sample)
            and policy.may_preempt_alone(sample)
        }
