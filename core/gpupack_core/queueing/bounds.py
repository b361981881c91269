# SPDX-License-Identifier: Apache-2.0
"""What candidates could free at the most, and what room costs at the least, node by node.

Sums over columns of numbers: plans are made, and candidates looked at one by one, only where these
say that there is a chance.
"""

from collections.abc import Collection, Sequence

import numpy as np

from gpupack_core.arrays import FloatArray, IntArray
from gpupack_core.cluster import NO_ROW, Cluster
from gpupack_core.feasibility import usable, worker_slots
from gpupack_core.queueing.candidates import Candidates, Cost
from gpupack_core.request import Gang
from gpupack_core.serving import seen_for


class Bounds:
    """Of one gang in one cluster, which is not changed meanwhile."""

    def __init__(self, cluster: Cluster, gang: Gang, candidates: Candidates) -> None:
        self._cluster, self._gang, self._lost = cluster, gang, candidates.lost
        self._free = seen_for(cluster, gang.request).free_gpu_milli
        rows = candidates.rows(cluster)
        by_row = np.lexsort((candidates.parts.of, rows))
        by_row = by_row[rows[by_row] != NO_ROW]
        self._row = rows[by_row]
        self._of, _, self._milli, self._cpu, self._memory = (
            column[by_row] for column in candidates.parts
        )
        self._starts = np.searchsorted(self._row, np.arange(len(cluster.arrays.gpus) + 1)).tolist()
        self._largest = np.zeros(len(cluster.arrays.gpus), np.int64)
        np.maximum.at(self._largest, self._row, self._milli)

    def hopeful(self, first: int) -> list[tuple[float, int]]:
        """Rows where a worker could have room if all of the first candidates were gone.

        None, if there could not be room for all workers then. Each with what room costs there at
        the least, the cheapest first.
        """
        among = self._of < first
        workers, here = self._workers(among)
        slots = np.where(here, workers, worker_slots(self._cluster, self._gang.request))
        if int(np.minimum(slots, self._most).sum()) < self._gang.workers:
            return []
        at = among & (here & (workers > 0))[self._row]
        rows, least = self._least(np.flatnonzero(at), self._free)
        return sorted(zip(least.tolist(), rows.tolist(), strict=True))

    def on(self, row: int, first: int) -> list[int]:
        """Those of the first candidates who have something there, the cheapest first."""
        return [of for of in self._of[self._on(row)].tolist() if of < first]

    def frees(self, row: int, chosen: Sequence[int]) -> list[int]:
        """Milli-GPU of the node that each of them has, who all have something there."""
        on = self._on(row)
        here = dict(zip(self._of[on].tolist(), self._milli[on].tolist(), strict=True))
        return [here.get(of, 0) for of in chosen]

    def least(self, row: int, rest: Collection[int], cluster: Cluster) -> float:
        """What room for one more worker costs there, of the rest, in the cluster as it is now."""
        on = self._on(row)
        parts = np.arange(on.start, on.stop)[np.isin(self._of[on], list(rest))]
        free = seen_for(cluster, self._gang.request).free_gpu_milli
        return float(self._least(parts, free)[1][0])

    def cost(self, row: int, least: float) -> Cost:
        """What room for one worker costs there at the least, if so much is lost at the least."""
        missing = self.missing(row)
        if missing <= 0:
            return least, 0, 1
        most = int(self._largest[row])
        return least, missing, -(-missing // most)

    def missing(self, row: int) -> int:
        """Milli-GPU that one more worker lacks there."""
        return self._gang.request.milli - int(self._free[row])

    def _on(self, row: int) -> slice:
        return slice(self._starts[row], self._starts[row + 1])

    @property
    def _most(self) -> int:
        """Workers on one node."""
        return 1 if self._gang.spread.one_worker_per_node else self._gang.workers

    def _workers(self, among: np.ndarray) -> tuple[IntArray, np.ndarray]:
        """By row: how many workers at the most if these were gone, and whether any is there."""
        a, request, rows = self._cluster.arrays, self._gang.request, self._row[among]
        workers = np.where(usable(self._cluster, request), self._most, 0)
        for asked, free, freed in (
            (request.milli, self._free, self._milli),
            (request.cpu, a.free_cpu, self._cpu),
            (request.memory, a.free_ram, self._memory),
        ):
            if asked:
                all_free = free + np.bincount(rows, freed[among], len(free)).astype(np.int64)
                workers = np.minimum(workers, all_free // asked)
        return workers, np.bincount(rows, minlength=len(workers)) > 0

    def _least(self, parts: IntArray, free: IntArray) -> tuple[IntArray, FloatArray]:
        """By row: a lower bound of what the GPUs that one more worker lacks cost there.

        Those who lose least for a GPU are taken first, the last in part; and at least one job is.
        """
        lost, milli = self._lost[self._of[parts]], self._milli[parts]
        density = np.where(milli > 0, lost / np.maximum(milli, 1), np.inf)
        order = np.lexsort((milli, density, self._row[parts]))
        lost, milli, row = lost[order], milli[order], self._row[parts][order]
        rows, starts = np.unique(row, return_index=True)
        before = np.cumsum(milli) - milli
        before -= np.repeat(before[starts], np.diff([*starts, len(row)]))
        taken = np.clip(self._gang.request.milli - free[row] - before, 0, milli)
        share = np.divide(lost * taken, milli, out=np.zeros(len(row)), where=milli > 0)
        if not len(rows):
            return rows, share
        total = np.add.reduceat(share, starts)
        return rows, np.maximum(total, np.minimum.reduceat(lost, starts))
