# SPDX-License-Identifier: Apache-2.0
"""The cheapest set of running jobs whose end makes room for a waiting one.

    cost of a set = what it has had (milli-GPU times seconds), then its GPUs, then its jobs

Only sets count after which the job fits, by a plan on an overlay without them, and which the books
allow. To find the cheapest is a covering problem. It is exact where a search through the sets in
the order of their cost ends in time: for jobs of one worker, node by node, in the order of a lower
bound of what room costs there; for gangs over few candidates. Otherwise room for one worker after
the other is made where it is cheapest. In the end nobody is in the set without whom it would fit.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

from gpupack_core.cluster import Cluster
from gpupack_core.feasibility import worker_slots
from gpupack_core.queueing.candidates import Candidate, by_cost, cost_of, milli_on, order
from gpupack_core.queueing.charge import Charge
from gpupack_core.queueing.job import Job, Running
from gpupack_core.queueing.room import Places, Planner

TRIALS: Final = 512
"""Plans in one exact search; sets of nine candidates are 511."""
SETS: Final = 8192
"""Sets that are looked at in one."""
_FEW: Final = 9
MANY: Final = 256
"""Candidates that are looked at first."""


@dataclass(frozen=True, slots=True)
class Found:
    """The victims, and where the job goes."""

    victims: tuple[Candidate, ...]
    places: Places
    charge: Charge


Fit = Callable[[Cluster, Sequence[Running]], tuple[Places, Charge] | None]
"""Where the job goes in this cluster, from which these are gone, if the books allow all of it."""


class Search:
    """For one job; the cluster is that of a sheet and is not changed."""

    def __init__(
        self,
        job: Job,
        candidates: Sequence[Candidate],
        cluster: Cluster,
        plan: Planner,
        fit: Fit,
        tolerate: Callable[[Sequence[Running]], bool],
    ) -> None:
        self._job, self._plan, self._fit, self._tolerate = job, plan, fit, tolerate
        self._given, self._cluster = cluster, cluster.overlay()
        self._candidates = sorted(candidates, key=order)

    def run(self, *, anywhere: bool) -> Found | None:
        """The cheapest set there is, or one that is found.

        Of many candidates the cheapest are looked at first: nobody who costs more than a set that
        is found can be part of a cheaper one.

        Args:
            anywhere: victims help wherever they are, since the quota is what is missing.
        """
        found, looked_at = None, 0
        while found is None and looked_at < len(self._candidates):
            looked_at = max(MANY, 4 * looked_at)
            found = self._among(self._candidates[:looked_at], anywhere=anywhere)
        if found is None:
            return None
        cost = cost_of(found.victims)
        cheaper = bisect_left(self._candidates, cost, key=attrgetter("cost"))
        if cheaper <= looked_at:
            return found
        other = self._among(self._candidates[:cheaper], anywhere=anywhere)
        return found if other is None or cost_of(other.victims) >= cost else other

    def _among(self, candidates: Sequence[Candidate], *, anywhere: bool) -> Found | None:
        """Nobody is stopped for a job that would not fit if all of these were gone."""
        empty = self._given.overlay()
        for one in candidates:
            for placement in one.running.placements:
                empty.suppose_free(placement)
        if self._plan(empty, self._job) is None:
            return None
        if anywhere:
            return self._cheapest(candidates)
        slots = worker_slots(empty, self._job.gang.request)
        by_row: dict[int, list[Candidate]] = {}
        for one in candidates:
            for row in self._rows(one):
                if slots[row]:
                    by_row.setdefault(row, []).append(one)
        useful = list({id(one): one for local in by_row.values() for one in local}.values())
        if len(useful) <= _FEW:
            return self._cheapest(useful)
        if self._job.gang.workers == 1:
            return self._on_one_node(by_row)
        return self._on_many(by_row)

    def _rows(self, one: Candidate) -> set[int]:
        rows = (self._given.row(placement.node) for placement in one.running.placements)
        return {row for row in rows if row is not None}

    def _on_one_node(self, by_row: dict[int, list[Candidate]]) -> Found | None:
        best: Found | None = None
        for bound, row in sorted((self._bound(local, row), row) for row, local in by_row.items()):
            if best is not None and bound >= cost_of(best.victims)[0]:
                break
            below = None if best is None else best.victims
            found = self._cheapest(by_row[row], row=row, below=below)
            best = found or best
        return best

    def _on_many(self, by_row: dict[int, list[Candidate]]) -> Found | None:
        """Room for one more worker after the other, where it is cheapest."""
        chosen: dict[int, Candidate] = {}
        turns = sorted((self._bound(local, row), row) for row, local in by_row.items())
        while turns:
            _, row = turns.pop(0)
            local = [one for one in by_row[row] if id(one) not in chosen]
            step = self._next_worker(row, local)
            if step is None or not self._tolerate(
                [one.running for one in (*chosen.values(), *step)]
            ):
                continue
            for one in step:
                chosen[id(one)] = one
                self._stop(one)
            victims = tuple(chosen.values())
            answer = self._fit(self._cluster, [one.running for one in victims])
            if answer is not None:
                for one in victims:
                    self._spare(one)
                return self._all_but(victims)
            rest = [one for one in local if id(one) not in chosen]
            if rest:
                insort(turns, (self._bound(rest, row), row))
        for one in chosen.values():
            self._spare(one)
        return None

    def _next_worker(self, row: int, local: Sequence[Candidate]) -> tuple[Candidate, ...] | None:
        """The cheapest of these that make room for one more worker on the row; of many, few."""
        before = self._slots(row)
        sets = by_cost(local) if len(local) <= _FEW else self._less_and_less(row, local, before)
        return next((chosen for chosen in sets if self._makes_room(chosen, row, before)), None)

    def _less_and_less(
        self, row: int, local: Sequence[Candidate], before: int
    ) -> Iterator[tuple[Candidate, ...]]:
        """One set: all of them but those, the dearest first, without whom there is room."""
        chosen = list(local)
        for one in sorted(local, key=order, reverse=True):
            fewer = [other for other in chosen if other is not one]
            if self._makes_room(fewer, row, before):
                chosen = fewer
        yield tuple(chosen)

    def _makes_room(self, chosen: Sequence[Candidate], row: int, before: int) -> bool:
        """Whether a worker more than before fits there."""
        if not self._may_suffice(chosen, row, workers=before + 1):
            return False
        with self._without(chosen):
            return self._slots(row) > before

    def _cheapest(
        self,
        candidates: Sequence[Candidate],
        *,
        row: int | None = None,
        below: Sequence[Candidate] | None = None,
    ) -> Found | None:
        """Through all sets by cost.

        Args:
            candidates: of whom sets are made.
            row: where they have to make room; None: anywhere.
            below: a set that is known to do; dearer ones are of no interest.
        """
        trials = 0
        for number, subset in enumerate(by_cost(candidates)):
            if below is not None and cost_of(subset) >= cost_of(below):
                return None
            if trials >= TRIALS or number >= SETS:
                break
            if row is not None and not self._may_suffice(subset, row):
                continue
            if not self._tolerate([one.running for one in subset]):
                continue
            trials += 1
            found = self._trial(subset)
            if found is not None:
                return found
        else:
            return None
        found = self._enough(candidates)
        cheaper = below is None or found is None or cost_of(found.victims) < cost_of(below)
        return found if cheaper else None

    def _may_suffice(self, subset: Sequence[Candidate], row: int, *, workers: int = 1) -> bool:
        """Whether the GPUs that they free on the row, with those that are free, are enough."""
        name = self._cluster.name_at(row)
        freed = sum(milli_on(one.running.placements, name) for one in subset)
        free = int(self._cluster.arrays.free_gpu_milli[row])
        return free + freed >= workers * self._job.gang.request.milli

    def _enough(self, candidates: Sequence[Candidate]) -> Found | None:
        """The cheapest 1, 2, 4, … that may go together, and of these no more than are needed."""
        chosen: list[Candidate] = []
        tried = 1
        for one in sorted(candidates, key=order):
            if self._tolerate([other.running for other in (*chosen, one)]):
                chosen.append(one)
            if len(chosen) == tried:
                tried *= 2
                if self._trial(chosen) is not None:
                    return self._all_but(chosen)
        return self._all_but(chosen)

    def _all_but(self, victims: Sequence[Candidate]) -> Found | None:
        """Spare one after the other, the dearest first, as long as the job fits."""
        found = self._trial(victims)
        for one in sorted(victims, key=order, reverse=True):
            if found is None:
                return None
            fewer = self._trial([other for other in found.victims if other is not one])
            found = fewer or found
        return found

    def _trial(self, victims: Sequence[Candidate]) -> Found | None:
        with self._without(victims):
            answer = self._fit(self._cluster, [one.running for one in victims])
        return None if answer is None else Found(tuple(victims), *answer)

    def _bound(self, local: Sequence[Candidate], row: int) -> float:
        """Room for one more worker on the row costs at least so much."""
        a, request = self._cluster.arrays, self._job.gang.request
        missing: float = request.milli - int(a.free_gpu_milli[row])
        cheapest = min(one.cost[0] for one in local)
        total = 0.0
        for density, milli in sorted(self._densities(local, row)):
            if missing <= 0:
                break
            total += density * min(milli, missing)
            missing -= milli
        return max(total, cheapest)

    def _densities(self, local: Sequence[Candidate], row: int) -> Iterator[tuple[float, int]]:
        name = self._cluster.name_at(row)
        for one in local:
            here = milli_on(one.running.placements, name)
            if here:
                yield one.cost[0] / here, here

    def _slots(self, row: int) -> int:
        return int(worker_slots(self._cluster, self._job.gang.request)[row])

    @contextmanager
    def _without(self, victims: Sequence[Candidate]) -> Iterator[None]:
        for one in victims:
            self._stop(one)
        try:
            yield
        finally:
            for one in victims:
                self._spare(one)

    def _stop(self, one: Candidate) -> None:
        for placement in one.running.placements:
            self._cluster.suppose_free(placement)

    def _spare(self, one: Candidate) -> None:
        for placement in one.running.placements:
            self._cluster.suppose_held(placement)
