# SPDX-License-Identifier: Apache-2.0
"""Random: any node that fits, any device that fits; for comparison.

    score = mix64(mix64(seed + state) + order) / 2^64

mix64: the finalizer of splitmix64. order: the node's place in the cluster's fixed order. state: all
that is free in the cluster, as three sums, so that the draw is new whenever something is taken or
given back. No generator is kept: the same state gives the same decision in every process, and a
fork decides as its original would.

Source: Random in the simulator of «Beware of Fragmentation: Scheduling GPU-Sharing Workloads with
Fragmentation Gradient Descent» (USENIX ATC '23), which draws the node and the GPU of a share.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gpupack_placement.arrays import Arrays, FloatArray, IntArray
from gpupack_placement.policies.policy import Policy
from gpupack_placement.request import Request

_GOLDEN: Final = 0x9E3779B97F4A7C15
_MASK: Final = (1 << 64) - 1


class Random(Policy):
    """Policy `random`."""

    name = "random"

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed

    def score(self, view: Arrays, request: Request, rows: IntArray) -> FloatArray:
        """Score by the formula above."""
        del request
        return self._draw(view, view.order[rows]) / float(1 << 64)

    def share_column(self, view: Arrays, request: Request, row: int, columns: Sequence[int]) -> int:
        """Draw the column as nodes are drawn."""
        del request
        draws = self._draw(view, view.order[[row]] + len(view.order) * (1 + np.array(columns)))
        return columns[int(draws.argmax())]

    def _draw(self, view: Arrays, numbers: IntArray) -> NDArray[np.uint64]:
        sums = (view.free_cpu.sum(), view.free_gpu_milli.sum(), view.free_ram.sum())
        state = np.array([self._seed & _MASK], np.uint64)
        for part in sums:
            state = _mixed(state + np.array([int(part)], np.uint64))
        return _mixed(state + numbers.astype(np.uint64) * np.uint64(_GOLDEN))


def _mixed(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
