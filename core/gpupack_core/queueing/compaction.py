# SPDX-License-Identifier: Apache-2.0
"""Which movable jobs are to leave where, so that a waiting one has room, and where they go.

Nodes are emptied for one worker after the other, where that costs least by a lower bound. Then all
of it is tried: the job is placed, and beside it each of those in its way, on places that nobody
holds now, not even another who is moved. So every move can be made for itself, in any order, and
nobody has left his place without having another, whatever happens to the others.

It is a heuristic, bounded in plans: a few nodes are tried, and on each the cheapest jobs.
"""

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from gpupack_core.cluster import Cluster
from gpupack_core.feasibility import worker_slots
from gpupack_core.queueing.books import Books
from gpupack_core.queueing.bounds import Bounds
from gpupack_core.queueing.candidates import Candidate, Candidates, order
from gpupack_core.queueing.charge import Charge
from gpupack_core.queueing.future import adopt, take
from gpupack_core.queueing.job import Job, Places, Running, Tenant
from gpupack_core.queueing.within import WithinQuota
from gpupack_core.request import Gang

ATTEMPTS: Final = 4
"""Sets of jobs that are tried."""
_ROWS: Final = 64
"""Nodes that are looked at for one set."""
_LOCAL: Final = 32
"""Jobs on one of them, the cheapest."""


@dataclass(frozen=True, slots=True)
class Leaving:
    """One who is moved, and where to."""

    running: Running
    cost: float
    """Milli-GPU times seconds."""
    places: Places
    charge: Charge


@dataclass(frozen=True, slots=True)
class Compacted:
    """Where the job goes once all of these have left."""

    places: Places
    charge: Charge
    leaving: tuple[Leaving, ...]


@dataclass(slots=True)
class _Chosen:
    """Candidates who are to leave a row."""

    row: int
    candidates: list[Candidate]


class Placing:
    """Where jobs go within their quotas, one beside the other; counted until it is undone."""

    def __init__(self, books: Books, within: WithinQuota) -> None:
        self._books, self._within = books, within
        self._counted: list[tuple[Tenant, Charge, int]] = []

    def place(self, cluster: Cluster, job: Job) -> tuple[Places, Charge] | None:
        """A job that waits."""
        found = self._within.places(cluster, job)
        if found is not None:
            self._count(job.tenant, found[1], 1)
        return found

    def place_again(self, sheet: Cluster, running: Running) -> tuple[Places, Charge] | None:
        """A job that runs, as if it held nothing."""
        job, cluster = running.job, sheet.overlay()
        _free(cluster, running)
        self._count(job.tenant, running.charge, -1)
        found = self._within.places(cluster, job)
        if found is None or not self._books.may_hold(job.tenant, found[1]):
            return None
        self._count(job.tenant, found[1], 1)
        return found

    def undo(self) -> None:
        """The books are as they were."""
        for tenant, charge, sign in reversed(self._counted):
            self._books.starts(tenant, charge, sign=-sign)
        self._counted.clear()

    def _count(self, tenant: Tenant, charge: Charge, sign: int) -> None:
        self._books.starts(tenant, charge, sign=sign)
        self._counted.append((tenant, charge, sign))


class Compaction:
    """For one job; `cluster` is not changed. `most`: jobs; `budget`: milli-GPU times seconds."""

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
        """None: none was found."""
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
        """By row those who leave, so that all workers could have room; empty: it is not possible.

        Rows of which nothing can come are not among the turns afterwards.
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
        """Without whom one more worker has room on the row; the dearest are spared if possible."""
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
        """Necessary for all workers to fit."""
        gang = self._job.gang
        slots = worker_slots(sheet, gang.request)
        return int(np.minimum(slots, gang.workers).sum()) >= gang.workers

    def _has_room_elsewhere(self, of: int, row: int) -> bool:
        """Necessary for the candidate to find places that are not on the row."""
        gang = self._candidates[of].running.job.gang
        known = self._elsewhere.get((gang, row))
        if known is None:
            slots = np.minimum(worker_slots(self._cluster, gang.request), gang.workers)
            known = bool(slots.sum() - slots[row] > 0)
            self._elsewhere[gang, row] = known
        return known

    def _attempt(self, chosen: Sequence[_Chosen]) -> Compacted | int:
        """All of it, or a row from which nobody can be moved."""
        ways = [(one, of.row) for of in chosen for one in of.candidates]
        empty = self._cluster.overlay()
        for one, _ in ways:
            _free(empty, one.running)
        found = self._placing.place(empty, self._job)
        if found is None:
            return chosen[-1].row
        places, charge = found
        adopt(empty, self._job, places)
        sheet = self._cluster.overlay()
        adopt(sheet, self._job, places)
        leaving: list[Leaving] = []
        for one, row in sorted(ways, key=lambda way: -way[0].cost[1]):
            running = one.running
            if take(empty, running.job, running.placements):
                continue
            goes = self._placing.place_again(sheet, running)
            if goes is None:
                return row
            adopt(sheet, running.job, goes[0])
            leaving.append(Leaving(running, one.cost[0], *goes))
        return Compacted(places, charge, tuple(leaving))


def _free(sheet: Cluster, running: Running) -> None:
    for placement in running.placements:
        sheet.suppose_free(placement)


def _hold(sheet: Cluster, running: Running) -> None:
    for placement in running.placements:
        sheet.suppose_held(placement)
