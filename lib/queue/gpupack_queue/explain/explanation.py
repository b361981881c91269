# SPDX-License-Identifier: Apache-2.0
"""The explanation of a wait: its reason, the start estimate and what would help.

It is computed for one job when it is requested, and never for all jobs. Every surface shows this
answer: the status of a GPUJob, a pod's condition, `explain`, `queue`, `what-if` and the page.
"""

from dataclasses import replace
from math import inf
from typing import NamedTuple, assert_never

from gpupack_placement.cluster import Cluster
from gpupack_placement.gang import why_not
from gpupack_placement.policies import POLICIES
from gpupack_placement.reasons import Refusal
from gpupack_queue.admission.start_check import StartCheck
from gpupack_queue.admission.strict_order import StrictOrder
from gpupack_queue.charge import ModelKey, min_charge
from gpupack_queue.explain import reasons, remedies
from gpupack_queue.explain.reasons import Wait, WaitReason
from gpupack_queue.explain.start_estimate import MAX_AHEAD, StartEstimate
from gpupack_queue.job import Job
from gpupack_queue.pending.pending_jobs import JobClass, PendingJob, RequestClass
from gpupack_queue.planning import Planner
from gpupack_queue.preemption.planner import PreemptionPlanner
from gpupack_queue.quotas.quota_planner import QuotaPlanner
from gpupack_queue.quotas.tree import TreeNode
from gpupack_queue.quotas.usage import Usage
from gpupack_queue.reservations.backfill import Backfill
from gpupack_queue.reservations.backfill_reservations import BackfillReservations
from gpupack_queue.reservations.in_place_restart import is_held_by_last_attempt
from gpupack_queue.start import (
    At,
    Never,
    NotNow,
    Now,
    Start,
    Unknown,
    Unsatisfied,
    WhenReleased,
    latest_start,
)
from gpupack_queue.state.queue_state import State
from gpupack_queue.state.reservation import BackfillReservation, Reservation, is_free
from gpupack_queue.state.session import Session
from gpupack_queue.windows.holds import WindowHolds
from gpupack_queue.windows.upcoming import UpcomingWindows

_ANY_POLICY = POLICIES["first-fit"]
"""Any policy will do: why something fits nowhere does not depend on it."""

_MAY_PREEMPT = frozenset(
    {WaitReason.DOES_NOT_FIT, WaitReason.QUOTA_EXCEEDED, WaitReason.BORROWING_LIMIT_EXCEEDED}
)
"""The reasons for which jobs can be preempted for the one that waits."""


class _Cause(NamedTuple):
    reason: WaitReason
    text: str
    start: Start | None = None
    """The start; None: it is estimated."""
    blocked_by: Job | None = None
    refusal: Refusal | None = None
    text_without_times: str = ""
    """The text without times; empty: the text has none."""
    left: float = inf
    lacks_only_gpus: bool = False


