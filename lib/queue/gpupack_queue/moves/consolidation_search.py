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

from gpupack_placement.cluster import Cluster
from gpupack_placement.feasibility import worker_slots
from gpupack_placement.gang import has_slots
from gpupack_placement.request import Gang, Request
from gpupack_queue.charge import Charge
from gpupack_queue.job import Job, Places, RunningJob, Tenant
from gpupack_queue.quotas.quota_planner import QuotaPlanner
from gpupack_queue.quotas.quota_usage import QuotaUsage
from gpupack_queue.running.bounds import Bounds
from gpupack_queue.running.candidates import Candidate, Candidates, cost_key
from gpupack_queue.running.projected_cluster import adopt_job, allocate_job

MAX_ATTEMPTS: Final = 4
"""The maximum number of sets of jobs that are tried."""
_MAX_ROWS: Final = 64
"""The maximum number of nodes that are examined for one set."""
_MAX_JOBS_PER_NODE: Final = 32
"""The maximum number of jobs that are examined on one node, the cheapest first."""


@dataclass(frozen=True, slots=True)
class MovingJob:
    """A job that moves, and its new places."""

    running: RunningJob
    cost: float
    """Milli-GPU times seconds."""
    places: Places
    charge: Charge


@dataclass(frozen=True, slots=True)
class ConsolidationPlan:
    """The places of the pending job once all of `leaving` have moved."""

    places: Places
    charge: Charge
    moving: tuple[MovingJob, ...]


@dataclass(slots=True)
class _Chosen:
    """The candidates that are to leave a row."""

    row: int
    candidates: list[Candidate]


class PlacementStatement:
    """Placement of several jobs within their quotas; each one is counted until `undo`."""

    def __init__(self, quota: QuotaUsage, planner: QuotaPlanner) -> None:
        self._quota, self._planner = quota, planner
        self._counted: list[tuple[Tenant, Charge, int]] = []

    def place(self, cluster: Cluster, job: Job) -> tuple[Places, Charge] | None:
        """Place a pending job; None: it does not fit."""
        found = self._planner.place(cluster, job)
        if found is not None:
            self._count(job.tenant, found[1], 1)
        return found

    def place_again(self, overlay: Cluster, running: RunningJob) -> tuple[Places, Charge] | None:
        """Place a running job as if it held nothing; None: it does not fit."""
        job, cluster = running.job, overlay.overlay()
        _free(cluster, running)
        self._count(job.tenant, running.charge, -1)
        found = self._planner.place(cluster, job)
        if found is None or not self._quota.fits_with_victims(job.tenant, found[1]):
            return None
        self._count(job.tenant, found[1], 1)
        return found

    def discard(self) -> None:
        """Restore the quota usage."""
        for tenant, charge, sign in reversed(self._counted):
            self._quota.count(tenant, charge, sign=-sign)
        self._counted.clear()

    def _count(self, tenant: Tenant, charge: Charge, sign: int) -> None:
        self._quota.count(tenant, charge, sign=sign)
        self._counted.append((tenant, charge, sign))


