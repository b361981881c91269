# SPDX-License-Identifier: Apache-2.0
"""The queue: what its owner reports to it, and what it decides.

    submit, withdraw ─────────────► waiting ─┐
    start (Admit, or found running) ► running ─┼─► cycle ─► Decisions
    reserve (Preempt),                 ──────┤
    reserve_for_move (Move),                 │
    consolidate, release (CancelReservation) │
    end, record_release, configure, drain ───┘

A cycle decides and changes nothing. The owner writes each decision, carries it out and reports the
result (`start`, `reserve`, `reserve_for_move`, `consolidate`, `release`; `discard` for what is not
carried out). Then it calls `cycle` again, until nothing is decided and `due_at` is in the future.
Without reports in between, a cycle costs almost nothing.
"""

from collections.abc import Collection, Iterable, Mapping
from copy import copy
from dataclasses import replace
from functools import partial
from math import inf
from typing import Self

from gpupack_devices.units import NodeName
from gpupack_placement.cluster import Cluster
from gpupack_placement.errors import NotHeld
from gpupack_placement.request import Gang
from gpupack_queue.charge import ModelKey
from gpupack_queue.cycle.context import Restrictions
from gpupack_queue.cycle.run_cycle import run_cycle
from gpupack_queue.decisions import (
    Admit,
    Consolidate,
    Decisions,
    Preempt,
    PreemptForWindow,
    Statement,
)
from gpupack_queue.explain.direct_admission import DirectAdmission
from gpupack_queue.explain.explanation import Explainer
from gpupack_queue.explain.reasons import Wait
from gpupack_queue.job import Job, JobId, Places, ReservationId, RunningJob, Tenant
from gpupack_queue.pending.elastic_gangs import ElasticGangs
from gpupack_queue.pending.model_fallback import without_unused_models
from gpupack_queue.pending.pending_jobs import PendingJobs
from gpupack_queue.planning import Planner
from gpupack_queue.quotas.quota import Quotas
from gpupack_queue.quotas.quota_planner import QuotaPlanner
from gpupack_queue.quotas.quota_usage import QuotaUsage
from gpupack_queue.quotas.user_shares import usage_by_user
from gpupack_queue.rules import Rules
from gpupack_queue.running.drain import Drains
from gpupack_queue.state.queue_state import State
from gpupack_queue.state.reservation import Reservation
from gpupack_queue.state.session import Session
from gpupack_queue.window import Window, WindowPreemption, holder_id, reservation_of
from gpupack_queue.windows.holds import charge_of, used_by_jobs
from gpupack_queue.windows.report import WindowReport, window_reports

_DEFAULTS = Rules()
_NO_QUOTAS = Quotas()


def _empty_state(rules: Rules, quotas: Quotas) -> State:
    state = State(
        QuotaUsage(quotas, rules),
        PendingJobs(by_priority=rules.by_priority),
        elastic=ElasticGangs(by_priority=rules.by_priority),
    )
    state.pending.group_by_user(state.quota.tenants_by_user)
    return state


