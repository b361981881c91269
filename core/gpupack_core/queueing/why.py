# SPDX-License-Identifier: Apache-2.0
"""The explanation of a wait: its reason, the start estimate and what would help.

It is computed for one job when it is requested, and never for all jobs. Every surface shows this
answer: the status of a GPUJob, a pod's condition, `explain`, `queue`, `what-if` and the page.
"""

from dataclasses import replace
from math import inf
from typing import NamedTuple

from gpupack_core.cluster import Cluster
from gpupack_core.gang import never_fits, why_not
from gpupack_core.policies import POLICIES
from gpupack_core.queueing import reasons, remedies
from gpupack_core.queueing.backfill_reservations import BackfillReservations
from gpupack_core.queueing.charge import ModelKey, min_charge
from gpupack_core.queueing.job import Job
from gpupack_core.queueing.order import Order
from gpupack_core.queueing.own_places import remain_held
from gpupack_core.queueing.preemption import Preemptor
from gpupack_core.queueing.reasons import Wait, WaitReason
from gpupack_core.queueing.reservation import BackfillReservation, Planner, Reservation, is_free
from gpupack_core.queueing.session import Session
from gpupack_core.queueing.start import Never, Now, Start, WhenReleased, latest_start
from gpupack_core.queueing.start_estimate import MAX_AHEAD, StartEstimate
from gpupack_core.queueing.state import State
from gpupack_core.queueing.tree import TreeNode
from gpupack_core.queueing.usage import Usage
from gpupack_core.queueing.waiting import Entry
from gpupack_core.queueing.within import WithinQuota
from gpupack_core.reasons import Refusal

_ANY_POLICY = POLICIES["first-fit"]
"""Any policy will do: why something fits nowhere does not depend on it."""

_PREEMPTS = frozenset({WaitReason.NO_ROOM, WaitReason.QUOTA_USED, WaitReason.BORROWING_LIMIT})
"""The reasons for which jobs can be preempted for the one that waits."""


class _Told(NamedTuple):
    reason: WaitReason
    text: str
    start: Start | None = None
    """The start; None: it is estimated."""
    first: Job | None = None
    refusal: Refusal | None = None
    lasting: str = ""
    """The text without times; empty: the text has none."""
    left: float = inf
    lacks_room: bool = False


