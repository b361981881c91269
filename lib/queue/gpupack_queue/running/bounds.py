# SPDX-License-Identifier: Apache-2.0
"""Upper bounds of what candidates could free and lower bounds of what that costs, by node.

The bounds are sums over columns of numbers. The search makes plans and examines single candidates
only where the bounds show a chance.
"""

from collections.abc import Collection, Sequence

import numpy as np

from gpupack_placement.arrays import FloatArray, IntArray
from gpupack_placement.cluster import NO_ROW, Cluster
from gpupack_placement.feasibility import usable, worker_slots
from gpupack_placement.request import Gang, Role
from gpupack_placement.serving import view_for
from gpupack_queue.running.candidates import Candidates, Cost


def free_milli(cluster: Cluster, gang: Gang) -> int:
    """Return the free milli-GPU of the GPUs that serve the gang, whatever their model."""
    roles = [role.request for role in gang.roles if role.request.milli] or gang.requests
    by_resource = {request.resource: view_for(cluster, request) for request in roles}
    return sum(int(view.free_gpu_milli.sum()) for view in by_resource.values())


class Bounds:
    """Bounds for one role in one cluster; the cluster must not change while they are used."""

    def __init__(self, cluster: Cluster, role: Role, candidates: Candidates) -> None:
        self._cluster, self.role, self._lost = cluster, role, candidates.lost
        self._free = view_for(cluster, role.request).free_gpu_milli
        rows = candidates.rows(cluster)
        by_row = np.lexsort((candidates.parts.candidate, rows))
        by_row = by_row[rows[by_row] != NO_ROW]
        self._row = rows[by_row]
        self._candidate, _, self._milli, self._cpu, self._memory = (
            column[by_row] for column in candidates.parts
        )
        self._starts = np.searchsorted(self._row, np.arange(len(cluster.arrays.gpus) + 1)).tolist()
        self._largest = np.zeros(len(cluster.arrays.gpus), np.int64)
        np.maximum.at(self._largest, self._row, self._milli)

    def feasible_rows(self, first: int) -> list[tuple[float, int]] | None:
        """Return the rows where a worker could fit if all of the first candidates ended.

        Each row comes with a lower bound of the cost for one worker there, the cheapest row first.
        None: not all workers could fit then.
        """
        among = self._candidate < first
        workers, here = self._workers(among)
        slots = np.where(here, workers, worker_slots(self._cluster, self.role.request))
        if int(np.minimum(slots, self.role.max_per_node).sum()) < self.role.workers:
            return None
        at = among & (here & (workers > 0))[self._row]
        rows, least = self._lower_bounds(np.flatnonzero(at), self._free)
        return sorted(zip(least.tolist(), rows.tolist(), strict=True))

    def candidates_on(self, row: int, first: int) -> list[int]:
        """Return those of the first candidates that hold something there, the cheapest first."""
        return [of for of in self._candidate[self._on(row)].tolist() if of < first]

    def freed_on(self, row: int, chosen: Sequence[int]) -> list[int]:
        """Return the milli-GPU that each chosen candidate holds on the row; 0: none there."""
        on = self._on(row)
        here = dict(zip(self._candidate[on].tolist(), self._milli[on].tolist(), strict=True))
        return [here.get(of, 0) for of in chosen]

    def lower_bound(self, row: int, rest: Collection[int], cluster: Cluster) -> float:
        """Return a lower bound of the cost for one more worker on the row.

        The bound counts only the candidates in `rest` and uses the free GPUs of `cluster` as they
        are now.
        """
        on = self._on(row)
        parts = np.arange(on.start, on.stop)[np.isin(self._candidate[on], list(rest))]
        free = view_for(cluster, self.role.request).free_gpu_milli
        return float(self._lower_bounds(parts, free)[1][0])

    def cost(self, row: int, least: float) -> Cost:
        """Return a lower bound of the cost for one worker there, if `least` is lost at least."""
        missing = self.missing(row)
        if missing <= 0:
            return least, 0, 1
        most = int(self._largest[row])
        return least, missing, -(-missing // most)

    def missing(self, row: int) -> int:
        """Return the milli-GPU that one more worker lacks on the row."""
        return self.role.request.milli - int(self._free[row])

    def _on(self, row: int) -> slice:
        return slice(self._starts[row], self._starts[row + 1])

    def _workers(self, among: np.ndarray) -> tuple[IntArray, np.ndarray]:
        """Return by row how many workers fit if these parts were free, and which rows have some."""
        a, request, rows = self._cluster.arrays, self.role.request, self._row[among]
        workers = np.where(usable(self._cluster, request), self.role.max_per_node, 0)
        for requested, free, freed in (
            (request.milli, self._free, self._milli),
            (request.cpu, a.free_cpu, self._cpu),
            (request.memory, a.free_ram, self._memory),
        ):
            if requested:
                all_free = free + np.bincount(rows, freed[among], len(free)).astype(np.int64)
                workers = np.minimum(workers, all_free // requested)
        return workers, np.bincount(rows, minlength=len(workers)) > 0

    def _lower_bounds(self, parts: IntArray, free: IntArray) -> tuple[IntArray, FloatArray]:
        """Return rows, and for each a lower bound of the cost of the GPUs that a worker lacks.

        The candidates that lose least per GPU are taken first, and the last one in part. At least
        one job is taken.
        """
        lost, milli = self._lost[self._candidate[parts]], self._milli[parts]
        density = np.where(milli > 0, lost / np.maximum(milli, 1), np.inf)
        order = np.lexsort((milli, density, self._row[parts]))
        lost, milli, row = lost[order], milli[order], self._row[parts][order]
        rows, starts = np.unique(row, return_index=True)
        before = np.cumsum(milli) - milli
        before -= np.repeat(before[starts], np.diff([*starts, len(row)]))
        taken = np.clip(self.role.request.milli - free[row] - before, 0, milli)
        share = np.divide(lost * taken, milli, out=np.zeros(len(row)), where=milli > 0)
        if not len(rows):
            return rows, share
        total = np.add.reduceat(share, starts)
        return rows, np.maximum(total, np.minimum.reduceat(lost, starts))
