# SPDX-License-Identifier: Apache-2.0
"""The unbounded knapsack: the most valuable filling of a gap."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpupack_placement.arrays import FloatArray, IntArray

_NOTHING = -1
_GAIN = 1e-12
"""Minimum difference of worth that counts as more."""


@dataclass(frozen=True, slots=True)
class Filling:
    """The worth of each capacity, and the index of the size that comes first, or nothing."""

    worth: FloatArray
    first: IntArray

    def counts(self, sizes: Sequence[int]) -> tuple[int, ...]:
        """Return how many of each size fill the largest capacity."""
        counts, left = [0] * len(sizes), len(self.worth) - 1
        while left > 0:
            first = int(self.first[left])
            if first == _NOTHING:
                left -= 1
            else:
                counts[first] += 1
                left -= sizes[first]
        return tuple(counts)


def filled(sizes: Sequence[int], worths: Sequence[float], capacity: int) -> Filling:
    """Fill 0, 1, … up to the capacity; sizes ascending, both in the same unit.

    As many capacities as the smallest size are filled at once: none of them needs another.
    """
    each, value = np.array(sizes, np.int64), np.array(worths, np.float64)
    worth, first = np.zeros(capacity + 1), np.full(capacity + 1, _NOTHING, np.int64)
    step = sizes[0] if sizes else capacity + 1
    for begin in range(step, capacity + 1, step):
        rooms = np.arange(begin, min(begin + step, capacity + 1))
        left = rooms[:, None] - each
        totals = np.where(left >= 0, worth[np.maximum(left, 0)] + value, -np.inf)
        best = totals.argmax(axis=1)
        most = float(worth[begin - 1])
        for room, size in zip(rooms.tolist(), best.tolist(), strict=True):
            total = totals[room - begin, size]
            if total > most + _GAIN:
                most, first[room] = total, size
            worth[room] = most
    return Filling(worth, first)
