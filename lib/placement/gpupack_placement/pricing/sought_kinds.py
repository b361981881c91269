# SPDX-License-Identifier: Apache-2.0
"""The price of a GPU of a kind that some requests must have.

    price = 0.03 GPU · √(at most 1, pressure)                   if jobs come and go
          = 0.3 GPU · (pressure - 0.75) / 0.25, from 0 to 0.3   while nothing leaves
    pressure of a kind: GPUs requested by requests that not every kind would serve, spread evenly
    over the GPUs that would, for each of these GPUs. It assumes that as many GPUs are requested
    as there are.

Fragmentation counts such requests by their frequency: too little to protect the few suitable GPUs
from requests that fit anywhere. A higher price protects more of them, and sends the others to nodes
that large jobs wait for. In proportion to the pressure, without the root, the gain was a quarter
less.

While nothing leaves, a GPU that is given away is lost for the requests that must have it. In a
linear program that gives GPUs to requests by kind, the dual price of a kind is one GPU if these
requests exceed the supply, and 0 otherwise. The future demand is not known to the last GPU, so the
price begins before that point. It is less than a GPU, since keeping other requests off these nodes
packs the other nodes worse. Any price on kinds that do not run out was measured to cost openb's
gpuspec20 (pressures up to 0.72) 0.1 to 0.4 points.
"""

from collections.abc import Iterable, Sequence
from math import sqrt

import numpy as np

from gpupack_placement.arrays import MIXED, Arrays, IntArray, Kind
from gpupack_placement.demand_forecast import RequestMix
from gpupack_placement.fragmentation import UNIT, accepts
from gpupack_placement.request import Request

RATE = 0.03
SCARCE = 0.3
FROM_PRESSURE = 0.75


class SoughtKinds:
    """Prices under one mix, for any cluster; not thread-safe."""

    def __init__(self, mix: RequestMix) -> None:
        asked = sum(d.weight * d.request.milli for d in mix.demands)
        choosy = [d for d in mix.demands if _chooses(d.request)]
        self._demands = [(d.request, d.weight * d.request.milli / asked) for d in choosy]
        self._known: tuple[tuple[Kind, ...], tuple[int, ...]] = (), ()
        self._prices: IntArray = np.zeros(0, np.int64)
        self._while_filling: IntArray = np.zeros(0, np.int64)

    def prices(self, view: Arrays) -> IntArray:
        """Return the prices while jobs come and go.

        They are by kind in parts, UNIT to a GPU, then 0 for MIXED and ABSENT; empty if none can
        have a price. GPUs of nodes with several kinds neither have a price nor count.
        """
        self._meet(view)
        return self._prices

    def while_filling(self, view: Arrays) -> IntArray:
        """Return the prices while nothing leaves, in the form of `prices`."""
        self._meet(view)
        return self._while_filling

    def _meet(self, view: Arrays) -> None:
        if not self._demands:
            return
        kinds = tuple(view.kinds.values)
        # MIXED and ABSENT, -2 and -1, come first
        gpus = np.bincount(view.node_kind - MIXED, view.gpus, len(kinds) - MIXED)[-MIXED:]
        known = kinds, tuple(gpus.astype(np.int64).tolist())
        if self._known != known:
            pressures = self._pressures(*known)
            self._known = known
            self._prices = _table(RATE * sqrt(min(1.0, pressure)) for pressure in pressures)
            self._while_filling = _table(SCARCE * _scarcity(pressure) for pressure in pressures)

    def _pressures(self, kinds: Sequence[Kind], gpus: Sequence[int]) -> list[float]:
        there = [number for number, some in enumerate(gpus) if some]
        pressures = [0.0] * len(kinds)
        for request, share in self._demands:
            those = [number for number in there if accepts(request, kinds[number])]
            if len(those) == len(there):
                continue
            for number in those:
                pressures[number] += share * sum(gpus) / sum(gpus[one] for one in those)
        return pressures


def _scarcity(pressure: float) -> float:
    """Return 0 if there will be enough GPUs, 1 if the requests that need them will take all."""
    return min(max(pressure - FROM_PRESSURE, 0.0) / (1 - FROM_PRESSURE), 1.0)


def _table(prices: Iterable[float]) -> IntArray:
    return np.array([*(round(price * UNIT) for price in prices), 0, 0], np.int64)


def _chooses(request: Request) -> bool:
    """Tell whether some kinds may not serve the request."""
    memory = request.min_memory or (request.share and request.share.memory)
    return bool(request.milli and (request.models or memory))
