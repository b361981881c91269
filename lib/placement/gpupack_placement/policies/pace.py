# SPDX-License-Identifier: Apache-2.0
"""Pace: the slowest GPU of a gang sets its pace, so fast GPUs are not mixed with slow ones.

    score = 2 · v_k - v_n
    no whole GPU requested: score = 0

v_i: speed of the node's i-th fastest idle GPU that the request could use, in per mille of the
median of its model; k: GPUs requested; n: number of these idle GPUs. v_k is the pace that the
request would have there. v_n is the pace of a gang that takes all of them: a node with a slow GPU
is worth less to requests that need all of it, so smaller work goes there, and to its fast GPUs.

The policy is meant as one term of several, `default+pace`: alone it packs nothing. Within a node it
chooses the fastest GPUs, unless that takes more NVLink cliques.

Source: ours. Figures: docs/acceptance.md.
"""

from threading import Lock

import numpy as np

from gpupack_devices.units import WHOLE_GPU
from gpupack_placement.arrays import MIXED, Arrays, FloatArray, IntArray
from gpupack_placement.memo import RowMemo, Rows
from gpupack_placement.policies.fitting import accepted
from gpupack_placement.policies.policy import Policy
from gpupack_placement.request import Request


class Pace(Policy):
    """Policy `pace`."""

    name = "pace"
    prefers_fastest = True

    def __init__(self) -> None:
        self._scores = RowMemo(np.int64)
        self._lock = Lock()

    def score(self, view: Arrays, request: Request, rows: IntArray) -> FloatArray:
        """Score by the formula above."""
        if not request.gpus:
            return np.zeros(len(rows))
        kind = request.gpus, request.models, request.min_memory
        with self._lock:
            scores = self._scores.of(
                kind, view.version, lambda some: _scores(view, request, some), rows
            )
        return scores[rows].astype(np.float64)


def _scores(view: Arrays, request: Request, rows: Rows) -> IntArray:
    usable = view.free_milli.T[:, rows] == WHOLE_GPU
    if (view.node_kind[rows] == MIXED).any():
        usable &= accepted(view, request, rows)
    fastest_first = -np.sort(-(view.speed.T[:, rows] * usable), axis=0)
    number, every = usable.sum(axis=0), np.arange(usable.shape[1])
    own = fastest_first[min(request.gpus or 1, len(usable)) - 1]
    slowest = fastest_first[np.maximum(number, 1) - 1, every]
    scores: IntArray = 2 * own.astype(np.int64) - slowest
    return scores
