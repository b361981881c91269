# SPDX-License-Identifier: Apache-2.0
"""Fragmentation gradient descent: the node whose fragmentation grows least, or shrinks most.

    score = floor(100 · sigmoid((F before - F after) / 1000))

F: fragmentation.py, in milli-GPU, under the typical pods: the most frequent kinds of request that
make up 95 % of all, including those that request no GPU; the node's memory is left out. A share
goes to the GPU of the node that gives the best score, the first among equals. The whole-number
score is part of the policy, and so is the rule that ties go to the first node of a fixed order:
without them openb fills to 92.9 and 90.0 % of its GPUs instead of 95.2 %.

While the mix is unknown, the policy is best-fit.

Source: «Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient
Descent» (USENIX ATC '23) and its simulator, hkust-adsl/kubernetes-scheduler-simulator.
"""

from collections.abc import Sequence
from dataclasses import replace
from threading import Lock

import numpy as np

from gpupack_devices.units import NO_MEMORY, WHOLE_GPU
from gpupack_placement.arrays import MIXED, Arrays, BoolArray, FloatArray, IntArray
from gpupack_placement.demand_forecast import DemandForecast, RequestMix
from gpupack_placement.fragmentation import Fragmentation, Parts
from gpupack_placement.memo import RowMemo, Rows
from gpupack_placement.policies.best_fit import BestFit
from gpupack_placement.policies.fitting import accepted, first_idle, fits_share, kind_of_score
from gpupack_placement.policies.policy import Policy
from gpupack_placement.request import Request

_UNINFORMED = BestFit()
_NEVER = np.iinfo(np.int64).min // 4
"""The gain of an impossible placement."""


class Fgd(Policy):
    """Policy `fgd`. `informed` returns a new object with its own memos."""

    name = "fgd"

    def __init__(self, mix: RequestMix | None = None) -> None:
        self._mix = mix or RequestMix()
        self.fragmentation = Fragmentation(self._mix)
        self.thresholds = _thresholds(self.fragmentation.total)
        self._scores = RowMemo(np.int8)
        self._lock = Lock()

    def informed(self, forecast: DemandForecast) -> "Fgd":
        """Return the policy with the typical pods of the forecast; its tables are ready."""
        typical = typical_pods(forecast.mix)
        if typical == self._mix:
            return self
        informed = Fgd(typical)
        informed.fragmentation.extend_tables(self.fragmentation.kinds, columns=0)
        return informed

    def score(self, view: Arrays, request: Request, rows: IntArray) -> FloatArray:
        """Score by the formula above."""
        if not self.fragmentation.total:
            return _UNINFORMED.score(view, request, rows)
        kind = kind_of_score(request)
        compute = lambda some: self._rounded(self._gains(view, request, some).max(axis=0))  # noqa: E731
        with self._lock:
            return self._scores.of(kind, view.version, compute, rows)[rows].astype(np.float64)

    def share_column(self, view: Arrays, request: Request, row: int, columns: Sequence[int]) -> int:
        """Return the first device with the best score."""
        if len(columns) == 1:
            return columns[0]
        if not self.fragmentation.total:
            return _UNINFORMED.share_column(view, request, row, columns)
        with self._lock:
            gains = self._gains(view, request, np.array([row]))[list(columns), 0]
        return columns[int(self._rounded(gains).argmax())]

    def _rounded(self, gain: Parts) -> IntArray:
        """Return the score of a gain: how many steps it reaches."""
        return self.thresholds.searchsorted(gain, side="right")

    def _gains(self, view: Arrays, request: Request, rows: Rows) -> Parts:
        """Return F before less F after: for a share by device and row, otherwise one line of rows.

        The result is meaningless if the request does not fit.
        """
        measure, kind = self.fragmentation, view.node_kind[rows]
        before = measure.useful(view)[rows]
        line = measure.lines(kind, measure.levels(view.free_cpu[rows] - request.cpu))
        free, idle = view.free_milli.T[:, rows], view.idle_gpus[rows]
        shares, gpus = measure.by_free(line, free), request.gpus or int(request.share is not None)
        gains: Parts = shares.sum(axis=0)
        gains += measure.total * request.milli - before
        fewer = measure.by_idle(line, np.maximum(idle - gpus, 0))
        if request.share is None:
            gains += fewer - gpus * measure.by_free(line, np.array(WHOLE_GPU))
            gains = gains[None]
        else:
            same = measure.by_idle(line, idle)
            gains = gains + same - shares + measure.by_free(line, free - request.share.milli)
            gains += (free == WHOLE_GPU) * (fewer - same)
            gains[~fits_share(view, request.share, rows)] = _NEVER
        if len(mixed := (kind == MIXED).nonzero()[0]):
            gains[:, mixed] = self._gains_of_mixed(view, request, _some(rows, mixed))
        return gains

    def _gains_of_mixed(self, view: Arrays, request: Request, rows: IntArray) -> Parts:
        """Return `_gains` of nodes with GPUs of several kinds, which are rare, state by state.

        Whole GPUs are assumed to be the first that fit; devices.py makes the real choice.
        """
        free, fits = view.free_milli.T[:, rows], accepted(view, request, rows)
        if request.share is None:
            taken = [first_idle(fits, free, request.gpus or 0)]
            return self._gains_of_states(view, rows, request, free, taken)
        alone = np.eye(len(free), dtype=np.bool_)[:, :, None]
        gains = self._gains_of_states(view, rows, request, free, list(alone))
        return np.where(fits & fits_share(view, request.share, rows), gains, _NEVER)

    def _gains_of_states(
        self,
        view: Arrays,
        rows: IntArray,
        request: Request,
        free: IntArray,
        taken: list[BoolArray],
    ) -> Parts:
        """Return one line for each way to take devices."""
        measure = self.fragmentation
        base = measure.total * request.milli - measure.useful(view)[rows]
        groups, cpu = measure.groups(view.kind.T[:, rows]), view.free_cpu[rows] - request.cpu
        each = request.share.milli if request.share else WHOLE_GPU
        left = [np.maximum(free - each * devices, 0) for devices in taken]
        return np.array([base + measure.useful_of(state, groups, cpu) for state in left])


def _thresholds(total: int) -> Parts:
    """Return the smallest gains, milli-GPU times weight, that score 1, 2, … 99."""
    score = np.arange(1, 100)
    least: Parts = np.ceil(np.log(score / (100 - score)) * WHOLE_GPU * total).astype(np.int64)
    return least


def typical_pods(mix: RequestMix) -> RequestMix:
    """Return the kinds that make up 95 % of the pods, distinguished as fragmentation does."""
    return RequestMix.of(
        (replace(d.request, memory=NO_MEMORY), d.weight) for d in mix.demands
    ).typical()


def _some(rows: Rows, places: IntArray) -> IntArray:
    """Return the rows at these places."""
    return places if isinstance(rows, slice) else rows[places]
