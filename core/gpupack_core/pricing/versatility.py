# SPDX-License-Identifier: Apache-2.0
"""The price of a GPU while nothing is known of what will be asked for.

    price = 0.25 GPU · (distinct smaller memory sizes of the cluster's GPUs
                        + distinct smaller sizes of its NVLink cliques, none being the smallest)

Each request that a GPU of 24 GiB can serve one of 48 GiB can serve as well, and not the other way
round; the same holds of cliques. So of the kinds that are there the one that fewest could do with
goes first, as it would by a history in which each size had been asked for equally often. What is
known from the first outlook on takes its place (sought_kinds.py).

A step is a quarter of a GPU, so that even a tenth of a GPU feels it where nodes are told apart by
0.0234 GPU. Models have no order of their own: which of two with equal memory is sought is learned.
"""

import numpy as np

from gpupack_core.arrays import ABSENT, MIXED, Arrays, IntArray
from gpupack_core.fragmentation import UNIT
from gpupack_core.memo import RowMemo, Rows

STEP = 0.25
"""GPU."""
_PARTS = round(STEP * UNIT)


class Versatility:
    """Prices for whatever cluster; not thread-safe."""

    def __init__(self) -> None:
        self._cliques = RowMemo(np.int64, kept=1)

    def by_kind(self, view: Arrays) -> IntArray:
        """Of memory, by kind in parts, UNIT parts to a GPU, then 0 for MIXED and for ABSENT.

        Empty if all GPUs have as much. GPUs of nodes with several kinds neither have a price nor
        count.
        """
        kinds = view.kinds.values
        # MIXED and ABSENT, -2 and -1, come first
        there = np.bincount(view.node_kind - MIXED, minlength=len(kinds) - MIXED)[-MIXED:] > 0
        sizes = sorted({kinds[number].memory for number in there.nonzero()[0].tolist()})
        if len(sizes) <= 1:
            return np.zeros(0, np.int64)
        ranks = np.searchsorted(sizes, [kind.memory for kind in kinds])
        return np.array([*(ranks * _PARTS), 0, 0], np.int64)

    def by_clique(self, view: Arrays) -> IntArray:
        """Of cliques, by GPUs of a node's largest one; empty if those of all nodes are as large."""
        there = np.bincount(self.cliques(view)[view.gpus > 0], minlength=1)
        if np.count_nonzero(there) <= 1:
            return np.zeros(0, np.int64)
        ranks: IntArray = (there > 0).cumsum() - 1
        return ranks * _PARTS

    def cliques(self, view: Arrays) -> IntArray:
        """GPUs of the largest clique of each row, whatever their health; 0: none is joined."""
        return self._cliques.of("size", view.version, lambda rows: _largest(view, rows))


def _largest(view: Arrays, rows: Rows) -> IntArray:
    cliques = view.clique.T[:, rows]
    largest = np.zeros(cliques.shape[1], np.int64)
    for clique in range(int(cliques.max(initial=ABSENT)) + 1):
        np.maximum(largest, (cliques == clique).sum(axis=0), out=largest)
    return largest
