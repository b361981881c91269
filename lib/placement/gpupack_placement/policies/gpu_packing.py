# SPDX-License-Identifier: Apache-2.0
"""GPU packing: GPUs in use before idle ones, nodes in use before idle ones.

    a share on a GPU in use              score = max(50, 100 - floor(free / 100))
    else, on a node with a GPU in use    score = max(33, 50 - idle GPUs that it takes)
    else                                 score = max(n, 33 - n)
    no GPU requested                     score = 0

free: milli-GPU free before placement on the fullest GPU with room for the share, which the share
gets; n: GPUs of the node. A GPU that is not healthy counts as in use.

Source: GpuPacking in the simulator of «Beware of Fragmentation: Scheduling GPU-Sharing Workloads
with Fragmentation Gradient Descent» (USENIX ATC '23), after «MLaaS in the Wild» (NSDI '22).
"""

import numpy as np

from gpupack_devices.units import WHOLE_GPU
from gpupack_placement.arrays import Arrays, FloatArray, IntArray
from gpupack_placement.policies.fitting import fits_share
from gpupack_placement.policies.policy import Policy
from gpupack_placement.request import Request


class GpuPacking(Policy):
    """Policy `gpu-packing`."""

    name = "gpu-packing"

    def score(self, view: Arrays, request: Request, rows: IntArray) -> FloatArray:
        """Score by the formula above."""
        if not request.milli:
            return np.zeros(len(rows))
        idle_node = np.maximum(view.gpus[rows], 33 - view.gpus[rows])
        used_node = np.full(len(rows), max(33, 50 - (request.gpus or 1)))
        if request.share is not None:
            free = fullest_with_room(view, request, rows)
            used_node = np.where(free < WHOLE_GPU, np.maximum(50, 100 - free // 100), used_node)
        all_idle = view.idle_gpus[rows] == view.gpus[rows]
        return np.where(all_idle, idle_node, used_node).astype(np.float64)


def fullest_with_room(view: Arrays, request: Request, rows: IntArray) -> IntArray:
    """Return the free milli-GPU of the fullest GPU with room for the share; 1000 if there is none.

    The caller chooses rows by model: if a node has GPUs of several kinds, the fullest may be one
    that the request does not accept.
    """
    free, share = view.free_milli.T[:, rows], request.share
    if share is None:
        return np.full(len(rows), WHOLE_GPU)
    room = fits_share(view, share, rows)
    fullest: IntArray = np.where(room, free, WHOLE_GPU).min(axis=0, initial=WHOLE_GPU)
    return fullest
