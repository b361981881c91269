# SPDX-License-Identifier: Apache-2.0
"""The search for the cheapest set of victims whose end makes space for a pending job.

    cost of a set = what it would lose (milli-GPU times seconds), then its GPUs, then its jobs

Only sets count after whose end the job fits, by a plan on an overlay without them, and which the
quota usage permits. To find the cheapest is a covering problem. The search is exact where it can go
through the sets in the order of their cost in time: for jobs of one worker, node by node, in the
order of a lower bound of the cost there; for gangs, with few candidates. Otherwise space for one
worker after another is made where it is cheapest. In the end every victim that is not needed is
spared. Where the quota refuses the result, other jobs are preempted, too, wherever they run
(additional_victims.py).

Bounds decide what is planned and which jobs are examined (bounds.py): most nodes cannot have space
for a worker, whichever jobs end there, or only at a higher cost than a known set.
"""

from bisect import insort
from collections.abc import Iterable, Sequence
from math import inf
from typing import Final

from gpupack_placement.cluster import Cluster
from gpupack_placement.feasibility import worker_slots
from gpupack_placement.request import Role
from gpupack_queue.preemption.additional_victims import AdditionalVictims
from gpupack_queue.preemption.exact_search import ExactSearch
from gpupack_queue.preemption.policies import PreemptionPolicy
from gpupack_queue.preemption.victim_check import (
    InsufficientVictims,
    VictimCheck,
    VictimSet,
    is_cheaper,
)
from gpupack_queue.quotas.quota_planner import QuotaPlanner
from gpupack_queue.running.bounds import Bounds
from gpupack_queue.running.candidates import Candidate, Candidates, cost_key, cost_of

_MAX_EXACT: Final = 9
FIRST_EXAMINED: Final = 256
"""The number of candidates that are examined first."""
_MAX_TIES: Final = 64
"""The maximum number of nodes with the same loss as a known set that are examined.

They may need fewer GPUs or jobs.
"""
_FIRST_ROWS: Final = 8
"""The number of nodes that are emptied first, to see if the job fits without all candidates."""

_RowsByCost = list[tuple[float, int, int]]
"""A lower bound of the cost of a row, the row, and the number of a role, the cheapest first."""


