# SPDX-License-Identifier: Apache-2.0
"""The start estimate of a pending job: the jobs before it and then itself, each at its earliest.

    jobs before it, in order ─► each is placed where and when it fits first, within its quota
                             ─► it holds its places from now until it must have ended
                             ─► then the job itself

A planned job holds its places from now on, not only from its start, and no job is preempted.
Running jobs end at their deadlines, or when similar jobs did; standalone pods have no known end.
A job with an order of models may start on a later one from the time at which that is permitted.
The estimate is certain for the first job that lacks only GPUs, if no other job can take what it
waits for: it has a reservation, or all that it needs is released at one moment. For other jobs it
is expected: jobs of known duration may be backfilled before them. A job of higher priority, or of a
tenant with a smaller share, that arrives later goes before it in both cases.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from math import inf
from typing import Final

from gpupack_placement.cluster import Cluster
from gpupack_queue.admission.strict_order import StrictOrder
from gpupack_queue.charge import NO_CHARGE, Charge, min_charge, permitted_models
from gpupack_queue.explain.released import is_released_at_once
from gpupack_queue.job import Job, JobId, Places, RunningJob, Tenant
from gpupack_queue.pending.order import Order
from gpupack_queue.pending.pending_jobs import PendingJob
from gpupack_queue.quotas.quota_planner import QuotaPlanner
from gpupack_queue.running.projected_cluster import ProjectedCluster
from gpupack_queue.start import At, Start, Unknown, WhenReleased
from gpupack_queue.state.estimate_cache import PlannedStart
from gpupack_queue.state.queue_state import State
from gpupack_queue.state.reservation import earliest_fit

MAX_AHEAD: Final = 16
"""The maximum number of jobs before it for which starts are computed.

