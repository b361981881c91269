# SPDX-License-Identifier: Apache-2.0
"""The LP: one GPU's worth of supply, and how much of each demand it serves.

    max   Σ_m size_m · x_m + y              GPU capacity that is served
    s.t.  Σ_p z_p + y ≤ 1                   GPUs: cut by a pattern p, or given whole
          x_m ≤ Σ_p count_pm · z_p          shares of size m go where patterns have slots
          0 ≤ x_m ≤ demand_m, 0 ≤ y ≤ whole, 0 ≤ z_p

A pattern is a set of shares that fits on one GPU. There are too many to list, so patterns are added
while the slot prices show that one would pay: the knapsack finds it (column generation, Gilmore and
Gomory 1961). The duals are prices: of a slot for a share of each size, and of a GPU.

The LP leaves out CPU and memory. Summed over all nodes of a kind they bind on none of the openb
workloads, and an LP by node classes gives the same prices. GPUs are wasted where CPU lacks within
one node, and no LP over sums sees that.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpupack_placement.arrays import FloatArray
from gpupack_placement.errors import NoPrices
from gpupack_placement.pricing.knapsack import filled

SECONDS = 30.0
"""Time limit of HiGHS in seconds, over all solutions of one program; some milliseconds are usual.
It is wall-clock time and far above what is needed: otherwise decisions would depend on the
machine's load."""
ROUNDS = 500
"""Maximum number of patterns that are added; some tens are usual."""
_PAYS = 1e-9


@dataclass(frozen=True, slots=True)
class Stock:
    """Demand for one GPU's worth of supply.

    Sizes are ascending; `capacity` is the size of a whole GPU.
    """

    sizes: tuple[int, ...]
    demand: tuple[float, ...]
    """Requested shares, by size."""
    whole: float
    """Requested whole GPUs."""
    capacity: int


def prices(stock: Stock, scales: Sequence[float]) -> tuple[FloatArray, float]:
    """Return the prices of a slot by size and of a GPU, in GPUs.

    They are means over the demand multiplied by each of the scales.

    Raises:
        NoPrices: there is no solver, or it found no prices in time.
    """
    program = _Program(stock)
    slots, gpus = zip(*(program.solve(scale) for scale in scales), strict=True)
    return np.mean(slots, axis=0), float(np.mean(gpus))


class _Program:
    """An LP that keeps its patterns between scales. Row 0: GPUs; row 1 + m: slots of size m."""

    def __init__(self, stock: Stock) -> None:
        self._stock, self._patterns = stock, set[tuple[int, ...]]()
        self._solver = _solver()
        self._solver.addRow(-np.inf, 1.0, 0, _ints(), _floats())
        for row, size in enumerate(stock.sizes, start=1):
            self._solver.addRow(-np.inf, 0.0, 0, _ints(), _floats())
            self._solver.addCol(size / stock.capacity, 0.0, 0.0, 1, _ints(row), _floats(1.0))
        self._solver.addCol(1.0, 0.0, 0.0, 1, _ints(0), _floats(1.0))
        for m, size in enumerate(stock.sizes):
            alone = [0] * len(stock.sizes)
            alone[m] = stock.capacity // size
            self._add(tuple(alone))

    def solve(self, scale: float) -> tuple[FloatArray, float]:
        """Return the prices of slots and of a GPU for the demand multiplied by the scale."""
        for column, most in enumerate((*self._stock.demand, self._stock.whole)):
            self._solver.changeColBounds(column, 0.0, scale * most)
        for _ in range(ROUNDS):
            gpu, *slots = self._duals()
            best = filled(self._stock.sizes, slots, self._stock.capacity)
            if best.worth[-1] <= gpu + _PAYS or not self._add(best.counts(self._stock.sizes)):
                return np.array(slots), gpu
        raise NoPrices(f"no prices after {ROUNDS} patterns")

    def _duals(self) -> list[float]:
        self._solver.run()
        status = self._solver.modelStatusToString(self._solver.getModelStatus())
        if status != "Optimal":
            raise NoPrices(f"HiGHS found no prices in {SECONDS:g} s: {status}")
        return [float(dual) for dual in self._solver.getSolution().row_dual]

    def _add(self, counts: tuple[int, ...]) -> bool:
        """Add a pattern; return False if it exists already."""
        if counts in self._patterns:
            return False
        self._patterns.add(counts)
        used = [(1 + m, -float(count)) for m, count in enumerate(counts) if count]
        rows, values = zip((0, 1.0), *used, strict=True)
        self._solver.addCol(0.0, 0.0, np.inf, len(rows), _ints(*rows), _floats(*values))
        return True


def _solver() -> Any:
    try:
        import highspy  # noqa: PLC0415  (other policies need no solver)
    except ImportError as absent:
        raise NoPrices("highspy is not installed; install gpupack-placement[pricing]") from absent
    solver = highspy.Highs()  # type: ignore[no-untyped-call]
    for option, value in (("output_flag", False), ("threads", 1), ("time_limit", SECONDS)):
        solver.setOptionValue(option, value)
    solver.changeObjectiveSense(highspy.ObjSense.kMaximize)
    return solver


def _ints(*values: int) -> Any:
    return np.array(values, np.int32)


def _floats(*values: float) -> Any:
    return np.array(values, np.float64)
