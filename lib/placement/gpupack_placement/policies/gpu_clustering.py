# SPDX-License-Identifier: Apache-2.0
"""GPU clustering: work of one size on one node.

    score = base + floor(25 · (8000 - gpu_free) / 8000)
    base    75 if all holders of the node's GPUs are of the request's size
            50 if some are
            25 if there are no holders
             0 if all are of other sizes
    no GPU requested: score = 0

Sizes: a share, one GPU, two GPUs and so on; more than eight are one size. gpu_free: milli-GPU free
before placement, summed over the node's healthy devices; 8 GPUs are the largest node of openb.

Source: GpuClustering in the simulator of «Beware of Fragmentation: Scheduling GPU-Sharing Workloads
with Fragmentation Gradient Descent» (USENIX ATC '23), after «Gandiva» (OSDI '18).
"""

import numpy as np

from gpupack_placement.arrays import SIZES, Arrays, FloatArray, IntArray
from gpupack_placement.policies.best_fit import LARGEST_GPU_MILLI
from gpupack_placement.policies.policy import Policy
from gpupack_placement.request import Request


class GpuClustering(Policy):
    """Policy `gpu-clustering`."""

    name = "gpu-clustering"

    def score(self, view: Arrays, request: Request, rows: IntArray) -> FloatArray:
        """Score by the formula above."""
        if not request.milli:
            return np.zeros(len(rows))
        size = min(request.gpus or 0, SIZES - 1)
        sizes = (view.holders[rows] > 0).sum(axis=1)
        same = view.holders[rows, size] > 0
        base = np.where(same, np.where(sizes == 1, 75, 50), np.where(sizes == 0, 25, 0))
        used = LARGEST_GPU_MILLI - view.free_gpu_milli[rows]
        return (base + 25 * used // LARGEST_GPU_MILLI).astype(np.float64)