class Explainer:
    """Explanations for one state, which stays as it is."""

    def __init__(
        self,
        state: State,
        cluster: Cluster,
        plan: Planner,
        now: float,
        *,
        behind_pending: bool = False,
    ) -> None:
        """Explain for jobs of the queue, or for ones that go behind all pending jobs."""
        self._behind_pending = behind_pending
        self._state, self._cluster, self._plan, self._now = state, cluster, plan, now
        self._quota, self._usage = state.quota, state.quota.usage
        self._session = Session(cluster, state.reserved.values())
        self._planner = QuotaPlanner(state.quota, plan)
        self._strict = StrictOrder(state, self._session.snapshot, self._planner)
        self._holds = WindowHolds(state, self._session, plan, now)
        self._holds.place_all()
        self._upcoming = UpcomingWindows(state, self._session, plan, now)
        self._check = StartCheck(state, self._session, self._planner, upcoming=self._upcoming)
        self._order = state.order()

    def explain(self, entry: PendingJob) -> Wait:
        """Return the first reason that holds, with all other parts of the answer."""
        with self._holds.released_for(entry.job):
            return self._explain(entry)

    def _explain(self, entry: PendingJob) -> Wait:
        cause = self._cause(entry)
        position, waiting = self._order.position(entry, self._state.pending), self._state.pending
        start = cause.start or self._estimate_start(entry, cause.reason, position)
        wait = Wait(
            cause.reason,
            cause.text,
            start,
            position,
            len(waiting),
            None if cause.blocked_by is None else cause.blocked_by.id,
            cause.refusal,
            cause.text_without_times or cause.text,
            cause.left,
            cause.lacks_only_gpus,
            models=self._state.fallbacks.permitted(entry.job.id),
            passed_by_user=self._order.goes_first_by_user(entry, waiting),
        )
        found = remedies.find_remedies(
            self._state, self._session.cluster, entry.job, wait, self._now
        )
        return replace(wait, remedies=found.texts, borrowed=found.borrowed)

    def _estimate_start(self, entry: PendingJob, reason: WaitReason, position: int) -> Start:
        """Return when it starts: as jobs end, or as they are preempted for it before that."""
        cluster = self._session.cluster
        start = StartEstimate(
            self._state, cluster, self._planner, self._order, self._strict, self._now
        ).estimate(entry)
        if reason not in _MAY_PREEMPT or position > MAX_AHEAD or not self._is_head(entry):
            return start
        reservations = BackfillReservations(self._state, self._session, self._plan, self._now)
        shared = self._state, self._session
        backfill = Backfill(*shared, self._plan, self._now, reservations)
        preemptor = PreemptionPlanner(*shared, self._planner, backfill, self._now)
        begins = preemptor.earliest_preemption(entry.job)
        by = latest_start(start)
        if begins is None or (by is not None and by.at <= begins):
            return start
        return WhenReleased(preempts_at=begins, latest=by)

    def _is_head(self, entry: PendingJob) -> bool:
        """Tell whether jobs may be preempted for it: only for the first of its job class.

        A job that does not wait in the queue is alone in its job class.
        """
        return not entry.job_class.entries or entry.job_class.head is entry

    def _cause(self, entry: PendingJob) -> _Cause:
        job, cluster = entry.job, self._session.cluster
        reservation = self._state.reserved.get(job.id)
        cause = None if reservation is None else self._waits_for_reserved(reservation)
        return cause or self._never_starts(entry, cluster) or self._not_now(entry)

    def _not_now(self, entry: PendingJob) -> _Cause:
        """Return why a job does not start now that can start some time.

        The classes of pending requests, which remember failures, stay as they are.
        """
        job, cluster = entry.job, self._session.cluster
        apart = replace(entry, job_class=JobClass(job.tenant, RequestClass(job.gang)))
        match self._check.check(apart):
            case NotNow.NO_QUOTA:
                return self._lacks_quota(job, cluster)
            case NotNow.NO_GPUS:
                return self._does_not_fit(entry, cluster)
            case NotNow.RESERVED_FOR_WINDOW:
                return self._delays_window(entry, cluster)
            case NotNow.VICTIMS_HOLD_QUOTA:
                ending = WhenReleased(tuple(sorted(self._state.running_victims())), preempting=True)
                return _Cause(WaitReason.PREEMPTION_PENDING, reasons.WAITING_FOR_QUOTA, ending)
            case Now() | NotNow.BEHIND_QUEUE_HEAD | NotNow.WOULD_DELAY:
                return (
                    self._blocked_by_head(entry)
                    or self._blocked_by_reservation(entry)
                    or _admitted_next()
                )
            case Never() as never:
                return self._never(job, cluster, never)
            case other:
                assert_never(other)

    def _waits_for_reserved(self, reservation: Reservation) -> _Cause | None:
        """Return what still holds the places that are reserved for it."""
        alive = self._state.victims_of(reservation)
        ending = WhenReleased(tuple(one.job.id for one in alive), preempting=True)
        if reservation.in_place:
            cluster, running = self._cluster.overlay(), self._state.running
            if is_free(cluster, reservation.job, reservation.placements):
                return None
            remain = is_held_by_last_attempt(cluster, reservation, running)
            return (
                _Cause(WaitReason.PREEMPTION_PENDING, reasons.RESTARTING_IN_PLACE, ending)
                if remain
                else None
            )
        if not alive:
            return None
        waited = self._now - reservation.since
        text, lasting = (reasons.preempting(len(alive), each) for each in (waited, None))
        return _Cause(
            WaitReason.PREEMPTION_PENDING, text, ending, alive[0].job, text_without_times=lasting
        )

    def _never_starts(self, entry: PendingJob, cluster: Cluster) -> _Cause | None:
        """Return why the empty cluster or an unused quota does not suffice; None: both do."""
        never = self._check.never(entry.job_class)
        return None if never is None else self._never(entry.job, cluster, never)

    def _never(self, job: Job, cluster: Cluster, never: Never) -> _Cause:
        if never.cause is Unsatisfied.NODES:
            left = self._planner.left_on_any_model(cluster, job)
            refusal = why_not(cluster.emptied(), job.gang, _ANY_POLICY)
            text = reasons.never_fits(refusal.message if refusal else "")
            refusal = replace(refusal, never=True) if refusal else None
            lacks = self._planner.may_fit_quota(cluster, job)
            reason = WaitReason.UNSATISFIABLE
            return _Cause(reason, text, never, refusal=refusal, left=left, lacks_only_gpus=lacks)
        most, needed = self._planner.max_charge(cluster, job.tenant, job.gang), min_charge(job.gang)
        node = self._quota.tree.tenant(job.tenant)
        if most >= needed:
            text = reasons.fits_no_permitted_model(node)
        else:
            text = reasons.exceeds_quota(node, requested=needed, maximum=most)
        return _Cause(WaitReason.UNSATISFIABLE, text, never, left=max(most, 0))

    def _delays_window(self, entry: PendingJob, cluster: Cluster) -> _Cause:
        """Return the window that the job would delay if it started now."""
        job = entry.job
        places = self._planner.plan(cluster, job)
        window = self._upcoming.blocking(job, places) if places else None
        if window is None:
            return _admitted_next()
        name = reasons.reservation_name(window, to=job)
        return _Cause(
            WaitReason.RESERVED_FOR_WINDOW,
            reasons.reserved_from(name, window.start),
            Unknown(),
            text_without_times=reasons.reserved_for(name),
        )

    def _held_for_window(self, entry: PendingJob) -> _Cause | None:
        """Return the active window without whose GPUs the job would start; None: there is none."""
        windows = [each for each in self._holds.active if self._holds.held(each)]
        if not windows:
            return None
        cluster = Session(self._cluster, self._state.reserved.values()).cluster
        if self._planner.place(cluster, entry.job) is None:
            return None
        own = [each for each in windows if each.tenant == entry.job.tenant]
        window = min(own or windows, key=lambda each: each.end)
        name = reasons.reservation_name(window, to=entry.job)
        return _Cause(
            WaitReason.RESERVED_FOR_WINDOW,
            reasons.reserved_until(name, window.end),
            At(window.end, is_estimated=True),
            text_without_times=reasons.reserved_for(name),
        )

    def _does_not_fit(self, entry: PendingJob, cluster: Cluster) -> _Cause:
        held = self._held_for_window(entry)
        if held is not None:
            return held
        refusal = why_not(cluster, entry.job.gang, _ANY_POLICY)
        text = reasons.does_not_fit(refusal.message if refusal else "")
        left = self._planner.left_on_any_model(cluster, entry.job)
        return _Cause(
            WaitReason.DOES_NOT_FIT, text, refusal=refusal, left=left, lacks_only_gpus=True
        )

    def _lacks_quota(self, job: Job, cluster: Cluster) -> _Cause:
        leaf = self._quota.tree.tenant(job.tenant)
        models, requested = self._quota.scarce_models(cluster, job.tenant, job.gang)
        keys = self._quota.keys.allowed(cluster, models)
        key = max(keys, key=lambda key: self._usage.available(leaf, key))
        left = self._usage.available(leaf, key)
        node, is_limit = _limiting_node(self._usage, leaf, key)
        used = self._usage.used_by(node).get(key, 0)
        text_of = reasons.borrowing_limit_reached if is_limit else reasons.insufficient_quota
        reason = WaitReason.BORROWING_LIMIT_EXCEEDED if is_limit else WaitReason.QUOTA_EXCEEDED
        return _Cause(reason, text_of(node, key, used=used, requested=requested, left=left))

    def _blocked_by_head(self, entry: PendingJob) -> _Cause | None:
        """Return the queue head of the same strict order that is before it; None: there is none."""
        scope = self._quota.strict_scope(entry.job.tenant)
        first = self._strict.first_head(entry, self._order)
        if scope is None or first is None:
            return None
        is_first = self._order.precedence(entry) < self._order.precedence(first)
        if first.job.id == entry.job.id or (is_first and not self._behind_pending):
            return None
        head_name = reasons.name_of(first.job, to=entry.job)
        text = reasons.blocked_by_head(head_name, self._quota.tree.node(scope))
        return _Cause(WaitReason.BLOCKED_BY_QUEUE_HEAD, text, blocked_by=first.job)

    def _blocked_by_reservation(self, entry: PendingJob) -> _Cause | None:
        """Return the queue head whose reservation it would delay; None: there is none."""
        job, after = entry.job, self._quota.rules.reserve_after_seconds
        for reservation in self._state.backfill_reservations:
            head = self._state.pending.get(reservation.job.id)
            if reservation.placements is None or head is None or head.job.id == job.id:
                continue
            is_due = head.pending_since + after <= self._now
            if is_due or head.rank.minus_priority < entry.rank.minus_priority:
                return self._reservation_cause(head, reservation, job)
        return None

    def _reservation_cause(
        self, head: PendingJob, reservation: BackfillReservation, job: Job
    ) -> _Cause:
        within = reservation.start_at - self._now if reservation.start_at < inf else None
        head_name = reasons.name_of(head.job, to=job)
        text = reasons.blocked_by_reservation(head_name, self._now - head.pending_since, within)
        lasting = reasons.blocked_by_reservation_of(head_name)
        return _Cause(WaitReason.RESERVED, text, blocked_by=head.job, text_without_times=lasting)


def _admitted_next() -> _Cause:
    return _Cause(WaitReason.ADMISSION_PENDING, reasons.NEXT_CYCLE, Now())


def _limiting_node(usage: Usage, node: TreeNode, key: ModelKey) -> tuple[TreeNode, bool]:
    """Return the node that limits the quota, and whether by a borrowing limit."""
    if node.parent is None:
        return node, False
    if usage.within_borrowing_limit(node, key) <= usage.available(node.parent, key):
        return node, True
    return _limiting_node(usage, node.parent, key)
