# SPDX-License-Identifier: Apache-2.0
"""The search for the cheapest set of victims whose end makes space for a pending job.

    cost of a set = what it would lose (milli-GPU times seconds), then its GPUs, then its jobs

Only sets count after whose end the job fits, by a plan on an overlay without them, and which the
quota usage permits. To find the cheapest is a covering problem. The search is exact where it can go
through the sets in the order of their cost in time: for jobs of one worker, node by node, in the
order of a lower bound of the cost there; for gangs, with few candidates. Otherwise space for one
worker after another is made where it is cheapest. In the end every victim that is not needed is
spared. Where the quota refuses the result, other jobs are preempted, too, wherever they run
(relief.py).

Bounds decide what is planned and which jobs are examined (bounds.py): most nodes cannot have space
for a worker, whichever jobs end there, or only at a higher cost than a known set.
"""

from bisect import insort
from collections.abc import Iterable, Sequence
from math import inf
from typing import Final

from gpupack_core.cluster import Cluster
from gpupack_core.feasibility import worker_slots
from gpupack_core.queueing.bounds import Bounds
from gpupack_core.queueing.candidates import Candidate, Candidates, cost_of, order
from gpupack_core.queueing.cover import Cover
from gpupack_core.queueing.grounds import Grounds
from gpupack_core.queueing.quota_planner import QuotaPlanner
from gpupack_core.queueing.relief import Relief
from gpupack_core.queueing.trials import Found, Insufficient, Trials, is_below

_FEW: Final = 9
MANY: Final = 256
"""The number of candidates that are examined first."""
_TIES: Final = 64
"""The maximum number of nodes with the same loss as a known set that are examined.

They may need fewer GPUs or jobs.
"""
_ROWS: Final = 8
"""The number of nodes that are emptied first, to see if the job fits without all candidates."""

_Turns = list[tuple[float, int]]
"""Rows, each with a lower bound of the cost there, the cheapest first."""


