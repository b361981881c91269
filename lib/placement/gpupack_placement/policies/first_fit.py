# SPDX-License-Identifier: Apache-2.0
"""First-fit: score = 0. All nodes tie, so the first in the cluster's fixed order wins."""

import numpy as np

from gpupack_placement.arrays import Arrays, FloatArray, IntArray
from gpupack_placement.policies.policy import Policy
from gpupack_placement.request import Request


class FirstFit(Policy):
    """Policy `first-fit`."""

    name = "first-fit"

    def score(self, view: Arrays, request: Request, rows: IntArray) -> FloatArray:
        """Score by the formula above."""
        del view, request
        return np.zeros(len(rows))
