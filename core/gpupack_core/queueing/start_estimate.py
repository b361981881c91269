# SPDX-License-Identifier: Apache-2.0
"""By when a waiting job starts: the jobs before it and then itself, each at its earliest.

    those before it, in order ─► each where and when it fits first, within its quota ─► held there
                                 from now until it must have ended ─► then the job that is asked for

A job that is planned holds its places from now on, not only from its start, and nothing is
preempted. Jobs that run end at their deadlines, or when similar jobs did; standalone pods have no
known end. What is found is certain for the first job that lacks nothing but room, once no other can
take what it waits for: room is kept for it, or all that it needs is released at one moment. For
others it is what is expected: jobs of a known duration may be backfilled before them. A job of a
higher priority, or of a namespace with a smaller share, that comes later goes before it anyway.
"""

from collections.abc import Iterable, Iterator, Sequence
from math import inf
from typing import Final

from gpupack_core.cluster import Cluster
from gpupack_core.queueing.charge import Charge, least
from gpupack_core.queueing.future import Future
from gpupack_core.queueing.job import Job, JobId, Places, Running, Tenant
from gpupack_core.queueing.order import Order
from gpupack_core.queueing.released import is_released_at_once
from gpupack_core.queueing.room import earliest
from gpupack_core.queueing.start import At, Start, Unknown, WhenReleased
from gpupack_core.queueing.start_estimate_memo import Planned
from gpupack_core.queueing.state import State
from gpupack_core.queueing.waiting import Entry
from gpupack_core.queueing.within import WithinQuota

MAX_AHEAD: Final = 16
"""Of so many jobs before it the starts are worked out; with more its own is unknown."""

STANDS_SECONDS: Final = 5.0
"""What was worked out is used again for so long, while nothing starts, ends or comes before it."""

NOTHING_HELPS: Final = (
    "not even the end of all that runs makes room: nodes or GPUs that it needs are cordoned, in "
    "maintenance or unhealthy"
)

ENDLESS_BEFORE: Final = "jobs that start before it have no deadline"


