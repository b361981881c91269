# SPDX-License-Identifier: Apache-2.0
"""FGD's measure of fragmentation: GPU capacity that is free and that the expected pods cannot use.

    F(node) = Σ_m w_m · F_m(node)      in milli-GPU, over the demands m of a mix, Σ w_m = 1
    F_m     = all that is free, where m does not fit or asks for no GPU; otherwise what is free on
              GPUs that m could not use: those with less free than m takes of each of its GPUs

m fits by CPU, by model and size of the GPUs, and by free GPU capacity; the node's memory does not
count. Source: «Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation
Gradient Descent» (USENIX ATC '23), section 3. A node with GPUs of several kinds, which the paper
has not, counts as several nodes that share their CPU.

What is free less F is useful. For a fixed mix that is a sum over GPUs: a demand for shares finds a
GPU useful or not whatever the others are, and one for n whole GPUs finds every idle GPU useful as
soon as n are idle. So two tables give it, however many demands there are:

    useful(node) = Σ_gpu shares[kind, level, free] + idle · 1000 · wholes[kind, level, idle]

free: milli-GPU free on the GPU; idle: how many are; level: how many of the distinct CPU figures of
the demands are no larger than the free CPU. Weights are whole numbers, so that two ways to add up
one state never differ: FGD rounds differences of F, and an error in the last digit would decide
between nodes.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gpupack_core.arrays import MIXED, Arrays, FloatArray, IntArray, Kind
from gpupack_core.memo import RowMemo, Rows
from gpupack_core.models import matches_model
from gpupack_core.outlook import Mix
from gpupack_core.request import Request
from gpupack_core.units import WHOLE_GPU

UNIT = 1 << 20
"""What the weights of a mix add up to, nearly: each is rounded."""

_STEPS = WHOLE_GPU + 1

Parts = NDArray[np.int64]
"""Milli-GPU times weight; `Fragmentation.total` of them are a milli-GPU."""


class Fragmentation:
    """F under one mix, for rows of any cluster; not thread-safe.

    `shares` and `wholes` have a line for each group of kinds and level; what a demand that takes
    milli of one GPU finds useful of a GPU stands in `shares`, by what is free there.
    """

    def __init__(self, mix: Mix) -> None:
        sum_ = sum(demand.weight for demand in mix.demands)
        demands = [(d.request, max(1, round(d.weight / sum_ * UNIT))) for d in mix.demands]
        self.total = sum(weight for _, weight in demands)
        self._demands = [(request, weight) for request, weight in demands if request.milli]
        self._cpus = np.array(sorted({request.cpu for request, _ in self._demands}), np.int64)
        self._most = max((request.gpus or 0 for request, _ in self._demands), default=0)
        self.shares: Parts = np.zeros((0, _STEPS), np.int64)
        self.wholes: Parts = np.zeros((0, self._most + 1), np.int64)
        self._groups: dict[tuple[bool, ...], int] = {}
        self._useful = RowMemo(np.int64, kept=1)
        self._kinds: tuple[Kind, ...] = ()
        self._group_of: IntArray = np.array([self._group(())])

    def of(self, view: Arrays) -> FloatArray:
        """F of each row in milli-GPU; 0 where there is no node."""
        wasted: FloatArray = view.free_gpu_milli - self.useful(view) / max(self.total, 1)
        return wasted

    def useful(self, view: Arrays) -> Parts:
        """What is free less F, of each row; the answer must not be changed."""
        compute = lambda rows: self.useful_with(view, rows, view.free_cpu[rows])  # noqa: E731
        return self._useful.of("useful", view.version, compute)

    def useful_with(self, view: Arrays, rows: Rows, cpu: IntArray) -> Parts:
        """As `useful`, were so many milli-CPU free."""
        line, idle = self.lines(view, rows, cpu), view.idle_gpus[rows]
        free = view.free_milli.T[:, rows]
        useful: Parts = self.at(line, free).sum(axis=0) + self.idle_useful(line, idle)
        mixed = np.flatnonzero(view.node_kind[rows] == MIXED)
        if len(mixed):
            groups = self._group_of[view.kind.T[:, rows][:, mixed]]
            useful[mixed] = self.useful_of(free[:, mixed], groups, cpu[mixed])
        return useful

    def lines(self, view: Arrays, rows: Rows, cpu: IntArray) -> IntArray:
        """The line of each row in the tables; of no account where GPUs are of several kinds."""
        self.meet(view.kinds.values)
        return self._group_of[view.node_kind[rows]] * self._levels + self.levels(cpu)

    def levels(self, cpu: IntArray) -> IntArray:
        """How many CPU figures of the demands so many milli-CPU suffice for."""
        return np.searchsorted(self._cpus, cpu, side="right")

    def at(self, line: IntArray, free: IntArray) -> Parts:
        """What demands for shares find useful of GPUs with so much free."""
        return self.shares.ravel().take(line * _STEPS + free)

    def idle_useful(self, line: IntArray, idle: IntArray) -> Parts:
        """What demands for whole GPUs find useful of so many idle ones."""
        useful: Parts = self.wholes[line, np.minimum(idle, self._most)] * idle * WHOLE_GPU
        return useful

    def useful_of(self, free: IntArray, groups: IntArray, cpu: IntArray) -> Parts:
        """Of nodes with GPUs of several kinds; `free` and `groups` by device and node."""
        level = self.levels(cpu)
        useful: Parts = self.at(groups * self._levels + level, free).sum(axis=0)
        for group in set(groups.ravel().tolist()):
            idle = ((free == WHOLE_GPU) & (groups == group)).sum(axis=0)
            useful += self.idle_useful(group * self._levels + level, idle)
        return useful

    def groups(self, kind: IntArray) -> IntArray:
        """Of devices: kinds that the same demands accept are one group."""
        return self._group_of[kind]

    def meet(self, kinds: Sequence[Kind]) -> None:
        """Make the tables for kinds of GPUs that were not seen before."""
        if self._kinds != (found := tuple(kinds)):
            groups = [self._group(self._accepting(kind)) for kind in found]
            nothing = self._group(())
            # ABSENT and MIXED are -1 and -2: from the end
            self._kinds, self._group_of = found, np.array([*groups, nothing, nothing])

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """Those met last."""
        return self._kinds

    @property
    def _levels(self) -> int:
        return len(self._cpus) + 1

    def _accepting(self, kind: Kind) -> tuple[bool, ...]:
        return tuple(accepts(request, kind) for request, _ in self._demands)

    def _group(self, accepting: tuple[bool, ...]) -> int:
        """The group's number; `accepting` empty: no demand accepts it, as where there is no GPU."""
        if accepting not in self._groups:
            self._groups[accepting] = len(self._groups)
            shares, wholes = self._lines_of(accepting)
            self.shares = np.concatenate([self.shares, shares])
            self.wholes = np.concatenate([self.wholes, wholes])
        return self._groups[accepting]

    def _lines_of(self, accepting: tuple[bool, ...]) -> tuple[Parts, Parts]:
        shares = np.zeros((self._levels, _STEPS), np.int64)
        wholes = np.zeros((self._levels, self._most + 1), np.int64)
        for (request, weight), accepted in zip(self._demands, accepting, strict=False):
            level = int(self.levels(np.array(request.cpu)))
            if accepted and request.share:
                shares[level, request.share.milli] += weight
            elif accepted:
                wholes[level, request.gpus] += weight
        running = [table.cumsum(axis=0).cumsum(axis=1) for table in (shares, wholes)]
        return running[0] * np.arange(_STEPS), running[1]


def accepts(request: Request, kind: Kind) -> bool:
    """Whether a GPU of this kind, were it idle, would do."""
    memory = max(request.min_memory, request.share.memory if request.share else 0)
    wanted = not request.models or any(matches_model(m, kind.model) for m in request.models)
    return wanted and kind.memory >= memory
