# SPDX-License-Identifier: Apache-2.0
"""Discipline `backfill`: in the order of arrival, where others may go first if they do no harm.

EASY backfill. When the first job does not fit, the earliest instant is found at which it will (by
taking off those who run, in the order in which they end), and where it goes then. A later job may
start now if it ends by that instant, or if it leaves the first job's place free: it is placed in
the cluster of that instant too, beside the first job. Durations are taken as exact, so the first
job never starts later than without backfill. Where the place that the policy chose for a later
job would do harm, no other place is tried for it.

Source: Lifka, «The ANL/IBM SP Scheduling System» (JSSPP '95).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from math import inf

from gpupack_core import Cluster, NodeName, OverAllocated, Placement
from gpupack_simulator.job import holder_of
from gpupack_simulator.queueing.discipline import Desk, Discipline, start_if_it_fits
from gpupack_simulator.queueing.waiting import Entry, has_room


@dataclass(frozen=True, slots=True)
class _Shadow:
    """The instant at which the first job will start, and the cluster then, with it placed."""

    head: Entry
    upsets: int
    at: float
    cluster: Cluster


class Backfill(Discipline):
    """EASY: one reservation, for the first job."""

    name = "backfill"

    def __init__(self) -> None:
        self._shadow: _Shadow | None = None

    def serve(self, desk: Desk) -> None:
        """The first as long as it fits, then whoever does no harm."""
        while (head := desk.waiting.head()) is not None and start_if_it_fits(desk, head):
            pass
        if head is not None:
            self._fill(desk, head)

    def _fill(self, desk: Desk, head: Entry) -> None:
        harmful: set[int] = set()
        for entry in desk.waiting.hopeful():
            lane, ends = id(entry.lane), desk.now + entry.job.duration
            if lane in harmful and ends > self._reserved(desk, head).at:
                continue
            placements = desk.plan(entry) if desk.waiting.may_fit(entry.lane) else None
            if placements is None:
                continue
            shadow = self._reserved(desk, head)
            if ends <= shadow.at or _fits_beside(shadow.cluster, entry, placements):
                desk.start(entry, placements)
            else:
                harmful.add(lane)

    def _reserved(self, desk: Desk, head: Entry) -> _Shadow:
        known = self._shadow
        if known is None or known.head is not head or known.upsets != desk.upsets:
            known = self._shadow = _shadow(desk, head)
        return known


def _fits_beside(cluster: Cluster, entry: Entry, placements: tuple[Placement, ...]) -> bool:
    """Take the places in the cluster of the shadow instant too; if one is taken, give all back."""
    taken = []
    try:
        for worker, placement in enumerate(placements):
            cluster.take(holder_of(entry.job.id, worker), placement)
            taken.append(holder_of(entry.job.id, worker))
    except OverAllocated:
        for holder in taken:
            cluster.give_back(holder)
        return False
    return True


def _shadow(desk: Desk, head: Entry) -> _Shadow:
    """Let those who run end one after the other until the first job fits."""
    future = desk.cluster.fork()
    leases = sorted(desk.leases(), key=lambda lease: lease.until)
    for at, ending in groupby(leases, key=lambda lease: lease.until):
        if at == inf:
            break
        freed: set[NodeName] = set()
        for lease in ending:
            freed.update(placement.node for placement in lease.placements)
            for worker in range(len(lease.placements)):
                future.give_back(holder_of(lease.job.id, worker))
        if _placed(desk, head, future, freed):
            return _Shadow(head, desk.upsets, at, future)
    return _Shadow(head, desk.upsets, inf, future)


def _placed(desk: Desk, head: Entry, future: Cluster, freed: Iterable[NodeName]) -> bool:
    """Whether the first job has been placed there."""
    rows = [row for name in freed if (row := future.row(name)) is not None]
    if not any(has_room(future, head.lane.gang.request, row) for row in rows):
        return False
    placements = desk.plan(head, future)
    for worker, placement in enumerate(placements or ()):
        future.take(holder_of(head.job.id, worker), placement)
    return placements is not None