class StartEstimate:
    """Of one state; nothing is changed but what is remembered in `state.estimates`."""

    def __init__(
        self, state: State, cluster: Cluster, within: WithinQuota, order: Order, now: float
    ) -> None:
        """`cluster`: that of a sheet, in which reserved places are held."""
        self._state, self._cluster, self._within = state, cluster, within
        self._order, self._now = order, now

    def of(self, entry: Entry) -> Start:
        """At, WhenReleased or Unknown."""
        ahead = self._ahead(entry)
        if len(ahead) > MAX_AHEAD:
            return Unknown(f"more than {MAX_AHEAD} jobs and pods wait before it")
        planned = self._planned([*(each.job for each in ahead), entry.job])
        own = planned[-1]
        if own.placements is None:
            endless = any(each.placements and each.until == inf for each in planned[:-1])
            return Unknown(ENDLESS_BEFORE if endless else NOTHING_HELPS)
        strict = [each.at for each in self._strictly_before(entry, ahead, planned)]
        at = max(own.at, self._now, *strict)
        if at < inf:
            return At(at, guessed=not self._is_certain(entry, planned))
        return WhenReleased(own.holders) if own.holders else Unknown(ENDLESS_BEFORE)

    def _is_certain(self, entry: Entry, planned: Sequence[Planned]) -> bool:
        """Whether no other job that waits can take what the last of these waits for."""
        own = planned[-1]
        if own.guessed or any(each.placements for each in planned[:-1]):
            return False
        if entry.since + self._state.books.rules.keep_room_after <= self._now:
            return True
        released = (
            place for one in self._state.running if one.until == own.at for place in one.placements
        )
        return is_released_at_once(self._cluster, own.placements or (), released)

    def _ahead(self, entry: Entry) -> list[Entry]:
        """Those before it, at the most one more than are worked out."""
        found = list[Entry]()
        for lane in self._state.waiting.lanes():
            before = self._order.before_in(entry, lane)
            found += lane.entries[: min(before, MAX_AHEAD + 1)]
        kept = {room.job.id for room in self._state.kept if room.placements is not None}
        heads = filter(None, map(self._state.waiting.get, kept - {each.job.id for each in found}))
        found += [head for head in heads if head.job.id != entry.job.id]
        found = [each for each in found if each.job.id not in self._state.reserved]
        return sorted(found, key=self._order.of)[: MAX_AHEAD + 1]

    def _strictly_before(
        self, entry: Entry, ahead: Sequence[Entry], planned: Sequence[Planned]
    ) -> Iterator[Planned]:
        """In strict order it starts no sooner than those before it in the same order."""
        books = self._state.books
        scope = books.strict_scope(entry.job.tenant)
        for other, plan in zip(ahead, planned, strict=False):
            same = books.strict_scope(other.job.tenant) == scope
            if scope is not None and same and plan.placements is not None:
                yield plan

    def _planned(self, jobs: Sequence[Job]) -> list[Planned]:
        """Of each, given those before it; what is known of the first of them is used again."""
        state, known = self._state, self._state.estimates
        key = state.runs, state.disruptions, len(state.running), tuple(state.reserved)
        if known.key != key or self._now >= known.made + STANDS_SECONDS:
            known.key, known.made, known.planned = key, self._now, []
        same = 0
        while same < min(len(known.planned), len(jobs)) and known.planned[same].job is jobs[same]:
            same += 1
        found = known.planned[:same]
        for job in jobs[same:]:
            found.append(self._plan(job, found))
        if same < len(jobs):
            known.planned = found
        return found

    def _plan(self, job: Job, before: Sequence[Planned]) -> Planned:
        """Of one, given those before it."""
        payable_at, payers = self._payable_at(job, before)
        held = [each for each in before if each.placements is not None]
        also = [
            Running(each.job, each.placements or (), each.at, each.charge)
            for each in held
            if each.at < inf
        ]
        also += self._beneficiaries()
        extras = self._state.running.extras
        cluster = self._cluster.overlay()
        for extra in extras.values():
            for placement in extra.placements:
                cluster.suppose_free(placement)
        future = Future(cluster, self._state.running.census.ends(self._now, also), gone=extras)
        for each in held:
            future.adopt(each.job, each.placements or ())
        at, placements = self._now, self._within.plan(cluster, job)
        if placements is None:
            at, placements = earliest(future, job, self._within.plan)
        guessed = (future.guessed and at > self._now) or payable_at > self._now
        guessed = guessed or any(each.guessed for each in held)
        holders = payers
        if placements is not None and at == inf:
            holders = self._without_end_on(placements) or payers
        charge = self._state.books.charge(self._cluster, placements or ())
        return Planned(job, max(at, payable_at), placements, charge, guessed, holders)

    def _beneficiaries(self) -> list[Running]:
        """Jobs for which others are preempted hold their places in the cluster already."""
        waiting = self._state.waiting
        return [
            Running(each.job, each.placements, self._now, each.charge)
            for each in self._state.reserved.values()
            if each.job.id in waiting
        ]

    def _without_end_on(self, placements: Places) -> tuple[JobId, ...]:
        """Those that hold these devices, or others of these nodes, and have no known end."""
        nodes = {placement.node for placement in placements}
        uuids = {grant.uuid for placement in placements for grant in placement.devices}
        endless = [
            one
            for one in self._state.running
            if one.job.is_expected(one.started) == inf
            and any(placement.node in nodes for placement in one.placements)
        ]
        here = [
            one.job.id
            for one in endless
            if any(grant.uuid in uuids for place in one.placements for grant in place.devices)
        ]
        return tuple(here or [one.job.id for one in endless])

    def _payable_at(self, job: Job, before: Sequence[Planned]) -> tuple[float, tuple[JobId, ...]]:
        """When its quota allows it; and those of which the end has to come and is not known."""
        books, needed = self._state.books, least(job.gang)
        if not books.limits or not needed:
            return self._now, ()
        usage = books.usage
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
        """As things stand in the books."""
        books = self._state.books
        leaf, keys = (
            books.tree.tenant(job.tenant),
            books.keys.allowed(self._cluster, job.gang.request),
        )
        return not keys or sum(max(books.usage.available(leaf, key), 0) for key in keys) >= needed

    def _ends(self, before: Sequence[Planned]) -> Iterable[tuple[float, JobId, Tenant, Charge]]:
        """Of all that counts against quotas, the first first."""
        stopping = self._state.stopping()
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

    def _end_of(self, one: Running) -> float:
        """One that takes longer than it was expected to ends at its deadline."""
        expected = one.job.is_expected(one.started)
        return expected if expected > self._now else one.until