class Why:
    """Explanations for one state, which stays as it is."""

    def __init__(self, state: State, cluster: Cluster, plan: Planner, now: float) -> None:
        self._state, self._cluster, self._plan, self._now = state, cluster, plan, now
        self._books, self._usage = state.quota, state.quota.usage
        self._sheet = Session(cluster, state.reserved.values())
        self._within = WithinQuota(state.quota, plan)
        self._order = Order(state.quota.effective_usage(state.running))

    def of(self, entry: Entry) -> Wait:
        """Return the first reason that holds, with all other parts of the answer."""
        told = self._told(entry)
        position, waiting = self._order.position(entry, self._state.pending), self._state.pending
        start = told.start or self._start(entry, told.reason, position)
        wait = Wait(
            told.reason,
            told.text,
            start,
            position,
            len(waiting),
            None if told.first is None else told.first.id,
            told.refusal,
            told.lasting or told.text,
            told.left,
            told.lacks_room,
        )
        helps = remedies.of(self._state, self._sheet.cluster, entry.job, wait, self._now)
        return replace(wait, helps=helps.texts, borrowed=helps.borrowed)

    def _start(self, entry: Entry, reason: WaitReason, position: int) -> Start:
        """Return when it starts: as jobs end, or as they are preempted for it before that."""
        cluster = self._sheet.cluster
        start = StartEstimate(self._state, cluster, self._within, self._order, self._now).of(entry)
        if reason not in _PREEMPTS or position > MAX_AHEAD or not self._is_head(entry):
            return start
        foresight = BackfillReservations(self._state, self._sheet, self._plan, self._now)
        preemptor = Preemptor(self._state, self._sheet, self._within, foresight, self._now)
        begins = preemptor.begins(entry.job)
        by = latest_start(start)
        if begins is None or (by is not None and by.at <= begins):
            return start
        return WhenReleased(preempts_at=begins, latest=by)

    def _is_head(self, entry: Entry) -> bool:
        """Tell whether jobs may be preempted for it: only for the first of its lane.

        A job that does not wait in the queue is alone in its lane.
        """
        return not entry.lane.entries or entry.lane.head is entry

    def _told(self, entry: Entry) -> _Told:
        job, cluster = entry.job, self._sheet.cluster
        reservation = self._state.reserved.get(job.id)
        told = None if reservation is None else self._reserved(reservation)
        return told or self._never(job, cluster) or self._not_now(entry, cluster)

    def _not_now(self, entry: Entry, cluster: Cluster) -> _Told:
        job = entry.job
        if not self._within.may_pay(cluster, job):
            return self._quota(job, cluster)
        places = self._within.plan(cluster, job)
        if places is None:
            return self._no_room(entry, cluster)
        payable = self._within.payable(cluster, job, places)
        if payable is None:
            return self._quota(job, cluster)
        if not self._books.fits_with_victims(job.tenant, payable[1]):
            ending = WhenReleased(tuple(sorted(self._state.running_victims())), preempting=True)
            return _Told(WaitReason.VICTIMS_END, reasons.HELD_STILL, ending)
        return self._behind(entry, cluster) or self._kept(entry) or _next()

    def _reserved(self, reservation: Reservation) -> _Told | None:
        """Return what still holds the places that are reserved for it."""
        alive = self._state.victims_of(reservation)
        ending = WhenReleased(tuple(one.job.id for one in alive), preempting=True)
        if reservation.in_place:
            cluster, running = self._cluster.overlay(), self._state.running
            if is_free(cluster, reservation.job, reservation.placements):
                return None
            remain = remain_held(cluster, reservation, running)
            return _Told(WaitReason.VICTIMS_END, reasons.OWN_PLACES, ending) if remain else None
        if not alive:
            return None
        waited = self._now - reservation.since
        text, lasting = (reasons.victims_end(len(alive), each) for each in (waited, None))
        return _Told(WaitReason.VICTIMS_END, text, ending, alive[0].job, lasting=lasting)

    def _never(self, job: Job, cluster: Cluster) -> _Told | None:
        """Return why the empty cluster or an unused quota does not suffice; None: both do."""
        if never_fits(cluster, job.gang):
            left = self._within.left_if_grown(cluster, job)
            refusal = why_not(cluster.emptied(), job.gang, _ANY_POLICY)
            text = reasons.never_fits(refusal.message if refusal else "")
            refusal = replace(refusal, never=True) if refusal else None
            lacks = self._within.may_pay(cluster, job)
            never = WaitReason.UNSATISFIABLE
            return _Told(never, text, Never(), refusal=refusal, left=left, lacks_room=lacks)
        most, needed = self._within.most(cluster, job), min_charge(job.gang)
        if most >= needed:
            return None
        node = self._books.tree.tenant(job.tenant)
        text = reasons.never_payable(node, asked=needed, most=most)
        return _Told(WaitReason.UNSATISFIABLE, text, Never(), left=max(most, 0))

    def _no_room(self, entry: Entry, cluster: Cluster) -> _Told:
        refusal = why_not(cluster, entry.job.gang, _ANY_POLICY)
        text = reasons.no_room(refusal.message if refusal else "")
        left = self._within.left_if_grown(cluster, entry.job)
        return _Told(WaitReason.NO_ROOM, text, refusal=refusal, left=left, lacks_room=True)

    def _quota(self, job: Job, cluster: Cluster) -> _Told:
        leaf, asked = self._books.tree.tenant(job.tenant), min_charge(job.gang)
        keys = self._books.keys.allowed(cluster, job.gang.request)
        key = max(keys, key=lambda key: self._usage.available(leaf, key))
        left = self._usage.available(leaf, key)
        node, is_limit = _limiting(self._usage, leaf, key)
        used = self._usage.used_by(node).get(key, 0)
        tell = reasons.borrowing_limit if is_limit else reasons.quota_used
        reason = WaitReason.BORROWING_LIMIT if is_limit else WaitReason.QUOTA_USED
        return _Told(reason, tell(node, key, used=used, asked=asked, left=left))

    def _behind(self, entry: Entry, cluster: Cluster) -> _Told | None:
        """Return the queue head of the same strict order that is before it; None: there is none."""
        tenant = entry.job.tenant
        scope = self._books.strict_scope(tenant)
        heads = self._within.strict_heads(self._state.pending, cluster, tenant)
        first = min(heads, key=self._order.precedence, default=None)
        if scope is None or first is None:
            return None
        if first.job.id == entry.job.id or self._order.precedence(entry) < self._order.precedence(
            first
        ):
            return None
        whom = reasons.name_of(first.job, to=entry.job)
        text = reasons.behind(whom, self._books.tree.node(scope))
        return _Told(WaitReason.BEHIND, text, first=first.job)

    def _kept(self, entry: Entry) -> _Told | None:
        """Return the queue head whose reservation it would delay; None: there is none."""
        job, after = entry.job, self._books.rules.reserve_after_seconds
        for kept in self._state.backfill_reservations:
            head = self._state.pending.get(kept.job.id)
            if kept.placements is None or head is None or head.job.id == job.id:
                continue
            is_due = head.since + after <= self._now
            if is_due or head.rank.minus_priority < entry.rank.minus_priority:
                return self._kept_for(head, kept, job)
        return None

    def _kept_for(self, head: Entry, kept: BackfillReservation, job: Job) -> _Told:
        within = kept.start_at - self._now if kept.start_at < inf else None
        whom = reasons.name_of(head.job, to=job)
        text = reasons.room_kept(whom, self._now - head.since, within)
        lasting = reasons.room_kept_for(whom)
        return _Told(WaitReason.ROOM_KEPT, text, first=head.job, lasting=lasting)


def _next() -> _Told:
    return _Told(WaitReason.NEXT, reasons.NEXT_CYCLE, Now())


def _limiting(usage: Usage, node: TreeNode, key: ModelKey) -> tuple[TreeNode, bool]:
    """Return the node that limits the quota, and whether by a borrowing limit."""
    if node.parent is None:
        return node, False
    if usage.within_borrowing_limit(node, key) <= usage.available(node.parent, key):
        return node, True
    return _limiting(usage, node.parent, key)
