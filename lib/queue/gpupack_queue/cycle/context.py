# SPDX-License-Identifier: Apache-2.0
"""What the actions of one cycle share: the working copies, the rules, and the decisions so far.

A decision changes the working copies, so that later ones respect it. At the end of the cycle these
changes are discarded: the owner of the queue writes the decisions and reports what became of them.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from math import inf

from gpupack_placement.cluster import Cluster
from gpupack_queue.admission.start_check import Answer, StartCheck
from gpupack_queue.admission.strict_order import StrictOrder
from gpupack_queue.charge import Charge
from gpupack_queue.decisions import (
    Admit,
    CancelReservation,
    Consolidate,
    Decisions,
    Move,
    Preempt,
    PreemptForWindow,
)
from gpupack_queue.job import Job, JobId, Places, RunningJob, Tenant
from gpupack_queue.pending.order import Order
from gpupack_queue.pending.pending_jobs import PendingJob
from gpupack_queue.planning import Planner
from gpupack_queue.preemption.planner import PlannedPreemption
from gpupack_queue.quotas.quota_planner import QuotaPlanner
from gpupack_queue.reservations.backfill import Backfill
from gpupack_queue.reservations.backfill_reservations import BackfillReservations
from gpupack_queue.start import Now
from gpupack_queue.state.queue_state import State
from gpupack_queue.state.session import Session
from gpupack_queue.window import Window
from gpupack_queue.windows.holds import WindowHolds, charge_of
from gpupack_queue.windows.upcoming import UpcomingWindows


@dataclass(frozen=True, slots=True)
class Restrictions:
    """Restrictions of what a cycle decides: see Queue.cycle."""

    preempt: bool = True
    max_admissions: float = inf
    excluded: Collection[Tenant] = ()


class CycleContext:
    """The context of one cycle; mutable, used once."""

    def __init__(
        self,
        state: State,
        cluster: Cluster,
        plan: Planner,
        now: float,
        restrictions: Restrictions,
    ) -> None:
        self.state, self.quota, self.rules = state, state.quota, state.quota.rules
        self.plan, self.now, self.restrictions = plan, now, restrictions
        self._effective_usage = state.quota.effective_usage(state.running)
        self._users = state.user_shares()
        self.order = Order(self._effective_usage, self._users)
        self.session = Session(cluster, state.reserved.values())
        self.planner = QuotaPlanner(state.quota, plan)
        self.strict = StrictOrder(state, self.session.snapshot, self.planner)
        self.reservations = BackfillReservations(
            state, self.session, plan, now, max_computed=self.rules.max_reservations_per_cycle
        )
        self.backfill = Backfill(
            state,
            self.session,
            plan,
            now,
            self.reservations,
            max_moves=self.rules.max_reservations_per_cycle,
        )
        self.holds = WindowHolds(state, self.session, plan, now)
        self.holds.place_all()
        self.upcoming = UpcomingWindows(state, self.session, plan, now)
        self._check = StartCheck(
            state,
            self.session,
            self.planner,
            strict=self.strict,
            backfill=self.backfill,
            upcoming=self.upcoming,
        )
        self.admitted: list[Admit] = []
        self.served: set[JobId] = set()
        """The jobs among them that were admitted before their turn."""
        self.starting_elastic: list[Job] = []
        """The elastic gangs among them."""
        self.preemptions: list[Preempt] = []
        self.cancelled: list[CancelReservation] = []
        self.moves: list[Move] = []
        self.consolidations: list[Consolidate] = []
        self.for_windows: list[PreemptForWindow] = []
        self.is_complete = True
        """Whether all jobs were considered."""
        self.has_searched = False
        """Whether victims were searched for in this cycle."""
        self._due_at = inf
        self._counted: list[tuple[Tenant, Charge, int]] = []
        self._held: list[tuple[Tenant, Charge]] = []

    def look_again(self, at: float) -> None:
        """Let the next cycle be due at this time, if not before."""
        self._due_at = min(self._due_at, at)

    def postpone_preemptions(self) -> None:
        """Preempt and move no more jobs in this cycle; the next one is due at once."""
        self.restrictions = replace(self.restrictions, preempt=False)
        self.look_again(self.now)

    def is_full(self) -> bool:
        """Tell whether as many jobs are admitted as the restrictions allow."""
        if len(self.admitted) < self.restrictions.max_admissions:
            return False
        self.is_complete = False
        return True

    def try_admit(self, entry: PendingJob) -> Answer:
        """Admit a pending job if it may start; return the answer."""
        window = self.holds.window_of(entry.job)
        if window is not None:
            return self.try_admit_to(window, entry)
        answer = self._check.check(entry)
        if isinstance(answer, Now):
            self.admit(entry.job, answer.placements, answer.charge)
        return answer

    def try_admit_to(self, window: Window, entry: PendingJob) -> Answer:
        """Admit a job that may use the GPUs of an active window, if it may start."""
        before = charge_of(self.quota, window, self.holds.remaining(window))
        self.holds.release(window)
        self.count(window.tenant, before, -1)
        answer = self._check.check_alone(entry)
        if isinstance(answer, Now):
            self.admit(entry.job, answer.placements, answer.charge)
        self.holds.hold(window, answer.placements if isinstance(answer, Now) else ())
        after = charge_of(self.quota, window, self.holds.remaining(window))
        self.count(window.tenant, after, 1)
        return answer

    def admit(self, job: Job, places: Places, charge: Charge) -> None:
        """Admit a job on these places."""
        self.session.hold(job, places)
        self.count(job.tenant, charge, 1)
        self._users.add(job, charge)
        self.quota.held.add(job.tenant, charge)
        self._held.append((job.tenant, charge))
        self.admitted.append(Admit(job.id, places))
        if job.extra_workers and job.extends is None:
            self.starting_elastic.append(job)
        self.reservations.record_start(RunningJob(job, places, self.now, charge))
        self.upcoming.record_start(job, places)

    def preempt(self, entry: PendingJob, preemption: PlannedPreemption) -> None:
        """Preempt the victims for a pending job, and hold its places."""
        for running in preemption.victims:
            self.count(running.job.tenant, running.charge, -1)
            self._users.add(running.job, running.charge, sign=-1)
        self.count(entry.job.tenant, preemption.charge, 1)
        self._users.add(entry.job, preemption.charge)
        self.session.hold(entry.job, preemption.decision.placements)
        self.preemptions.append(preemption.decision)
        places = preemption.decision.placements
        self.reservations.record_preemption(entry.job, places, preemption.victims)
        self.upcoming.record_preemption(entry.job, places, preemption.victims)

    def count(self, tenant: Tenant, charge: Charge, sign: int) -> None:
        """Count usage of a tenant until the end of the cycle."""
        if not charge:
            return
        usage = self.quota.usage
        usage.add(tenant, charge, sign=sign)
        self._counted.append((tenant, charge, sign))
        if self._effective_usage is not None and self._effective_usage is not usage:
            self._effective_usage.add(
                tenant, charge, sign=sign * self.quota.history.weight_of_current
            )
        self.order.forget(tenant)
        self.planner.forget()

    def discard_counts(self) -> None:
        """Undo all that was counted."""
        for tenant, charge, sign in reversed(self._counted):
            self.quota.usage.add(tenant, charge, sign=-sign)
        for tenant, charge in self._held:
            self.quota.held.add(tenant, charge, sign=-1)

    def decisions(self) -> Decisions:
        """Return all decisions, and when the next one may be due."""
        look_at = min(self._due_at, self.reservations.due_at, self.upcoming.due_at())
        return Decisions(
            tuple(self.admitted),
            tuple(self.preemptions),
            tuple(self.cancelled),
            tuple(self.moves),
            tuple(self.consolidations),
            None if look_at == inf else look_at,
            self.is_complete,
            tuple(self.for_windows),
        )
