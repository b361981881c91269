# SPDX-License-Identifier: Apache-2.0
"""Finds why a job waits. Worked out for one job when somebody asks, and never for all."""

from math import inf
from typing import NamedTuple

from gpupack_core.cluster import Cluster
from gpupack_core.gang import why_not
from gpupack_core.policies import POLICIES
from gpupack_core.queueing import reasons
from gpupack_core.queueing.charge import Key, least
from gpupack_core.queueing.job import Job
from gpupack_core.queueing.order import Order
from gpupack_core.queueing.own_places import remain_held
from gpupack_core.queueing.reasons import Wait, WaitReason
from gpupack_core.queueing.room import KeptRoom, Planner, Reservation, is_free
from gpupack_core.queueing.sheet import Sheet
from gpupack_core.queueing.state import State
from gpupack_core.queueing.tree import TreeNode
from gpupack_core.queueing.usage import Usage
from gpupack_core.queueing.waiting import Entry
from gpupack_core.queueing.within import WithinQuota
from gpupack_core.reasons import Refusal

_ANY_POLICY = POLICIES["first-fit"]
"""Why something fits nowhere does not depend on the policy."""


class _Told(NamedTuple):
    reason: WaitReason
    text: str
    first: Job | None = None
    earliest: float | None = None
    refusal: Refusal | None = None
    lasting: str = ""
    """The text without times, where it has any."""
    left: float = inf


class Why:
    """Of one state; nothing is changed."""

    def __init__(self, state: State, cluster: Cluster, plan: Planner, now: float) -> None:
        self._state, self._cluster, self._now = state, cluster, now
        self._books, self._usage = state.books, state.books.usage
        self._sheet = Sheet(cluster, state.reserved.values())
        self._within = WithinQuota(state.books, plan)
        self._order = Order(state.books.felt(state.running))

    def of(self, entry: Entry) -> Wait:
        """The first reason that holds."""
        told = self._told(entry)
        position, waiting = self._order.position(entry, self._state.waiting), self._state.waiting
        return Wait(
            told.reason,
            f"{told.text} (position {position} of {len(waiting)})",
            position,
            len(waiting),
            told.earliest,
            None if told.first is None else told.first.id,
            told.refusal,
            told.lasting or told.text,
            told.left,
        )

    def _told(self, entry: Entry) -> _Told:
        job = entry.job
        reservation = self._state.reserved.get(job.id)
        if reservation is not None and (told := self._reserved(reservation)):
            return told
        cluster = self._sheet.cluster
        if not self._within.may_pay(cluster, job):
            return self._quota(job, cluster)
        places = self._within.plan(cluster, job)
        if places is None:
            return self._no_room(entry, cluster)
        payable = self._within.payable(cluster, job, places)
        if payable is None:
            return self._quota(job, cluster)
        if not self._books.may_hold(job.tenant, payable[1]):
            return _Told(WaitReason.VICTIMS_END, reasons.HELD_STILL)
        return self._behind(entry, cluster) or self._kept(entry) or _next()

    def _reserved(self, reservation: Reservation) -> _Told | None:
        """What still holds the places that are reserved for it."""
        alive = self._state.victims_of(reservation)
        if reservation.own:
            cluster, running = self._cluster.overlay(), self._state.running
            if is_free(cluster, reservation.job, reservation.placements):
                return None
            remain = remain_held(cluster, reservation, running)
            return _Told(WaitReason.VICTIMS_END, reasons.OWN_PLACES) if remain else None
        if not alive:
            return None
        waited = self._now - reservation.since
        text, lasting = (reasons.victims_end(len(alive), each) for each in (waited, None))
        return _Told(WaitReason.VICTIMS_END, text, alive[0].job, lasting=lasting)

    def _no_room(self, entry: Entry, cluster: Cluster) -> _Told:
        kept = self._state.kept_for(entry.job)
        starts = kept.at if kept is not None and kept.at < inf else None
        starts_in = None if starts is None else max(starts - self._now, 0.0)
        refusal = why_not(cluster, entry.job.gang, _ANY_POLICY)
        why = refusal.message if refusal else ""
        text = reasons.no_room(why, starts_in)
        lasting = "" if starts is None else reasons.no_room_foreseen(why)
        left = self._within.left_if_grown(cluster, entry.job)
        return _Told(WaitReason.NO_ROOM, text, None, starts, refusal, lasting, left)

    def _quota(self, job: Job, cluster: Cluster) -> _Told:
        leaf, asked = self._books.tree.tenant(job.tenant), least(job.gang)
        keys = self._books.keys.allowed(cluster, job.gang.request)
        key = max(keys, key=lambda key: self._usage.available(leaf, key))
        left = self._usage.available(leaf, key)
        node, is_limit = _limiting(self._usage, leaf, key)
        used = self._usage.of(node).get(key, 0)
        tell = reasons.borrowing_limit if is_limit else reasons.quota_used
        reason = WaitReason.BORROWING_LIMIT if is_limit else WaitReason.QUOTA_USED
        return _Told(reason, tell(node, key, used=used, asked=asked, left=left))

    def _behind(self, entry: Entry, cluster: Cluster) -> _Told | None:
        """The first of those in the same strict order, if it is another."""
        tenant = entry.job.tenant
        scope = self._books.strict_scope(tenant)
        heads = self._within.strict_heads(self._state.waiting, cluster, tenant)
        first = min(heads, key=self._order.of, default=None)
        if scope is None or first is None:
            return None
        if first.job.id == entry.job.id or self._order.of(entry) < self._order.of(first):
            return None
        whom = reasons.name_of(first.job, to=entry.job)
        text = reasons.behind(whom, self._books.tree.node(scope))
        return _Told(WaitReason.BEHIND, text, first.job)

    def _kept(self, entry: Entry) -> _Told | None:
        """For whom room is kept from it."""
        job, after = entry.job, self._books.rules.keep_room_after
        for kept in self._state.kept:
            head = self._state.waiting.get(kept.job.id)
            if kept.placements is None or head is None or head.job.id == job.id:
                continue
            is_due = head.since + after <= self._now
            if is_due or head.rank.minus_priority < entry.rank.minus_priority:
                return self._kept_for(head, kept, job)
        return None

    def _kept_for(self, head: Entry, kept: KeptRoom, job: Job) -> _Told:
        within = kept.at - self._now if kept.at < inf else None
        whom = reasons.name_of(head.job, to=job)
        text = reasons.room_kept(whom, self._now - head.since, within)
        lasting = reasons.room_kept_for(whom)
        return _Told(WaitReason.ROOM_KEPT, text, head.job, lasting=lasting)


def _next() -> _Told:
    return _Told(WaitReason.NEXT, "it fits, and its turn comes with the next decision")


def _limiting(usage: Usage, node: TreeNode, key: Key) -> tuple[TreeNode, bool]:
    """Whose limit it is, and whether it is a borrowing limit."""
    if node.parent is None:
        return node, False
    if usage.through(node, key) <= usage.available(node.parent, key):
        return node, True
    return _limiting(usage, node.parent, key)
