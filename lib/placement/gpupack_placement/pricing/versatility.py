# SPDX-License-Identifier: Apache-2.0
"""The price of a GPU while nothing is known of the future requests.

    price = 0.25 GPU · (distinct smaller memory sizes of the cluster's GPUs
                        + distinct smaller sizes of its NVLink cliques, none being the smallest)

A GPU of 48 GiB can serve each request that one of 24 GiB can serve, and not the other way round;
the same holds for cliques. So among the kinds in the cluster the one that the fewest requests could
use goes first, as it would with a history in which each size was requested equally often. From the
first forecast on, sought_kinds.py takes its place.

A step is a quarter of a GPU, so that it counts even for a tenth of a GPU where nodes are
distinguished by 0.0234 GPU. Models have no order of their own: which of two with equal memory is in
demand is learned.
"""

import numpy as np

from gpupack_placement.arrays import ABSENT, MIXED, Arrays, IntArray
from gpupack_placement.fragmentation import UNIT
from gpupack_placement.memo import RowMemo, Rows

STEP = 0.25
"""Step of the price in GPUs."""
_PARTS = round(STEP * UNIT)


class Versatility:
    """Prices for any cluster; not thread-safe."""

    def __init__(self) -> None:
        self._cliques = RowMemo(np.int64, kept=1)

    def by_kind(self, view: Arrays) -> IntArray:
        """Return the prices of memory, by kind in parts, UNIT parts to a GPU.

        After the kinds follows 0 for MIXED and for ABSENT. The result is empty if all GPUs have
        equal memory. GPUs of nodes with several kinds neither have a price nor count.
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
        """Return the prices of cliques, by GPUs of a node's largest clique.

        The result is empty if the largest cliques of all nodes have equal size.
        """
        there = np.bincount(self.cliques(view)[view.gpus > 0], minlength=1)
        if np.count_nonzero(there) <= 1:
            return np.zeros(0, np.int64)
        ranks: IntArray = (there > 0).cumsum() - 1
        return ranks * _PARTS

    def cliques(self, view: Arrays) -> IntArray:
        """Return the GPUs of each row's largest clique, in any health; 0: no GPU is linked."""
        return self._cliques.of("size", view.version, lambda rows: _largest(view, rows))


def _largest(view: Arrays, rows: Rows) -> IntArray:
    cliques = view.clique.T[:, rows]
    largest = np.zeros(cliques.shape[1], np.int64)
    for clique in range(int(cliques.max(initial=ABSENT)) + 1):
        np.maximum(largest, (cliques == clique).sum(axis=0), out=largest)
    return largest