class VictimSearch:
    """The search for one job; the cluster is that of a session and stays as it is."""

    def __init__(
        self,
        policy: PreemptionPolicy,
        candidates: Candidates,
        cluster: Cluster,
        planner: QuotaPlanner,
    ) -> None:
        self._policy, self._job, self._plan = policy, policy.job, planner.plan
        self._given, self._candidates = cluster, candidates
        self._check = VictimCheck(cluster, planner, policy)
        self._additional = AdditionalVictims(policy, candidates)
        self._exact = ExactSearch(self._check, policy, self._additional)
        self._bounds = [Bounds(cluster, r, candidates) for r in self._job.gang.limited_roles]

    def run(self, *, quota_only: bool) -> VictimSet | None:
        """Return the cheapest set, or a set that was found; None: no set was found.

        Of many candidates the cheapest are examined first: no job that costs more than a known set
        can be part of a cheaper one.

        Args:
            quota_only: victims help wherever they are, since only quota is missing.
        """
        found, examined = None, 0
        while found is None and examined < len(self._candidates):
            examined = max(FIRST_EXAMINED, 4 * examined)
            found = self._among(examined, quota_only=quota_only)
        if found is None:
            return None
        cheaper = self._candidates.count_cheaper(cost_of(found.victims))
        if cheaper <= examined:
            return found
        return self._among(cheaper, quota_only=quota_only, known=found) or found

    def _among(
        self, first: int, *, quota_only: bool, known: VictimSet | None = None
    ) -> VictimSet | None:
        """Return a set of the first candidates; None: none, or the job does not fit without all.

        Args:
            first: the number of candidates, which are in the order of their cost.
            quota_only: as of `run`.
            known: a set that is known; only cheaper ones are of interest.
        """
        if quota_only:
            no_victims = InsufficientVictims((), self._check.placements())
            best = self._exact.with_additional_victims(no_victims, known) or known
            return self._exact.find_cheapest(self._candidates[:first], below=best) or best
        rows = self._feasible_rows(first)
        useful = self._useful_candidates(rows, first)
        if useful is None:
            return None
        if min(first, len(self._candidates)) <= _MAX_EXACT:
            return self._exact.find_cheapest(self._candidates[:first], below=known)
        if len(useful) <= _MAX_EXACT:
            return self._exact.find_cheapest(
                [self._candidates[of] for of in sorted(useful)], below=known
            )
        if self._job.gang.workers == 1:
            return self._on_one_node(rows, first, known)
        found = self._for_gang(rows, first)
        return found if found is None or is_cheaper(found.victims, known) else None

    def _feasible_rows(self, first: int) -> _RowsByCost:
        """Return the rows where a worker of a role may fit without the first candidates."""
        rows: _RowsByCost = []
        for number, bounds in enumerate(self._bounds):
            of_role = bounds.feasible_rows(first)
            if of_role is None:
                return []
            rows += [(least, row, number) for least, row in of_role]
        return sorted(rows)

    def _useful_candidates(self, by_cost: _RowsByCost, first: int) -> set[int] | None:
        """Return candidates on rows where a worker fits if all end, or more than a few of them.

        None: the job does not fit even if all ended. The cheapest nodes are emptied first, until
        both are known.
        """
        empty, removed = self._given.overlay(), set[int]()
        useful = set[int]()
        fits, emptied = False, 0
        while emptied < len(by_cost) and not (fits and len(useful) > _MAX_EXACT):
            following = max(_FIRST_ROWS, 2 * emptied)
            rows = [(row, self._bounds[n]) for _, row, n in by_cost[emptied:following]]
            for of in {
                of for row, bounds in rows for of in bounds.candidates_on(row, first)
            } - removed:
                removed.add(of)
                for placement in self._candidates[of].running.placements:
                    empty.assume_free(placement)
            for row, bounds in rows:
                if worker_slots(empty, bounds.role.request)[row]:
                    useful.update(bounds.candidates_on(row, first))
            fits = fits or self._plan(empty, self._job) is not None
            emptied = following
        return useful if fits else None

    def _on_one_node(
        self, rows: _RowsByCost, first: int, known: VictimSet | None
    ) -> VictimSet | None:
        best, ties = known, 0
        (bounds,) = self._bounds
        for bound, row, _ in rows:
            most = (inf, 0, 0) if best is None else cost_of(best.victims)
            if bound > most[0] or ties >= _MAX_TIES:
                break
            if bounds.cost(row, bound) >= most:
                continue
            ties += bound == most[0]
            numbers = bounds.candidates_on(row, first)
            local = [self._candidates[of] for of in numbers]
            freed = bounds.freed_on(row, numbers)
            losable = self._policy.max_preemptible([one.running for one in local], freed)
            if losable < bounds.missing(row):
                continue
            if self._check.fits_without(local, row, bounds.role, workers=1):
                best = self._exact.find_cheapest(local, row=row, freed=freed, below=best) or best
        return best

    def _for_gang(self, rows: _RowsByCost, first: int) -> VictimSet | None:
        """Make space for one more worker after another, where it is cheapest."""
        chosen: dict[int, Candidate] = {}
        found: VictimSet | None = None
        while rows and found is None:
            _, row, number = rows.pop(self._next(rows))
            bounds = self._bounds[number]
            local = [of for of in bounds.candidates_on(row, first) if of not in chosen]
            step = {of: self._candidates[of] for of in self._for_one_more(bounds, row, local)}
            running = [one.running for one in (*chosen.values(), *step.values())]
            if not step or not self._policy.may_preempt_together(running):
                continue
            chosen |= step
            for one in step.values():
                self._check.remove(one)
            result = self._check.check_removed(tuple(chosen.values()))
            found = result if isinstance(result, VictimSet) else self._additional.find(result)
            rest = [of for of in local if of not in chosen]
            if rest:
                insort(rows, (bounds.lower_bound(row, rest, self._check.cluster), row, number))
        for one in chosen.values():
            self._check.restore(one)
        return None if found is None else self._check.spare_unneeded(found)

    def _next(self, rows: _RowsByCost) -> int:
        """Return the position of the cheapest row for a role that lacks space even alone.

        If no role does, it is the cheapest row of all.
        """
        if len(self._bounds) == 1:
            return 0
        short = {n for n, bounds in enumerate(self._bounds) if self._check.is_short(bounds.role)}
        return next((at for at, (_, _, number) in enumerate(rows) if number in short), 0)

    def _for_one_more(self, bounds: Bounds, row: int, local: Sequence[int]) -> tuple[int, ...]:
        """Return the cheapest of these that make space for one more worker on the row.

        Of many candidates the result is a small set, not the cheapest.
        """
        role = bounds.role
        workers = self._check.slots(row, role) + 1
        candidates = [self._candidates[of] for of in local]
        if not candidates or not self._check.fits_without(candidates, row, role, workers=workers):
            return ()
        number = {id(self._candidates[of]): of for of in local}
        if len(local) > _MAX_EXACT:
            chosen: Iterable[Candidate] = self._without_unneeded(row, role, candidates, workers)
        else:
            sets = self._exact.sets(
                candidates, row, bounds.freed_on(row, local), role, workers=workers
            )
            each = (one for one in sets.cheapest_first() if one is not None)
            chosen = next(
                s for s in each if self._check.fits_without(s, row, role, workers=workers)
            )
        return tuple(number[id(one)] for one in chosen)

    def _without_unneeded(
        self, row: int, role: Role, local: Sequence[Candidate], workers: int
    ) -> Sequence[Candidate]:
        """Return the candidates without those, the dearest first, that need not end."""
        chosen = list(local)
        for one in sorted(local, key=cost_key, reverse=True):
            fewer = [other for other in chosen if other is not one]
            if self._check.fits_without(fewer, row, role, workers=workers):
                chosen = fewer
        return chosen
