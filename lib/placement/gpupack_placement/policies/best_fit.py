# SPDX-License-Identifier: Apache-2.0
"""Best-fit: the node with the least left.

    score = floor(100 · (1 - ½·cpu_left / 128000 - ½·gpu_left / 8000))

cpu_left: milli-CPU free after placement; gpu_left: milli-GPU free after placement, summed over the
node's healthy devices. 128 cores and 8 GPUs are the largest node of the openb cluster. The
whole-number score is part of the policy: nodes within one point tie.

Source: BestFit in the comparison of «Beware of Fragmentation: Scheduling GPU-Sharing Workloads with
Fragmentation Gradient Descent» (USENIX ATC '23).
"""

import numpy as np

from gpupack_placement.arrays import Arrays, FloatArray, IntArray
from gpupack_placement.policies.policy import Policy
from gpupack_placement.request import Request

LARGEST_CPU_MILLI = 128_000
LARGEST_GPU_MILLI = 8_000


class BestFit(Policy):
    """Policy `best-fit`."""

    name = "best-fit"

    def score(self, view: Arrays, request: Request, rows: IntArray) -> FloatArray:
        """Score by the formula above."""
        cpu_left = (view.free_cpu[rows] - request.cpu) / LARGEST_CPU_MILLI
        gpu_left = (view.free_gpu_milli[rows] - request.milli) / LARGEST_GPU_MILLI
        score: FloatArray = np.floor(100.0 * (1.0 - 0.5 * cpu_left - 0.5 * gpu_left))
        return score