class Search:
    """The search for one job; the cluster is that of a sheet and stays as it is."""

    def __init__(
        self,
        grounds: Grounds,
        candidates: Candidates,
        cluster: Cluster,
        within: QuotaPlanner,
    ) -> None:
        self._grounds, self._job, self._plan = grounds, grounds.job, within.plan
        self._given, self._candidates = cluster, candidates
        self._trials = Trials(cluster, within, grounds)
        self._relief = Relief(grounds, candidates)
        self._cover = Cover(self._trials, grounds, self._relief)
        self._bounds = Bounds(cluster, self._job.gang, candidates)

    def run(self, *, anywhere: bool) -> Found | None:
        """Return the cheapest set, or a set that was found; None: no set was found.

        Of many candidates the cheapest are examined first: no job that costs more than a known set
        can be part of a cheaper one.

        Args:
            anywhere: victims help wherever they are, since only quota is missing.
        """
        found, looked_at = None, 0
        while found is None and looked_at < len(self._candidates):
            looked_at = max(MANY, 4 * looked_at)
            found = self._among(looked_at, anywhere=anywhere)
        if found is None:
            return None
        cheaper = self._candidates.cheaper(cost_of(found.victims))
        if cheaper <= looked_at:
            return found
        return self._among(cheaper, anywhere=anywhere, known=found) or found

    def _among(self, first: int, *, anywhere: bool, known: Found | None = None) -> Found | None:
        """Return a set of the first candidates; None: none, or the job does not fit without all.

        Args:
            first: the number of candidates, which are in the order of their cost.
            anywhere: as of `run`.
            known: a set that is known; only cheaper ones are of interest.
        """
        if anywhere:
            nobody = Insufficient((), self._trials.ways())
            best = self._cover.relieved(nobody, known) or known
            return self._cover.cheapest(self._candidates[:first], below=best) or best
        turns = self._bounds.hopeful(first)
        useful = self._useful(turns, first)
        if useful is None:
            return None
        if min(first, len(self._candidates)) <= _FEW:
            return self._cover.cheapest(self._candidates[:first], below=known)
        if len(useful) <= _FEW:
            return self._cover.cheapest(
                [self._candidates[of] for of in sorted(useful)], below=known
            )
        if self._job.gang.workers == 1:
            return self._on_one_node(turns, first, known)
        found = self._on_many(turns, first)
        return found if found is None or is_below(found.victims, known) else None

    def _useful(self, turns: _Turns, first: int) -> set[int] | None:
        """Return candidates on rows where a worker fits if all end, or more than a few of them.

        None: the job does not fit even if all ended. The cheapest nodes are emptied first, until
        both are known.
        """
        empty, gone = self._given.overlay(), set[int]()
        useful = set[int]()
        fits, emptied = False, 0
        while emptied < len(turns) and not (fits and len(useful) > _FEW):
            following = max(_ROWS, 2 * emptied)
            rows = [row for _, row in turns[emptied:following]]
            for of in {of for row in rows for of in self._bounds.on(row, first)} - gone:
                gone.add(of)
                for placement in self._candidates[of].running.placements:
                    empty.suppose_free(placement)
            slots = worker_slots(empty, self._job.gang.request)
            for row in rows:
                if slots[row]:
                    useful.update(self._bounds.on(row, first))
            fits = fits or self._plan(empty, self._job) is not None
            emptied = following
        return useful if fits else None

    def _on_one_node(self, turns: _Turns, first: int, known: Found | None) -> Found | None:
        best, ties = known, 0
        for bound, row in turns:
            most = (inf, 0, 0) if best is None else cost_of(best.victims)
            if bound > most[0] or ties >= _TIES:
                break
            if self._bounds.cost(row, bound) >= most:
                continue
            ties += bound == most[0]
            numbers = self._bounds.on(row, first)
            local = [self._candidates[of] for of in numbers]
            frees = self._bounds.frees(row, numbers)
            losable = self._grounds.losable([one.running for one in local], frees)
            if losable < self._bounds.missing(row):
                continue
            if self._trials.has_room_without(local, row, workers=1):
                best = self._cover.cheapest(local, row=row, frees=frees, below=best) or best
        return best

    def _on_many(self, turns: _Turns, first: int) -> Found | None:
        """Make space for one more worker after another, where it is cheapest."""
        chosen: dict[int, Candidate] = {}
        found: Found | None = None
        while turns and found is None:
            _, row = turns.pop(0)
            local = [of for of in self._bounds.on(row, first) if of not in chosen]
            step = {of: self._candidates[of] for of in self._next_worker(row, local)}
            running = [one.running for one in (*chosen.values(), *step.values())]
            if not step or not self._grounds.tolerate(running):
                continue
            chosen |= step
            for one in step.values():
                self._trials.stop(one)
            trial = self._trials.of_stopped(tuple(chosen.values()))
            found = trial if isinstance(trial, Found) else self._relief.of(trial)
            rest = [of for of in local if of not in chosen]
            if rest:
                insort(turns, (self._bounds.least(row, rest, self._trials.cluster), row))
        for one in chosen.values():
            self._trials.spare(one)
        return None if found is None else self._trials.sparing(found)

    def _next_worker(self, row: int, local: Sequence[int]) -> tuple[int, ...]:
        """Return the cheapest of these that make space for one more worker on the row.

        Of many candidates the result is a small set, not the cheapest.
        """
        workers = self._trials.slots(row) + 1
        candidates = [self._candidates[of] for of in local]
        if not candidates or not self._trials.has_room_without(candidates, row, workers=workers):
            return ()
        number = {id(self._candidates[of]): of for of in local}
        if len(local) > _FEW:
            chosen: Iterable[Candidate] = self._less_and_less(row, candidates, workers)
        else:
            sets = self._cover.sets(
                candidates, row, self._bounds.frees(row, local), workers=workers
            )
            each = (one for one in sets.cheapest_first() if one is not None)
            chosen = next(s for s in each if self._trials.has_room_without(s, row, workers=workers))
        return tuple(number[id(one)] for one in chosen)

    def _less_and_less(
        self, row: int, local: Sequence[Candidate], workers: int
    ) -> Sequence[Candidate]:
        """Return the candidates without those, the dearest first, that need not end."""
        chosen = list(local)
        for one in sorted(local, key=order, reverse=True):
            fewer = [other for other in chosen if other is not one]
            if self._trials.has_room_without(fewer, row, workers=workers):
                chosen = fewer
        return chosen