With more, its own start is unknown.
"""

MAX_PLAN_AGE_SECONDS: Final = 5.0
"""The seconds for which plans are used again, while nothing starts, ends or comes before."""

NOTHING_HELPS: Final = (
    "the end of all running jobs does not help: nodes or GPUs that it needs are cordoned, in "
    "maintenance or unhealthy"
)

ENDLESS_BEFORE: Final = "jobs that start before it have no deadline"


class StartEstimate:
    """Start estimates for one state, of which only `state.estimates` changes."""

    def __init__(
        self,
        state: State,
        cluster: Cluster,
        planner: QuotaPlanner,
        order: Order,
        strict: StrictOrder,
        now: float,
    ) -> None:
        """Use `cluster` of a session, in which reserved places are held."""
        self._state, self._cluster, self._planner = state, cluster, planner
        self._order, self._strict, self._now = order, strict, now

    def estimate(self, entry: PendingJob) -> Start:
        """Return At, WhenReleased or Unknown."""
        ahead = self._ahead(entry)
        if len(ahead) > MAX_AHEAD:
            return Unknown(f"more than {MAX_AHEAD} jobs and pods wait before it")
        planned = self._planned([*(each.job for each in ahead), entry.job])
        own = planned[-1]
        if own.placements is None:
            if own.holders:
                return WhenReleased(own.holders)
            endless = any(each.placements and each.until == inf for each in planned[:-1])
            return Unknown(ENDLESS_BEFORE if endless else NOTHING_HELPS)
        strict = [each.start_at for each in self._strictly_before(entry, ahead, planned)]
        at = max(own.start_at, self._now, *strict)
        if at < inf:
            return At(at, is_estimated=not self._is_certain(entry, planned))
        return WhenReleased(own.holders) if own.holders else Unknown(ENDLESS_BEFORE)

    def _is_certain(self, entry: PendingJob, planned: Sequence[PlannedStart]) -> bool:
        """Tell whether no other pending job can take what the last of these waits for."""
        own = planned[-1]
        if own.is_estimated or any(each.placements for each in planned[:-1]):
            return False
        if entry.pending_since + self._state.quota.rules.reserve_after_seconds <= self._now:
            return True
        released = (
            place
            for one in self._state.running
            if one.latest_end == own.start_at
            for place in one.placements
        )
        return is_released_at_once(self._cluster, own.placements or (), released)

    def _ahead(self, entry: PendingJob) -> list[PendingJob]:
        """Return the jobs before it, at most one more than starts are computed for."""
        found = list[PendingJob]()
        for job_class in self._state.pending.job_classes():
            never = self._state.never.answer(self._cluster, self._planner, job_class)
            if never is not None:
                continue
            before = self._order.count_before(entry, job_class)
            found += job_class.entries[: min(before, MAX_AHEAD + 1)]
        kept = {
            reservation.job.id
            for reservation in self._state.backfill_reservations
            if reservation.placements is not None
        }
        heads = filter(None, map(self._state.pending.get, kept - {each.job.id for each in found}))
        found += [head for head in heads if head.job.id != entry.job.id]
        found = [each for each in found if each.job.id not in self._state.reserved]
        return sorted(found, key=self._order.precedence)[: MAX_AHEAD + 1]

    def _strictly_before(
        self, entry: PendingJob, ahead: Sequence[PendingJob], planned: Sequence[PlannedStart]
    ) -> Iterator[PlannedStart]:
        """Yield the plans before which it does not start, because of strict order."""
        quota = self._state.quota
        scope = quota.strict_scope(entry.job.tenant)
        for other, plan in zip(ahead, planned, strict=False):
            if scope is None or quota.strict_scope(other.job.tenant) != scope:
                continue
            if plan.placements is not None and self._strict.compete(other, entry):
                yield plan

    def _planned(self, jobs: Sequence[Job]) -> list[PlannedStart]:
        """Return a plan for each job after the ones before it; known first plans are used again."""
        state, known = self._state, self._state.estimates
        key = state.run_changes, state.disruptions, len(state.running), tuple(state.reserved)
        if known.key != key or self._now >= known.computed_at + MAX_PLAN_AGE_SECONDS:
            known.key, known.computed_at, known.planned = key, self._now, []
        same = 0
        while same < min(len(known.planned), len(jobs)) and known.planned[same].job is jobs[same]:
            same += 1
        found = known.planned[:same]
        for job in jobs[same:]:
            found.append(self._plan_with_fallback(job, found))
        if same < len(jobs):
            known.planned = found
        return found

    def _plan_with_fallback(self, job: Job, before: Sequence[PlannedStart]) -> PlannedStart:
        """Return the earliest plan with the models that the job may use now, or at a later time."""
        found = self._plan(job, before)
        for at, gang in self._state.fallbacks.later_gangs(job.id):
            if found.placements is not None and found.start_at <= at:
                break
            other = self._plan(replace(job, gang=gang), before)
            start_at = max(other.start_at, at)
            if other.placements is not None and (
                found.placements is None or start_at < found.start_at
            ):
                found = replace(other, job=job, start_at=start_at, is_estimated=True)
        return found

    def _plan(self, job: Job, before: Sequence[PlannedStart]) -> PlannedStart:
        """Return the plan for one job after the ones before it."""
        quota_at, quota_holders = self._quota_allows_at(job, before)
        held = [each for each in before if each.placements is not None]
        also = [
            RunningJob(each.job, each.placements or (), each.start_at, each.charge)
            for each in held
            if each.start_at < inf
        ]
        also += self._preemptors()
        extras = self._state.running.extra_workers
        cluster = self._cluster.overlay()
        for extra in extras.values():
            for placement in extra.placements:
                cluster.assume_free(placement)
        future = ProjectedCluster(
            cluster, self._state.running.table.expected_ends(self._now, also), removed=extras
        )
        for each in held:
            future.adopt(each.job, each.placements or ())
        at, placements = self._now, self._planner.plan(cluster, job)
        if placements is None:
            at, placements = earliest_fit(future, job, self._planner.plan)
        if placements is None:
            holders = self._endless_holders(job, held, also)
            return PlannedStart(job, inf, None, NO_CHARGE, is_estimated=False, holders=holders)
        is_estimated = (future.is_estimated and at > self._now) or quota_at > self._now
        is_estimated = is_estimated or any(each.is_estimated for each in held)
        holders = quota_holders
        if at == inf:
            holders = self._without_end_on(placements) or quota_holders
        charge = self._state.quota.charge(self._cluster, placements)
        return PlannedStart(job, max(at, quota_at), placements, charge, is_estimated, holders)

    def _endless_holders(
        self, job: Job, held: Sequence[PlannedStart], also: Sequence[RunningJob]
    ) -> tuple[JobId, ...]:
        """Return the jobs that run forever where the job would fit without any of them."""
        endless = {one.job.id: one for one in self._state.running if one.job.is_endless}
        if not endless:
            return ()
        cluster = self._cluster.overlay()
        gone = {**self._state.running.extra_workers, **endless}
        for one in gone.values():
            for placement in one.placements:
                cluster.assume_free(placement)
        ends = self._state.running.table.expected_ends(self._now, also)
        future = ProjectedCluster(cluster, ends, removed=gone)
        for each in held:
            future.adopt(each.job, each.placements or ())
        placements = self._planner.plan(cluster, job)
        if placements is None:
            _, placements = earliest_fit(future, job, self._planner.plan)
        return () if placements is None else self._without_end_on(placements)

    def _preemptors(self) -> list[RunningJob]:
        """Return preemptors, which hold their places in the cluster already, as running jobs."""
        waiting = self._state.pending
        return [
            RunningJob(each.job, each.placements, self._now, each.charge)
            for each in self._state.reserved.values()
            if each.job.id in waiting
        ]

    def _without_end_on(self, placements: Places) -> tuple[JobId, ...]:
        """Return the jobs without a known end on these devices, or else on these nodes."""
        nodes = {placement.node for placement in placements}
        uuids = {grant.uuid for placement in placements for grant in placement.devices}
        endless = [
            one
            for one in self._state.running
            if one.job.expected_end(one.started) == inf
            and any(placement.node in nodes for placement in one.placements)
        ]
        here = [
            one.job.id
            for one in endless
            if any(grant.uuid in uuids for place in one.placements for grant in place.devices)
        ]
        return tuple(here or [one.job.id for one in endless])

    def _quota_allows_at(
        self, job: Job, before: Sequence[PlannedStart]
    ) -> tuple[float, tuple[JobId, ...]]:
        """Return when its quota allows it, and the jobs of unknown end that have to end before."""
        quota, needed = self._state.quota, min_charge(job.gang)
        if not quota.has_limits or not needed:
            return self._now, ()
        usage = quota.usage
        counted = [(each.job.tenant, each.charge, 1) for each in before if each.placements]
        for tenant, charge, _ in counted:
            usage.add(tenant, charge)
        found, endless = self._now, list[JobId]()
        try:
            if self._allows(job, needed):
                return found, ()
            for end, one, tenant, charge in self._ends(before):
                usage.add(tenant, charge, sign=-1)
                counted.append((tenant, charge, -1))
                found = max(found, end)
                endless += [one] if end == inf else []
                if self._allows(job, needed):
                    return found, tuple(endless)
            return inf, ()
        finally:
            for tenant, charge, sign in reversed(counted):
                usage.add(tenant, charge, sign=-sign)

    def _allows(self, job: Job, needed: int) -> bool:
        """Tell whether the quota allows it by current usage."""
        quota = self._state.quota
        leaf, keys = (
            quota.tree.tenant(job.tenant),
            quota.keys.allowed(self._cluster, permitted_models(job.gang)),
        )
        return not keys or sum(max(quota.usage.available(leaf, key), 0) for key in keys) >= needed

    def _ends(
        self, before: Sequence[PlannedStart]
    ) -> Iterable[tuple[float, JobId, Tenant, Charge]]:
        """Return the ends of all that counts against quotas, in order."""
        stopping = self._state.running_victims()
        found = [
            (self._end_of(one), one.job.id, one.job.tenant, one.charge)
            for one in self._state.running
            if one.charge and one.job.id not in stopping
        ]
        found += [
            (each.until, each.job.id, each.job.tenant, each.charge)
            for each in before
            if each.placements is not None
        ]
        return sorted(found, key=lambda each: (each[0], each[1]))

    def _end_of(self, one: RunningJob) -> float:
        """Return its end; a job that exceeds its estimate ends at its deadline."""
        expected = one.job.expected_end(one.started)
        return expected if expected > self._now else one.latest_end
