# SPDX-License-Identifier: Apache-2.0
"""Worst-fit: the node with the most left. It spreads work, for comparison and for few jobs.

    score = cpu_left + 100 · gpu_left

cpu_left: milli-CPU free after placement; gpu_left: milli-GPU free after placement, summed over
the node's healthy devices.

Source: WorstFit in the simulator of «Beware of Fragmentation: Scheduling GPU-Sharing Workloads
with Fragmentation Gradient Descent» (USENIX ATC '23).
"""

import numpy as np

from gpupack_placement.arrays import Arrays, FloatArray, IntArray
from gpupack_placement.policies.policy import Policy
from gpupack_placement.request import Request

GPU_WEIGHT = 100


class WorstFit(Policy):
    """Policy `worst-fit`."""

    name = "worst-fit"

    def score(self, view: Arrays, request: Request, rows: IntArray) -> FloatArray:
        """Score by the formula above."""
        cpu_left = view.free_cpu[rows] - request.cpu
        gpu_left = view.free_gpu_milli[rows].astype(np.int64) - request.milli
        return (cpu_left + GPU_WEIGHT * gpu_left).astype(np.float64)