class ConsolidationSearch:
    """One search for one job; `cluster` is not changed.

    `most` is the maximum number of jobs that move. `budget` is in milli-GPU times seconds.
    """

    def __init__(
        self,
        job: Job,
        cluster: Cluster,
        candidates: Candidates,
        statement: PlacementStatement,
        *,
        max_moves: int,
        budget: float,
    ) -> None:
        self._job, self._cluster, self._statement = job, cluster, statement
        self._candidates = candidates
        self._max_moves, self._budget = max_moves, budget
        self._bounds = [Bounds(cluster, role, candidates) for role in job.gang.limited_roles]
        self._fits_elsewhere: dict[tuple[Gang, int], bool] = {}

    def run(self) -> ConsolidationPlan | None:
        """Return the moves, or None if none were found."""
        rows = self._feasible_rows()
        for _ in range(MAX_ATTEMPTS):
            chosen = self._choose(list(rows))
            if not chosen:
                return None
            try:
                found = self._attempt(chosen)
            finally:
                self._statement.discard()
            if isinstance(found, ConsolidationPlan):
                return found
            rows = [each for each in rows if each[1] != found]
        return None

    def _feasible_rows(self) -> list[tuple[float, int, int]]:
        """Return rows where a worker may fit: the bound of its cost, the row, and its role."""
        rows: list[tuple[float, int, int]] = []
        for number, bounds in enumerate(self._bounds):
            of_role = bounds.feasible_rows(len(self._candidates))
            if of_role is None:
                return []
            rows += [(least, row, number) for least, row in of_role[:_MAX_ROWS]]
        return sorted(rows)

    def _choose(self, rows: list[tuple[float, int, int]]) -> list[_Chosen]:
        """Choose by row the jobs that leave, so that all workers could fit; empty: impossible.

        `rows` is consumed.
        """
        overlay, spent, jobs = self._cluster.overlay(), 0.0, 0
        chosen: list[_Chosen] = []
        moving_away: set[int] = set()
        while rows:
            least, row, number = rows.pop(0)
            bounds = self._bounds[number]
            if spent + least > self._budget:
                break
            local = [
                of
                for of in bounds.candidates_on(row, len(self._candidates))
                if of not in moving_away
            ]
            movable = [of for of in local[:_MAX_JOBS_PER_NODE] if self._may_fit_elsewhere(of, row)]
            local_movable = [self._candidates[of] for of in movable]
            step = self._jobs_to_move(overlay, row, bounds.role.request, local_movable)
            cost = sum(one.cost[0] for one in step)
            if not step or spent + cost > self._budget or jobs + len(step) > self._max_moves:
                continue
            moving_away |= {
                of for of in movable if any(self._candidates[of] is one for one in step)
            }
            spent, jobs = spent + cost, jobs + len(step)
            for one in step:
                _free(overlay, one.running)
            chosen.append(_Chosen(row, list(step)))
            if has_slots(overlay, self._job.gang):
                return chosen
            rest = [of for of in local if of not in moving_away]
            if rest:
                insort(rows, (bounds.lower_bound(row, rest, overlay), row, number))
        return []

    def _jobs_to_move(
        self, overlay: Cluster, row: int, request: Request, local: Sequence[Candidate]
    ) -> Sequence[Candidate]:
        """Return the jobs that have to leave the row for one more worker; spare the dearest.

        The result is empty if the worker does not fit without all of them.
        """
        workers = int(worker_slots(overlay, request)[row]) + 1
        for one in local:
            _free(overlay, one.running)
        needed = list(local)
        if int(worker_slots(overlay, request)[row]) >= workers:
            for one in sorted(local, key=cost_key, reverse=True):
                _hold(overlay, one.running)
                if int(worker_slots(overlay, request)[row]) >= workers:
                    needed = [other for other in needed if other is not one]
                else:
                    _free(overlay, one.running)
            enough = True
        else:
            enough = False
        for one in needed:
            _hold(overlay, one.running)
        return needed if enough else ()

    def _may_fit_elsewhere(self, of: int, row: int) -> bool:
        """Tell whether the candidate can fit outside the row; necessary, not sufficient."""
        gang = self._candidates[of].running.job.gang
        known = self._fits_elsewhere.get((gang, row))
        if known is None:
            slots = [worker_slots(self._cluster, request) > 0 for request in gang.requests]
            known = any(each.sum() > each[row] for each in slots)
            self._fits_elsewhere[gang, row] = known
        return known

    def _attempt(self, chosen: Sequence[_Chosen]) -> ConsolidationPlan | int:
        """Return all places, or a row from which a job cannot move."""
        in_the_way = [(one, of.row) for of in chosen for one in of.candidates]
        empty = self._cluster.overlay()
        for one, _ in in_the_way:
            _free(empty, one.running)
        found = self._statement.place(empty, self._job)
        if found is None:
            return chosen[-1].row
        places, charge = found
        adopt_job(empty, self._job, places)
        overlay = self._cluster.overlay()
        adopt_job(overlay, self._job, places)
        leaving: list[MovingJob] = []
        for one, row in sorted(in_the_way, key=lambda way: -way[0].cost[1]):
            running = one.running
            if allocate_job(empty, running.job, running.placements):
                continue
            goes = self._statement.place_again(overlay, running)
            if goes is None:
                return row
            adopt_job(overlay, running.job, goes[0])
            leaving.append(MovingJob(running, one.cost[0], *goes))
        return ConsolidationPlan(places, charge, tuple(leaving))


def _free(overlay: Cluster, running: RunningJob) -> None:
    for placement in running.placements:
        overlay.assume_free(placement)


def _hold(overlay: Cluster, running: RunningJob) -> None:
    for placement in running.placements:
        overlay.assume_held(placement)
