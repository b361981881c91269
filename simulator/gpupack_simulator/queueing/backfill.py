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

from bisect import bisect_left
from dataclasses import dataclass
from math import inf

from gpupack_core import Cluster, OverAllocated, Placement
from gpupack_simulator.job import holder_of
from gpupack_simulator.queueing.discipline import Desk, Discipline, Lease, start_if_it_fits
from gpupack_simulator.queueing.waiting import Entry


@dataclass(frozen=True, slots=True)
class _Shadow:
    """The instant at which the first job will start, and the cluster then, with it placed."""

    at: float
    cluster: Cluster


class Backfill(Discipline):
    """EASY: one reservation, for the first job."""

    name = "backfill"

    def serve(self, desk: Desk) -> None:
        """The first as long as it fits, then whoever does no harm."""
        while (head := desk.waiting.head()) is not None and start_if_it_fits(desk, head):
            pass
        if head is not None:
            self._fill(desk, head)

    def _fill(self, desk: Desk, head: Entry) -> None:
        shadow: _Shadow | None = None
        harmful: set[int] = set()
        for entry in desk.waiting:
            lane = id(entry.lane)
            ends = desk.now + entry.job.duration
            short = shadow is not None and ends <= shadow.at
            if (lane in harmful and not short) or not desk.waiting.may_fit(entry.lane):
                continue
            placements = desk.plan(entry)
            if placements is None:
                continue
            shadow = shadow or _shadow(desk, head)
            if ends <= shadow.at or _fits_beside(shadow.cluster, entry, placements):
                desk.start(entry, placements)
            else:
                harmful.add(lane)


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
    """Fitting is monotone in what has ended, so the first instant is found by halving."""
    leases = sorted(desk.leases(), key=lambda lease: lease.until)
    ends = sorted({lease.until for lease in leases if lease.until < inf})
    first = bisect_left(ends, 1, key=lambda end: int(_placed(desk, head, leases, end) is not None))
    if first == len(ends):
        return _Shadow(inf, desk.cluster.fork())
    placed = _placed(desk, head, leases, ends[first])
    return _Shadow(ends[first], placed or desk.cluster.fork())


def _placed(desk: Desk, head: Entry, leases: list[Lease], end: float) -> Cluster | None:
    """The cluster after all that has ended by then, with the first job in it; None: no room."""
    future = desk.cluster.fork()
    for lease in leases:
        if lease.until <= end:
            for worker in range(len(lease.placements)):
                future.give_back(holder_of(lease.job.id, worker))
    placements = desk.plan(head, future)
    if placements is None:
        return None
    for worker, placement in enumerate(placements):
        future.take(holder_of(head.job.id, worker), placement)
    return future
