# SPDX-License-Identifier: Apache-2.0
"""Victims for windows, so that their GPUs are free when they begin.

    surely ends before the window ─► no victim
    by the preemption policies    ─► borrowing jobs of other tenants, and the tenant's other jobs
    started on notice             ─► any preemptible job that started after the reservation stood

Space for one unit after another is made where it is cheapest. For each unit the policies come
first. Jobs of a window are not preempted for another window. Victims are preempted early enough for
the longest of their grace periods to end when the window begins, and not earlier.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import takewhile
from math import inf
from typing import Final

from gpupack_devices.units import WHOLE_GPU
from gpupack_placement.cluster import Cluster
from gpupack_queue.charge import Charge
from gpupack_queue.decisions import PreemptForWindow, PreemptionReason, Victim
from gpupack_queue.job import Job, JobId, RunningJob, Tenant, longest_grace
from gpupack_queue.preemption.policies import PreemptionPolicy
from gpupack_queue.preemption.victim_search import VictimSearch
from gpupack_queue.quotas.quota_planner import QuotaPlanner
from gpupack_queue.state.queue_state import State
from gpupack_queue.window import Window
from gpupack_queue.windows.holds import (
    charge_of,
    in_order,
    place_units,
    protected_jobs,
    used_by_jobs,
)
from gpupack_queue.windows.upcoming import cluster_at, is_on_notice, lead_seconds

MAX_UNITS_PER_CYCLE: Final = 8
"""The maximum number of units for which a cycle preempts; the next one is due at once."""
MAX_UNITS_AHEAD: Final = 32
"""The maximum number of units for which a cycle searches while no victim has to end yet."""


class NoticePolicy(PreemptionPolicy):
    """The rule for jobs that started on notice: each can be preempted, whatever its quota."""

    def may_preempt_tenant(self, tenant: Tenant) -> bool:  # noqa: ARG002
        """Return True."""
        return True

    def may_preempt_job(self, running: RunningJob) -> bool:
        """Tell whether the job is preemptible."""
        return running.job.preemptible

    def may_preempt_alone(self, running: RunningJob) -> bool:
        """Tell whether the job is preemptible."""
        return running.job.preemptible

    def may_preempt_together(self, victims: Sequence[RunningJob]) -> bool:  # noqa: ARG002
        """Return True."""
        return True

    def max_preemptible(
        self,
        running: Sequence[RunningJob],  # noqa: ARG002
        milli: Sequence[int],
    ) -> int:
        """Return all that the jobs hold."""
        return sum(milli)

    def allows(self, victims: Sequence[RunningJob], charge: Charge) -> bool:  # noqa: ARG002
        """Return True: the reservation is within the nominal quota of its tenant."""
        return True


class WindowVictims:
    """The preemptions for windows of one cycle."""

    def __init__(self, state: State, snapshot: Cluster, planner: QuotaPlanner, now: float) -> None:
        self._state, self._snapshot, self._planner, self._now = state, snapshot, planner, now
        self.due_at = inf
        """The next time at which a preemption may be due."""

    def plan(self) -> Iterator[tuple[PreemptForWindow, tuple[RunningJob, ...]]]:
        """Yield what to preempt now, window by window, with the victims."""
        taken: set[JobId] = set()
        for window, at in self._times():
            if self._is_searched(window):
                continue
            victims, is_complete = self._victims(window, at, taken)
            grace = longest_grace(victims)
            if victims and self._now < at - grace:
                self.due_at = min(self.due_at, at - grace)
                if len(victims) > MAX_UNITS_PER_CYCLE:
                    self._search_again(window, at - grace)
            elif victims:
                taken |= {one.job.id for one in victims}
                self.due_at = self.due_at if is_complete else self._now
                yield self._decision(self._beginning_at(at, window), victims), victims

    def _beginning_at(self, at: float, window: Window) -> Window:
        """Return the window that begins then and takes GPUs from another one, or this one."""
        if window.start < at:
            beginning = in_order(each for each in self._state.windows if each.start == at)
            return beginning[0] if beginning else window
        return window

    def _times(self) -> Iterator[tuple[Window, float]]:
        """Yield each window with the times for which it is searched now.

        These are its start, and the starts of other windows while it lasts: it may lack GPUs when
        another one begins.
        """
        windows = in_order(each for each in self._state.windows if self._now < each.end)
        due = [
            max(each.start, self._now)
            for each in windows
            if each.start - lead_seconds(self._state, each, self._now) <= self._now
        ]
        for window in windows:
            yield from ((window, at) for at in sorted(set(due)) if window.is_active(at))

    def _is_searched(self, window: Window) -> bool:
        """Tell whether a search found nothing a moment ago, or nothing that is due."""
        searched = self._state.window_searches.get(window.reservation, -inf)
        retry_seconds = self._state.quota.rules.preemption.retry_seconds
        if self._now >= searched + retry_seconds:
            return False
        self.due_at = min(self.due_at, searched + retry_seconds)
        return True

    def _search_again(self, window: Window, due_at: float) -> None:
        """Let the next search, which takes long, be after a moment, or when victims are due."""
        retry_seconds = self._state.quota.rules.preemption.retry_seconds
        self._state.window_searches[window.reservation] = min(self._now, due_at - retry_seconds)

    def _decision(self, window: Window, victims: Sequence[RunningJob]) -> PreemptForWindow:
        return PreemptForWindow(
            window.reservation,
            tuple(
                Victim(one.job.id, PreemptionReason.TIME_WINDOW, one.loss(self._now) / WHOLE_GPU)
                for one in victims
            ),
        )

    def _victims(
        self, window: Window, at: float, taken: set[JobId]
    ) -> tuple[tuple[RunningJob, ...], bool]:
        """Return the jobs that must end for the window by then, without those that do already.

        False: more have to be searched for.
        """
        search = _Search(
            self._state, self._snapshot, self._planner, window, self._now, at=at, taken=taken
        )
        units = 0
        while units < self._max_units(search.victims, at) and search.add_unit():
            units += 1
        self.due_at = min(self.due_at, search.due_at)
        if search.has_failed and not search.victims:
            self._state.window_searches[window.reservation] = self._now
        extras = self._state.extra_workers_of(search.victims)
        victims = (*search.victims, *(one for one in extras if one not in search.victims))
        return victims, units < self._max_units(search.victims, at)

    def _max_units(self, victims: Sequence[RunningJob], at: float) -> int:
        """Return for how many units a cycle searches victims, with these so far.

        While none of them has to end yet, one of the next may have a longer grace period.
        """
        return MAX_UNITS_PER_CYCLE if self._now >= at - longest_grace(victims) else MAX_UNITS_AHEAD


class _Search:
    """The search for one window and one time; it makes space for one unit after another."""

    def __init__(  # noqa: PLR0913 - what is searched, for which window and time, and now
        self,
        state: State,
        snapshot: Cluster,
        planner: QuotaPlanner,
        window: Window,
        now: float,
        *,
        at: float,
        taken: Collection[JobId],
    ) -> None:
        self._state, self._planner, self._window, self._now = state, planner, window, now
        self._active = in_order(each for each in state.windows if each.is_active(at))
        self._protected = protected_jobs(state, at)
        self._needed_by = {
            each: max(each.milli - used_by_jobs(state, each, at=at), 0) for each in self._active
        }
        self._needed = self._needed_by[window]
        self._cluster = cluster_at(state, snapshot, at, state.running_victims())
        for running in filter(None, map(state.running.get, taken)):
            self._free(running)
        self._ending = state.running_victims() | state.stuck.keys() | set(taken)
        self._ending |= {one.job.id for one in state.running if one.latest_end <= at}
        self.victims: list[RunningJob] = []
        self.has_failed = False
        """Whether a unit is missing for which there are no victims."""
        self.due_at = inf
        """The time at which the minimum run time of the next possible victim is over."""

    def add_unit(self) -> bool:
        """Add the victims for one more unit; return whether one was missing and found."""
        placed = self._cluster.overlay()
        if not sum(self._place(placed, each) for each in self._active):
            return False
        placed = self._cluster.overlay()
        for each in takewhile(lambda one: one != self._window, self._active):
            self._place(placed, each)
        missing = self._place(placed, self._window)
        if not missing:
            return False
        request = self._window.request
        if missing < request.milli:
            request = replace(request, gpus=missing // WHOLE_GPU)
        unit = self._window.holder(request, 1)
        found = self._search(unit, placed, PreemptionPolicy)
        found = found or self._search(unit, placed, NoticePolicy)
        for one in found:
            self._free(one)
            self._ending.add(one.job.id)
        self.victims += found
        self.has_failed = not found
        return bool(found)

    def _place(self, cluster: Cluster, window: Window) -> int:
        """Place what the window needs; return what is missing."""
        return place_units(cluster, window, self._needed_by[window], self._planner.plan)[1]

    def _free(self, running: RunningJob) -> None:
        for placement in running.placements:
            self._cluster.assume_free(placement)

    def _search(
        self, unit: Job, cluster: Cluster, kind: type[PreemptionPolicy]
    ) -> list[RunningJob]:
        quota = self._state.quota
        keys = frozenset(quota.keys.allowed(cluster, self._window.request.models))
        with self._counted(self._needed - unit.gang.milli):
            policy = kind(quota, unit, keys, may_preempt_own=True)
            candidates, later = self._state.running.table.candidates(
                self._protected_seconds(policy), self._now, self._spared(kind)
            )
            self.due_at = min(self.due_at, later)
            if not candidates:
                return []
            found = VictimSearch(policy, candidates, cluster, self._planner).run(quota_only=False)
        return [] if found is None else [one.running for one in found.victims]

    def _protected_seconds(self, policy: PreemptionPolicy) -> dict[int, float]:
        """Return by kind how long its jobs are protected, for all kinds with possible victims."""
        noticed = isinstance(policy, NoticePolicy)
        return {
            number: 0.0 if noticed or sample.job.extends else self._state.quota.min_runtime(tenant)
            for tenant, kinds in self._state.running.table.kinds()
            if noticed or self._may_preempt(policy, tenant)
            for number, sample in kinds.items()
            if policy.may_preempt_job(sample) and policy.may_preempt_alone(sample)
        }

    def _may_preempt(self, policy: PreemptionPolicy, tenant: Tenant) -> bool:
        rules = self._state.quota.rules.preemption
        is_on = rules.priority if tenant == self._window.tenant else rules.any
        return is_on and policy.may_preempt_tenant(tenant)

    def _spared(self, kind: type[PreemptionPolicy]) -> set[JobId]:
        """Return the jobs that are not preempted, or are already."""
        by_notice, window = kind is NoticePolicy, self._window
        return self._ending | {
            one.job.id
            for one in self._state.running
            if one.job.id in self._protected
            or window.admits(one.job)
            or (by_notice and not is_on_notice(one.job, one.started, window, self._protected))
        }

    @contextmanager
    def _counted(self, milli: int) -> Iterator[None]:
        """Count so much for the window's tenant, and nothing for the victims so far."""
        quota, tenant = self._state.quota, self._window.tenant
        counted = self._state.window_charges.get(self._window.reservation)
        changes = [(one.job.tenant, one.charge, -1) for one in self.victims]
        changes.append((tenant, charge_of(quota, self._window, milli), 1))
        if counted is not None:
            changes.append((*counted, -1))
        for of, charge, sign in changes:
            quota.usage.add(of, charge, sign=sign)
        self._planner.forget()
        try:
            yield
        finally:
            for of, charge, sign in changes:
                quota.usage.add(of, charge, sign=-sign)
            self._planner.forget()
