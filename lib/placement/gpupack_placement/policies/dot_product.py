# SPDX-License-Identifier: Apache-2.0
"""Dot-product: the node whose free resources are least like the request.

    score = floor(100 · (1 - (cpu_free · cpu_asked / 128000² + gpu_free · gpu_asked / 8000²) / 2))

cpu: milli-CPU; gpu: milli-GPU, free before placement, summed over the node's healthy devices. 128
cores and 8 GPUs are the largest node of the openb cluster. Tetris gives work to the node with the
largest dot product. The published comparison reverses the sign, so that work is packed; this policy
does the same.

Source: «Multi-Resource Packing for Cluster Schedulers» (Tetris, SIGCOMM '14), as DotProd in the
simulator of «Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient
Descent» (USENIX ATC '23), GPUs merged into one dimension, normalised by the largest node.
"""

import numpy as np

from gpupack_placement.arrays import Arrays, FloatArray, IntArray
from gpupack_placement.policies.best_fit import LARGEST_CPU_MILLI, LARGEST_GPU_MILLI
from gpupack_placement.policies.policy import Policy
from gpupack_placement.request import Request


class DotProduct(Policy):
    """Policy `dot-product`."""

    name = "dot-product"

    def score(self, view: Arrays, request: Request, rows: IntArray) -> FloatArray:
        """Score by the formula above."""
        cpu = view.free_cpu[rows] / LARGEST_CPU_MILLI * (request.cpu / LARGEST_CPU_MILLI)
        gpu = view.free_gpu_milli[rows] / LARGEST_GPU_MILLI * (request.milli / LARGEST_GPU_MILLI)
        score: FloatArray = np.floor(100.0 * (1.0 - (cpu + gpu) / 2))
        return score