class Queue:
    """The queue; mutable and not thread-safe.

    It has no clock: `now` is in seconds and never goes back.
    """

    def __init__(self, rules: Rules = _DEFAULTS, quotas: Quotas = _NO_QUOTAS) -> None:
        """Create an empty queue."""
        self.rules = rules
        self._state = _empty_state(rules, quotas)
        self._look_at = -inf
        """A cycle before this time decides nothing."""
        self._measured = False

    def clear(self) -> None:
        """Forget all jobs, reservations and quotas, and keep past usage."""
        before = self._state.quota
        self._state = _empty_state(self.rules, _NO_QUOTAS)
        self._state.quota.history = before.history
        self._state.quota.user_history = before.user_history
        self._measured = False
        self._dirty()

    def copy(self, *, max_reservations: int) -> Self:
        """Return a copy for what-if questions, which may be used in another thread.

        `max_reservations`: per cycle, as in Rules, for cycles of the copy. It may be larger, since
        no other caller waits for the answer.
        """
        twin, state = copy(self), self._state.copy()
        twin.rules = state.quota.rules = replace(
            self.rules, max_reservations_per_cycle=max_reservations
        )
        vars(twin).update(_state=state, _look_at=-inf)
        return twin

    def __len__(self) -> int:
        """Return the number of pending jobs."""
        return len(self._state.pending)

    @property
    def idle(self) -> bool:
        """Tell whether a cycle has nothing to do.

        That is so if no job is pending, no elastic gang can grow, no devices are to be drained and
        no GPUs are reserved for windows.
        """
        state = self._state
        return not (len(self) or state.elastic or state.drains or state.windows)

    def jobs(self) -> list[Job]:
        """Return the pending jobs by priority and age."""
        return [entry.job for entry in self._state.pending]

    def ordered_ids(self) -> list[JobId]:
        """Return the pending jobs in the order in which they are admitted now."""
        order = self._state.order()
        return [
            entry.job.id for entry in sorted(self._state.pending.entries(), key=order.precedence)
        ]

    def gangs(self) -> list[Gang]:
        """Return the gangs that are pending; equal ones may be there several times."""
        return [job_class.gang for job_class in self._state.pending.job_classes()]

    @property
    def state(self) -> State:
        """Return the queue's state; read-only."""
        return self._state

    def submit(self, job: Job, now: float) -> None:
        """Add a pending job; a preempted one comes back with its old time of submission."""
        job = self._state.with_bounded_user(job)
        self._state.pending.add(self._state.fallbacks.add(job, now), now)
        self._dirty()

    def withdraw(self, job: JobId, cluster: Cluster) -> None:
        """Remove a pending job, and release the places that are reserved for it."""
        state = self._state
        state.remove_pending(job)
        state.beneficiaries.pop(job, None)
        state.speculative.remove(job)
        state.speculative.forget_head(job)
        state.record_withdrawal(job)
        self.release(job, cluster)

    def start(
        self,
        job: Job,
        places: Places,
        cluster: Cluster,
        now: float,
        *,
        since: float | None = None,
    ) -> None:
        """Record that the job runs there since `now`, after its admission was written.

        An extra worker is given as `extra_worker` of its gang, which runs.

        `since`: an earlier start, where the owner found the job running.
        """
        state = self._state
        self._pass_time(now)
        job = state.with_bounded_user(job)
        reserved = state.reserved.get(job.id)
        if reserved is not None:
            self._unreserve(reserved)
            if places != reserved.placements:
                state.record_release(cluster, reserved.placements)
                self._void()
        state.remove_pending(job.id)
        state.beneficiaries.pop(job.id, None)
        state.speculative.record_head_start(job.id, now)
        self._measure(cluster)
        started = now if since is None else min(since, now)
        job = without_unused_models(job, cluster, places)
        running = RunningJob(job, places, started, state.quota.charge(cluster, places))
        state.record_start(running)
        state.elastic.record_start(job, started)
        state.quota.held.add(job.tenant, running.charge)
        if job.id not in state.running_victims():
            state.quota.usage.add(job.tenant, running.charge)
        if state.windows:
            self._dirty()  # its grace period may be the longest before a window

    def update_running(self, job: Job, places: Places, cluster: Cluster, now: float) -> None:
        """Record that a running job has other places or properties: fewer workers, a deadline.

        Raises:
            NotHeld: it does not run.
        """
        state = self._state
        self._pass_time(now)
        stopping = job.id in state.running_victims()
        before = state.running.get(job.id)
        if before is None:
            raise NotHeld(f"job {job.id} does not run")
        charge = state.quota.charge(cluster, places)
        job = without_unused_models(job, cluster, places)
        running = replace(before, job=job, placements=places, charge=charge)
        state.record_change(before, running)
        state.elastic.record_end(before.job, now)
        state.elastic.record_start(job, now)
        state.quota.held.add(before.job.tenant, before.charge, sign=-1)
        state.quota.held.add(job.tenant, running.charge)
        if not stopping:
            state.quota.usage.add(before.job.tenant, before.charge, sign=-1)
            state.quota.usage.add(job.tenant, running.charge)
        if places != before.placements:
            state.record_release(cluster, before.placements)
        self._dirty()

    def correct_start(self, job: JobId, since: float) -> None:
        """Record the start of a running job that its owner has written down.

        Its expected end stays the same, and reservations remain valid.

        Raises:
            NotHeld: it does not run.
        """
        running = self._state.running
        before = running.remove(job)
        if before is None:
            raise NotHeld(f"job {job} does not run")
        found = before.job
        if since < before.latest_end < inf:
            found = replace(found, duration=before.latest_end - since)
        running.add(replace(before, job=found, started=since))

    def record_checkpoint(self, job: JobId, at: float | None) -> None:
        """Record when a running job last saved its work; None: unknown.

        Only the choice of victims depends on it, so reservations remain valid.

        Raises:
            NotHeld: it does not run.
        """
        running = self._state.running
        before = running.remove(job)
        if before is None:
            raise NotHeld(f"job {job} does not run")
        running.add(replace(before, checkpointed=at))

    def end(self, job: JobId, cluster: Cluster, now: float) -> None:
        """Record that a running job has succeeded, failed, been preempted or vanished.

        Its places are free again.

        Raises:
            NotHeld: it does not run.
        """
        state = self._state
        self._pass_time(now)
        stopping = job in state.running_victims()
        running = state.running.remove(job)
        if running is None:
            raise NotHeld(f"job {job} does not run")
        state.record_end(running)
        reserved = state.reserved.get(job)
        if reserved is not None:
            self._void()
        if reserved is not None and reserved.in_place:
            state.reserved[job] = replace(reserved, since=now, grace_seconds=0.0)
        state.elastic.record_end(running.job, now)
        beneficiary = state.stuck.pop(job, None)
        if beneficiary is not None and beneficiary in state.pending:
            state.beneficiaries[beneficiary] = None
        state.speculative.remove(job)
        state.forget_window_victim(job)
        state.quota.held.add(running.job.tenant, running.charge, sign=-1)
        if not stopping:
            state.quota.usage.add(running.job.tenant, running.charge, sign=-1)
        state.record_release(cluster, running.placements)
        self._dirty()

    def reserve(self, decision: Preempt, cluster: Cluster, since: float) -> None:
        """Record a preemption that was written, or that the owner found written when it started.

        `since`: when it was decided. The time that the victims have to end counts from it.

        Raises:
            NotHeld: the preemptor does not wait.
        """
        state = self._state
        entry = state.pending.get(decision.job)
        if entry is None:
            raise NotHeld(f"job {decision.job} does not wait")
        self._measure(cluster)
        victims = tuple(victim.job for victim in decision.victims)
        before = state.running_victims()
        charge = state.quota.charge(cluster, decision.placements)
        state.reserved[decision.job] = Reservation(
            entry.job,
            decision.placements,
            victims,
            since,
            charge,
            decision.in_place,
            state.grace_seconds(victims),
        )
        self._count_victims(before)
        state.quota.usage.add(entry.job.tenant, charge)
        preempted = [state.running.get(job) for job in victims if job not in before]
        alive = [running for running in preempted if running is not None]
        state.record_preemption(entry.job, decision.placements, alive)
        self._dirty()

    def reserve_rest(self, job: JobId, cluster: Cluster, now: float, plan: Planner) -> bool:
        """Reserve free places for the rest of an admission that was carried out in part.

        The job starts on them in the next cycle if its quota allows it. Return whether it has
        places; it has none if it does not wait or does not fit now.
        """
        entry = self._state.pending.get(job)
        if entry is None:
            return False
        if job in self._state.reserved:
            return True
        places = plan(Session(cluster, self._state.reserved.values()).cluster, entry.job)
        if places is None:
            return False
        self.reserve(Preempt(job, (), places), cluster, now)
        return True

    def reserve_for_move(
        self,
        job: Job,
        places: Places,
        cluster: Cluster,
        since: float,
        *,
        victims: Collection[JobId] | None = None,
        in_place: bool = False,
    ) -> None:
        """Record a job's move that was written, or that the owner found written when it started.

        The job ends, or has ended. As soon as it waits again, it starts there. `since`: when the
        time begins that it has to end and to wait again. `victims`: other jobs end for it, by a
        preemption that was found written; it does not wait yet. `in_place`:
        it has these places now, and starts only there while its last attempt still holds them; the
        time that it may take to wait again counts from its end.
        """
        state = self._state
        self._measure(cluster)
        before, charge = state.running_victims(), state.quota.charge(cluster, places)
        ending = (job.id,) if victims is None else tuple(victims)
        own_grace = job.grace_seconds if victims is None else 0.0
        grace = max(state.grace_seconds(ending), own_grace)
        state.reserved[job.id] = Reservation(job, places, ending, since, charge, in_place, grace)
        self._count_victims(before)
        state.quota.usage.add(job.tenant, charge)
        self._void()

    def consolidate(self, decision: Consolidate, cluster: Cluster, now: float) -> None:
        """Record a consolidation that was written: its preemption and its moves."""
        self.reserve(decision.preempt, cluster, now)
        for move in decision.moves:
            running = self._state.running.get(move.job)
            if running is not None:
                self.reserve_for_move(running.job, move.placements, cluster, now)

    def set_windows(self, windows: Iterable[Window]) -> None:
        """Set the current and following windows of all time-window reservations.

        Each reservation has at most one window at a time. Preemptions for a reservation that no
        longer stands are given up.
        """
        found = tuple(windows)
        state = self._state
        if found == state.windows:
            return
        state.windows = found
        state.window_searches.clear()
        state.pending.forget_failures()
        standing = {each.reservation for each in found}
        for reservation in [each for each in state.window_preemptions if each not in standing]:
            self._release_window(reservation, ())
        self._void()

    def reserve_for_window(self, decision: PreemptForWindow, now: float) -> None:
        """Record a preemption for a window that is carried out."""
        state = self._state
        before = state.running_victims()
        known = state.window_preemptions.get(decision.reservation)
        victims = tuple(victim.job for victim in decision.victims)
        state.window_preemptions[decision.reservation] = WindowPreemption(
            (*(known.victims if known else ()), *victims), now, state.grace_seconds(victims)
        )
        self._count_victims(before)
        self._void()

    def window_reports(self, cluster: Cluster, now: float, plan: Planner) -> list[WindowReport]:
        """Return what each window has and lacks, in the order of their starts."""
        return window_reports(self._state, cluster, plan, now)

    def drain(self, drains: Drains) -> None:
        """Set the devices that movable jobs leave as soon as possible; no others are to be left."""
        if drains != self._state.drains:
            self._state.drains = dict(drains)
            self._dirty()

    def release(self, job: JobId, cluster: Cluster, *, stuck: Iterable[JobId] = ()) -> None:
        """Release reserved places; `stuck`: victims that did not end, and are left alone."""
        state = self._state
        if (window := reservation_of(job)) is not None:
            self._release_window(window, tuple(stuck))
            return
        reservation = state.reserved.get(job)
        if reservation is None:
            self._dirty()
            return
        self._unreserve(reservation)
        state.stuck.update(dict.fromkeys(set(stuck) & set(reservation.victims), job))
        state.record_release(cluster, reservation.placements)
        self._void()

    def _release_window(self, reservation: ReservationId, stuck: Collection[JobId]) -> None:
        state = self._state
        before = state.running_victims()
        if state.window_preemptions.pop(reservation, None) is None:
            return
        state.stuck.update(dict.fromkeys(stuck, holder_id(reservation)))
        self._count_victims(before)
        self._void()

    def _count_windows(self, now: float) -> None:
        """Count what active windows hold; make failures void when it has changed."""
        state = self._state
        if not state.windows and not state.window_charges:
            return
        found = {}
        for window in state.windows:
            if window.is_active(now):
                milli = max(window.milli - used_by_jobs(state, window), 0)
                found[window.reservation] = window.tenant, charge_of(state.quota, window, milli)
        if found == state.window_charges:
            return
        for tenant, charge in state.window_charges.values():
            state.quota.usage.add(tenant, charge, sign=-1)
        for tenant, charge in found.values():
            state.quota.usage.add(tenant, charge)
        state.window_charges = found
        state.pending.forget_failures()
        self._void()

    def _unreserve(self, reservation: Reservation) -> None:
        state = self._state
        before = state.running_victims()
        del state.reserved[reservation.job.id]
        state.quota.usage.add(reservation.job.tenant, reservation.charge, sign=-1)
        self._count_victims(before)

    def _count_victims(self, before: Collection[JobId]) -> None:
        """Subtract the usage of running jobs that became victims; add that of those spared.

        `before`: the victims before the change.
        """
        state = self._state
        for job in state.running_victims() ^ set(before):
            running = state.running.get(job)
            if running is not None:
                sign = 1 if job in before else -1
                state.quota.usage.add(running.job.tenant, running.charge, sign=sign)

    def discard(self, held_back: Iterable[Admit], statement: Statement, cluster: Cluster) -> None:
        """Record that these admissions of the last cycle, and its statement, are not carried out.

        The jobs wait, and their places are free. Reservations that were computed with preemptions
        or moves of the statement are void.
        """
        for admit in held_back:
            self._state.speculative.remove(admit.job)
            self._state.record_release(cluster, admit.placements)
        self._dirty()
        if statement:
            self._void()

    def record_release(self, row: int) -> None:
        """Record that something on the node in this row of the cluster is free again."""
        self._state.pending.record_release(row)
        self._dirty()

    def record_node_change(self, node: NodeName, cluster: Cluster) -> None:
        """Record that the node was added, removed, repaired, broken or relabelled."""
        row = cluster.row(node)
        if row is not None:
            self._state.pending.record_release(row)
        self._measured = False
        self._void()

    def configure(self, quotas: Quotas, cluster: Cluster, now: float) -> None:
        """Use other quotas from now on."""
        self._pass_time(now)
        quota = self._state.quota
        before = quota.tracks_usage, quota.keys.all()
        quota.configure(quotas)
        quota.update_capacity(cluster)
        self._state.pending.group_by_user(quota.tenants_by_user)
        if self._measured and before == (quota.tracks_usage, quota.keys.all()):
            self._state.rebuild()
        else:
            self._state.recount(cluster)
        self._void()

    def restore_usage(
        self,
        averages: Mapping[Tenant, Mapping[ModelKey, float]],
        at: float,
        cluster: Cluster,
        now: float,
    ) -> None:
        """Take over past usage of tenants as it was stored at `at`, by a clock like that of `now`.

        It must be called once all running jobs are known: they count as running since then. Amounts
        are milli-GPU. Negative amounts, and those that are no numbers, are dropped. Amounts above
        the cluster's capacity are cut to it.
        """
        self._measure(cluster)
        self._pass_time(now)
        self._state.quota.restore(averages, at, self._state.running)
        self._dirty()

    def averages(self, now: float) -> Mapping[Tenant, Mapping[ModelKey, float]]:
        """Return past usage of tenants in milli-GPU; read-only, empty without a half-life."""
        self._pass_time(now)
        return self._state.quota.history.averages

    def cycle(
        self,
        cluster: Cluster,
        now: float,
        plan: Planner,
        *,
        preempt: bool = True,
        max_admissions: float = inf,
        excluded: Collection[Tenant] = (),
    ) -> Decisions:
        """Return what to do now, and when to call again if nothing is reported before.

        `preempt` False: no jobs are preempted or moved. `max_admissions`: approximate, so that the
        call is short. `excluded`: tenants whose jobs are not admitted.
        """
        if now < self._look_at:
            return Decisions(due_at=None if self._look_at == inf else self._look_at)
        self._measure(cluster)
        self._pass_time(now)
        self.permit_models(cluster, now, plan)
        self._count_windows(now)
        only = Restrictions(preempt, max_admissions, excluded)
        found = run_cycle(self._state, cluster, plan, now, only)
        if not found and not excluded:
            self._state.forget_beneficiaries()
        decided = bool(found) or found.due_at is not None
        self._look_at = inf if not decided else -inf if found else found.due_at or -inf
        if not preempt or excluded:
            self._dirty()
        return found

    def try_admit(self, job: Job, cluster: Cluster, now: float, plan: Planner) -> Places | Wait:
        """Return the places of a job that waits elsewhere, or why it is not admitted now.

        If it is admitted, a call of `start` must follow.
        """
        self._measure(cluster)
        self._count_windows(now)
        return DirectAdmission(self._state, cluster, plan, now).try_admit(job)

    def permit_models(self, cluster: Cluster, now: float, plan: Planner) -> None:
        """Give pending jobs with an order of models those that they may use now."""
        state = self._state
        if not state.fallbacks:
            return
        planner = QuotaPlanner(state.quota, plan)
        basis = state.never.basis(cluster, planner)
        never = partial(state.never.answer, cluster, planner)
        if state.fallbacks.update(state.pending, never, basis, now):
            self._dirty()

    def explain(self, job: JobId, cluster: Cluster, now: float, plan: Planner) -> Wait:
        """Return why a job waits, as of the last cycle.

        Raises:
            NotHeld: it does not wait.
        """
        self.permit_models(cluster, now, plan)
        entry = self._state.pending.get(job)
        if entry is None:
            raise NotHeld(f"job {job} does not wait")
        return Explainer(self._state, cluster, plan, now).explain(entry)

    def jobs_before(self, job: JobId) -> list[Job]:
        """Return the pending jobs that are before it now, in no particular order.

        Raises:
            NotHeld: it does not wait.
        """
        state = self._state
        entry = state.pending.get(job)
        if entry is None:
            raise NotHeld(f"job {job} does not wait")
        order = state.order()
        return order.jobs_before(entry, state.pending)

    def _pass_time(self, now: float) -> None:
        quota = self._state.quota
        if quota.history.half_life:
            quota.history.advance(now, self._state.running.usage_by_tenant())
            quota.user_history.advance(now, usage_by_user(quota, self._state.running))

    def _measure(self, cluster: Cluster) -> None:
        """Measure the capacity, if nodes have changed."""
        quota = self._state.quota
        if not self._measured and quota.tracks_usage and quota.update_capacity(cluster):
            self._state.recount(cluster)
        self._measured = True

    def _dirty(self) -> None:
        self._look_at = -inf

    def _void(self) -> None:
        """Declare reservations void, because they rest on a state that has changed."""
        self._state.disruptions += 1
        self._dirty()
