# SPDX-License-Identifier: Apache-2.0
"""FGD's measure of fragmentation: GPU capacity that is free and that the expected pods cannot use.

    F(node) = Σ_m w_m · F_m(node)      in milli-GPU, over the demands m of a mix, Σ w_m = 1
    F_m     = all free capacity if m does not fit or requests no GPU; otherwise the free capacity
              of GPUs that m could not use: those with less free than m takes of each of its GPUs

m fits by CPU, by model and size of the GPUs, and by free GPU capacity; the node's memory does not
count. Source: «Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation
Gradient Descent» (USENIX ATC '23), section 3. The paper has no GPUs of one node that some demand
distinguishes; here they count as GPUs of several nodes that share their CPU.

The free capacity less F is useful. For a fixed mix that is a sum over GPUs: a demand for shares
finds a GPU useful or not independently of the others, and one for n whole GPUs finds every idle GPU
useful as soon as n are idle. So two tables give it, however many demands there are:

    useful(node) = Σ_gpu shares[kind, level, free] + idle · 1000 · wholes[kind, level, idle]

free: milli-GPU free on the GPU; idle: number of idle GPUs; level: how many of the distinct CPU
figures of the demands, at most CPU_FIGURES, are no larger than the free CPU. Weights are whole
numbers, so that two ways to sum one state never differ: FGD rounds differences of F, and an error
in the last digit would decide between nodes.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gpupack_devices.models import matches_model
from gpupack_devices.units import WHOLE_GPU
from gpupack_placement.arrays import MIXED, Arrays, FloatArray, IntArray, Kind
from gpupack_placement.demand_forecast import RequestMix
from gpupack_placement.memo import RowMemo, Rows
from gpupack_placement.request import Request

UNIT = 1 << 20
"""Approximate sum of the weights of a mix; each weight is rounded."""

CPU_FIGURES = 256
"""Maximum number of distinct CPU figures of demands: each takes a line of 8 KiB for each kind of
GPU. If there are more, the rarest count as the next larger figure that is kept."""

_SPARE_GROUPS = 16
"""Number of unused groups of kinds above which all groups are forgotten."""

_STEPS = WHOLE_GPU + 1

Parts = NDArray[np.int64]
"""Milli-GPU times weight; `Fragmentation.total` parts are one milli-GPU."""


class Fragmentation:
    """F under one mix, for rows of any cluster; not thread-safe.

    The tables have a line for each group of kinds and level. A line of `_shares` gives the useful
    capacity of a GPU for demands for shares, by its free capacity. A line of `_wholes` gives the
    useful capacity of idle GPUs for demands for whole GPUs, by their number.
    """

    def __init__(self, mix: RequestMix) -> None:
        sum_ = sum(demand.weight for demand in mix.demands)
        demands = [(d.request, max(1, round(d.weight / sum_ * UNIT))) for d in mix.demands]
        self.total = sum(weight for _, weight in demands)
        self._demands = [(request, weight) for request, weight in demands if request.milli]
        self._cpus = _cpu_figures(self._demands)
        self._levels = len(self._cpus) + 1
        self._useful = RowMemo(np.int64, kept=1)
        self._kinds: tuple[Kind, ...]
        self._groups: dict[tuple[bool, ...], int]
        self._shares: Parts
        self._wholes: Parts
        self._first_line: IntArray
        self._clear(columns=8)

    @property
    def tables(self) -> tuple[IntArray, IntArray, Parts, Parts, int]:
        """The tables that `useful` sums.

        CPU figures, first line by kind, the tables for shares and for whole GPUs, and the number of
        figures in a line of the latter.
        """
        return self._cpus, self._first_line, self._shares, self._wholes, self._width

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds of GPUs of the last call of `meet`."""
        return self._kinds

    def of(self, view: Arrays) -> FloatArray:
        """Return F of each row in milli-GPU; 0 in rows without a node."""
        wasted: FloatArray = view.free_gpu_milli - self.useful(view) / max(self.total, 1)
        return wasted

    def useful(self, view: Arrays) -> Parts:
        """Return the free capacity less F of each row; the answer must not be changed."""
        self.extend_tables(view.kinds.values, view.shape[1])
        compute = lambda rows: self._useful_now(view, rows)  # noqa: E731
        return self._useful.of("useful", view.version, compute)

    def _useful_now(self, view: Arrays, rows: Rows) -> Parts:
        free, idle = view.free_milli.T[:, rows], view.idle_gpus[rows]
        return self.useful_with(view, rows, free=free, idle=idle, cpu=view.free_cpu[rows])

    def useful_with(
        self, view: Arrays, rows: Rows, *, free: IntArray, idle: IntArray, cpu: IntArray
    ) -> Parts:
        """Return `useful` of rows with this free capacity (by device and row).

        `meet` must have seen the kinds of their GPUs.
        """
        kind = view.node_kind[rows]
        line = self.lines(kind, self.levels(cpu))
        useful: Parts = self.by_free(line, free).sum(axis=0)
        useful += self.by_idle(line, idle)
        if len(mixed := (kind == MIXED).nonzero()[0]):
            groups = self.groups(view.kind.T[:, rows][:, mixed])
            useful[mixed] = self.useful_of(free[:, mixed], groups, cpu[mixed])
        return useful

    def useful_of(self, free: IntArray, groups: IntArray, cpu: IntArray) -> Parts:
        """Return `useful` of nodes with several kinds; `free` and `groups` by device and node."""
        level = self.levels(cpu)
        useful: Parts = self.by_free(groups * self._levels + level, free).sum(axis=0)
        for group in set(groups.ravel().tolist()):
            idle = ((free == WHOLE_GPU) & (groups == group)).sum(axis=0)
            useful += self.by_idle(group * self._levels + level, idle)
        return useful

    def levels(self, cpu: IntArray) -> IntArray:
        """Return how many of the demands' CPU figures this many milli-CPU cover."""
        return self._cpus.searchsorted(cpu, side="right")

    def lines(self, kind: IntArray, level: IntArray) -> IntArray:
        """Return the nodes' lines in the tables; meaningless if GPUs are of several kinds."""
        return self._first_line[kind] + level

    def groups(self, kind: IntArray) -> IntArray:
        """Return the groups of devices: kinds that the same demands accept are one group."""
        return self._first_line[kind] // self._levels

    def by_free(self, line: IntArray, free: IntArray) -> Parts:
        """Return the useful capacity of a GPU for demands for shares, by its free capacity."""
        return self._shares.take(line * _STEPS + free)

    def by_idle(self, line: IntArray, idle: IntArray) -> Parts:
        """Return the useful capacity of idle GPUs for demands for whole GPUs, by their number."""
        return self._wholes.take(line * self._width + idle)

    def extend_tables(self, kinds: Sequence[Kind], columns: int) -> None:
        """Extend the tables for new kinds of GPUs and for nodes with more GPUs."""
        if columns >= self._width or len(self._groups) > 2 * len(kinds) + _SPARE_GROUPS:
            self._clear(max(columns, self._width - 1))
        if self._kinds != (found := tuple(kinds)):
            groups = [
                self._group(tuple(accepts(r, kind) for r, _ in self._demands)) for kind in found
            ]
            # ABSENT is -1 and MIXED -2: they count from the end
            self._first_line = np.array([*groups, 0, 0]) * self._levels
            self._kinds = found

    def _clear(self, columns: int) -> None:
        self._width, self._kinds, self._groups = columns + 1, (), {}
        self._shares = self._wholes = np.zeros(0, np.int64)
        self._first_line = np.array([self._group(())] * 2)

    def _group(self, accepting: tuple[bool, ...]) -> int:
        """Return the group's number; 0 (empty `accepting`): no demand accepts it, or no GPU."""
        if accepting not in self._groups:
            self._groups[accepting] = len(self._groups)
            shares, wholes = self._lines_of(accepting)
            self._shares = np.append(self._shares, shares)
            self._wholes = np.append(self._wholes, wholes)
        return self._groups[accepting]

    def _lines_of(self, accepting: tuple[bool, ...]) -> tuple[Parts, Parts]:
        shares = np.zeros((self._levels, _STEPS), np.int64)
        wholes = np.zeros((self._levels, self._width), np.int64)
        for (request, weight), accepted in zip(self._demands, accepting, strict=False):
            level = int(self._cpus.searchsorted(request.cpu)) + 1
            if accepted and request.share:
                shares[level, request.share.milli] += weight
            elif accepted and (request.gpus or 0) < self._width:  # no node is useful for the others
                wholes[level, request.gpus] += weight
        shares, wholes = (t.cumsum(axis=0).cumsum(axis=1) for t in (shares, wholes))
        idle = np.arange(self._width) * WHOLE_GPU
        return shares * np.arange(_STEPS), wholes * idle


def _cpu_figures(demands: Sequence[tuple[Request, int]]) -> IntArray:
    """Return distinct milli-CPU, ascending: those with the largest weights, and the largest."""
    weights: dict[int, int] = {}
    for request, weight in demands:
        weights[request.cpu] = weights.get(request.cpu, 0) + weight
    largest = max(weights, default=0)
    weightiest = sorted(weights, key=lambda cpu: (cpu != largest, -weights[cpu], cpu))
    return np.array(sorted(weightiest[:CPU_FIGURES]), np.int64)


def accepts(request: Request, kind: Kind) -> bool:
    """Tell whether an idle GPU of this kind would serve the request."""
    memory = max(request.min_memory, request.share.memory if request.share else 0)
    wanted = not request.models or any(matches_model(m, *kind) for m in request.models)
    return wanted and kind.memory >= memory
