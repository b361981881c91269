# SPDX-License-Identifier: Apache-2.0
"""The choice of movable jobs that make space for a pending job, and of their new places.

Nodes are emptied for one worker after another, where that costs least by a lower bound. Then the
complete result is tried: the pending job is placed, and after it each of the jobs in its way, on
places that no other job holds now, not even another job that moves. So every move can be carried
out by itself and in any order, and each job that leaves its places has new ones, whatever happens
to the others.

The search is a heuristic with a bounded number of plans: it tries a few nodes, and on each the
cheapest jobs.
"""

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from gpupack_core.cluster import Cluster
from gpupack_core.feasibility import worker_slots
from gpupack_core.queueing.bounds import Bounds
from gpupack_core.queueing.candidates import Candidate, Candidates, order
from gpupack_core.queueing.charge import Charge
from gpupack_core.queueing.job import Job, Places, RunningJob, Tenant
from gpupack_core.queueing.projected_cluster import adopt_job, allocate_job
from gpupack_core.queueing.quota_planner import QuotaPlanner
from gpupack_core.queueing.quota_usage import QuotaUsage
from gpupack_core.request import Gang

ATTEMPTS: Final = 4
"""The maximum number of sets of jobs that are tried."""
_ROWS: Final = 64
"""The maximum number of nodes that are examined for one set."""
_LOCAL: Final = 32
"""The maximum number of jobs that are examined on one node, the cheapest first."""


@dataclass(frozen=True, slots=True)
class Leaving:
    """A job that moves, and its new places."""

    running: RunningJob
    cost: float
    """Milli-GPU times seconds."""
    places: Places
    charge: Charge


@dataclass(frozen=True, slots=True)
class Compacted:
    """The places of the pending job once all of `leaving` have moved."""

    places: Places
    charge: Charge
    leaving: tuple[Leaving, ...]


@dataclass(slots=True)
class _Chosen:
    """The candidates that are to leave a row."""

    row: int
    candidates: list[Candidate]


class Placing:
    """Placement of several jobs within their quotas; each one is counted until `undo`."""

    def __init__(self, books: QuotaUsage, within: QuotaPlanner) -> None:
        self._books, self._within = books, within
        self._counted: list[tuple[Tenant, Charge, int]] = []

    def place(self, cluster: Cluster, job: Job) -> tuple[Places, Charge] | None:
        """Place a pending job; None: it does not fit."""
        found = self._within.place(cluster, job)
        if found is not None:
            self._count(job.tenant, found[1], 1)
        return found

    def place_again(self, sheet: Cluster, running: RunningJob) -> tuple[Places, Charge] | None:
        """Place a running job as if it held nothing; None: it does not fit."""
        job, cluster = running.job, sheet.overlay()
        _free(cluster, running)
        self._count(job.tenant, running.charge, -1)
        found = self._within.place(cluster, job)
        if found is None or not self._books.fits_with_victims(job.tenant, found[1]):
            return None
        self._count(job.tenant, found[1], 1)
        return found

    def undo(self) -> None:
        """Restore the quota usage."""
        for tenant, charge, sign in reversed(self._counted):
            self._books.count(tenant, charge, sign=-sign)
        self._counted.clear()

    def _count(self, tenant: Tenant, charge: Charge, sign: int) -> None:
        self._books.count(tenant, charge, sign=sign)
        self._counted.append((tenant, charge, sign))


