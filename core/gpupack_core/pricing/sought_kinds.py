# SPDX-License-Identifier: Apache-2.0
"""The price of a GPU of a kind that some requests must have.

    price = 0.03 GPU · √pressure
    pressure of a kind: GPUs asked for by those that not every kind would do for, spread evenly over
    the GPUs that would do, for each of these GPUs; at most 1. It is taken that as many GPUs are
    asked for as there are.

Fragmentation counts such requests by how frequent they are: too little to keep the few GPUs that
will do from others who could go anywhere. A higher price keeps more of them, and sends the others
to nodes that large jobs wait for. In proportion to the pressure, without the root, it gained a
quarter less.
"""

from collections.abc import Sequence
from math import sqrt

import numpy as np

from gpupack_core.arrays import MIXED, Arrays, IntArray, Kind
from gpupack_core.fragmentation import UNIT, accepts
from gpupack_core.outlook import Mix
from gpupack_core.request import Request

RATE = 0.03


class SoughtKinds:
    """Prices under one mix, for whatever cluster; not thread-safe."""

    def __init__(self, mix: Mix) -> None:
        asked = sum(d.weight * d.request.milli for d in mix.demands)
        choosy = [d for d in mix.demands if _chooses(d.request)]
        self._demands = [(d.request, d.weight * d.request.milli / asked) for d in choosy]
        self._known: tuple[tuple[Kind, ...], tuple[int, ...]] = (), ()
        self._prices: IntArray = np.zeros(0, np.int64)

    def prices(self, view: Arrays) -> IntArray:
        """By kind in parts, UNIT parts to a GPU, then 0 for MIXED and for ABSENT.

        Empty if none can have a price. GPUs of nodes with several kinds neither have one nor count.
        """
        if not self._demands:
            return self._prices
        kinds = tuple(view.kinds.values)
        # MIXED and ABSENT, -2 and -1, come first
        gpus = np.bincount(view.node_kind - MIXED, view.gpus, len(kinds) - MIXED)[-MIXED:]
        known = kinds, tuple(gpus.astype(np.int64).tolist())
        if self._known != known:
            pressures = self._pressures(*known)
            prices = [round(RATE * sqrt(min(1.0, pressure)) * UNIT) for pressure in pressures]
            self._known, self._prices = known, np.array([*prices, 0, 0], np.int64)
        return self._prices

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


def _chooses(request: Request) -> bool:
    """Whether there may be kinds that would not do."""
    memory = request.min_memory or (request.share and request.share.memory)
    return bool(request.milli and (request.models or memory))