class Compaction:
    """One search for one job; `cluster` is not changed.

    `most` is the maximum number of jobs that move. `budget` is in milli-GPU times seconds.
    """

    def __init__(
        self,
        job: Job,
        cluster: Cluster,
        candidates: Candidates,
        placing: Placing,
        *,
        most: int,
        budget: float,
    ) -> None:
        self._job, self._cluster, self._placing = job, cluster, placing
        self._candidates = candidates
        self._most, self._budget = most, budget
        self._bounds = Bounds(cluster, job.gang, candidates)
        self._elsewhere: dict[tuple[Gang, int], bool] = {}

    def run(self) -> Compacted | None:
        """Return the moves, or None if none were found."""
        turns = self._bounds.hopeful(len(self._candidates))[:_ROWS]
        for _ in range(ATTEMPTS):
            chosen = self._choose(list(turns))
            if not chosen:
                return None
            try:
                found = self._attempt(chosen)
            finally:
                self._placing.undo()
            if isinstance(found, Compacted):
                return found
            turns = [(least, row) for least, row in turns if row != found]
        return None

    def _choose(self, turns: list[tuple[float, int]]) -> list[_Chosen]:
        """Choose by row the jobs that leave, so that all workers could fit; empty: impossible.

        `turns` is consumed.
        """
        sheet, spent, jobs = self._cluster.overlay(), 0.0, 0
        chosen: list[_Chosen] = []
        gone: set[int] = set()
        while turns:
            least, row = turns.pop(0)
            if spent + least > self._budget:
                break
            local = [of for of in self._bounds.on(row, len(self._candidates)) if of not in gone]
            movable = [of for of in local[:_LOCAL] if self._has_room_elsewhere(of, row)]
            step = self._for_one_more(sheet, row, [self._candidates[of] for of in movable])
            cost = sum(one.cost[0] for one in step)
            if not step or spent + cost > self._budget or jobs + len(step) > self._most:
                continue
            gone |= {of for of in movable if any(self._candidates[of] is one for one in step)}
            spent, jobs = spent + cost, jobs + len(step)
            for one in step:
                _free(sheet, one.running)
            chosen.append(_Chosen(row, list(step)))
            if self._has_room(sheet):
                return chosen
            rest = [of for of in local if of not in gone]
            if rest:
                insort(turns, (self._bounds.least(row, rest, sheet), row))
        return []

    def _for_one_more(
        self, sheet: Cluster, row: int, local: Sequence[Candidate]
    ) -> Sequence[Candidate]:
        """Return the jobs that have to leave the row for one more worker; spare the dearest.

        The result is empty if the worker does not fit without all of them.
        """
        request = self._job.gang.request
        workers = int(worker_slots(sheet, request)[row]) + 1
        for one in local:
            _free(sheet, one.running)
        kept = list(local)
        if int(worker_slots(sheet, request)[row]) >= workers:
            for one in sorted(local, key=order, reverse=True):
                _hold(sheet, one.running)
                if int(worker_slots(sheet, request)[row]) >= workers:
                    kept = [other for other in kept if other is not one]
                else:
                    _free(sheet, one.running)
            enough = True
        else:
            enough = False
        for one in kept:
            _hold(sheet, one.running)
        return kept if enough else ()

    def _has_room(self, sheet: Cluster) -> bool:
        """Tell whether all workers can fit; necessary, not sufficient."""
        gang = self._job.gang
        slots = worker_slots(sheet, gang.request)
        return int(np.minimum(slots, gang.workers).sum()) >= gang.workers

    def _has_room_elsewhere(self, of: int, row: int) -> bool:
        """Tell whether the candidate can fit outside the row; necessary, not sufficient."""
        gang = self._candidates[of].running.job.gang
        known = self._elsewhere.get((gang, row))
        if known is None:
            slots = np.minimum(worker_slots(self._cluster, gang.request), gang.workers)
            known = bool(slots.sum() - slots[row] > 0)
            self._elsewhere[gang, row] = known
        return known

    def _attempt(self, chosen: Sequence[_Chosen]) -> Compacted | int:
        """Return all places, or a row from which a job cannot move."""
        ways = [(one, of.row) for of in chosen for one in of.candidates]
        empty = self._cluster.overlay()
        for one, _ in ways:
            _free(empty, one.running)
        found = self._placing.place(empty, self._job)
        if found is None:
            return chosen[-1].row
        places, charge = found
        adopt_job(empty, self._job, places)
        sheet = self._cluster.overlay()
        adopt_job(sheet, self._job, places)
        leaving: list[Leaving] = []
        for one, row in sorted(ways, key=lambda way: -way[0].cost[1]):
            running = one.running
            if allocate_job(empty, running.job, running.placements):
                continue
            goes = self._placing.place_again(sheet, running)
            if goes is None:
                return row
            adopt_job(sheet, running.job, goes[0])
            leaving.append(Leaving(running, one.cost[0], *goes))
        return Compacted(places, charge, tuple(leaving))


def _free(sheet: Cluster, running: RunningJob) -> None:
    for placement in running.placements:
        sheet.suppose_free(placement)


def _hold(sheet: Cluster, running: RunningJob) -> None:
    for placement in running.placements:
        sheet.suppose_held(placement)
