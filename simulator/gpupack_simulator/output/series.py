# SPDX-License-Identifier: Apache-2.0
"""Quantities over time. Between two instants nothing changes, so means are exact, not sampled."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from gpupack_core import FloatArray
from gpupack_simulator.record import TimeUnit

BINS = 240
"""As many as a plot can show side by side."""


@dataclass(frozen=True, slots=True)
class Steps:
    """Holds `values[i]` from `times[i]` until `times[i + 1]`, the last one until `end`.

    `values` may have a second axis: several quantities that change at the same instants.
    """

    times: FloatArray
    values: FloatArray
    end: float

    @classmethod
    def of(cls, times: Sequence[float], values: Sequence[float] | FloatArray, end: float) -> Self:
        """Of several values at the same instant the last one counts."""
        instants, states = np.asarray(times, float), np.asarray(values, float)
        kept = np.append(instants[1:] > instants[:-1], np.ones(min(len(instants), 1), bool))
        return cls(instants[kept], states[kept], max(end, float(instants.max(initial=end))))

    def __bool__(self) -> bool:
        return len(self.times) > 0

    @property
    def last(self) -> float | None:
        """The value at the end; None: nothing is known."""
        return float(self.values[-1]) if self else None

    def at(self, instants: FloatArray) -> FloatArray:
        """The values in force at these instants; NaN before the first and after the end."""
        rows = np.searchsorted(self.times, instants, side="right") - 1
        found = self.values[np.maximum(rows, 0)].copy()
        found[(rows < 0) | (instants > self.end)] = np.nan
        return found

    def integral(self, start: float, end: float) -> float:
        """Value times time; nothing before the first instant."""
        lower, upper = self._area(np.array([start, end]))
        return float(upper - lower)

    def mean(self, start: float, end: float) -> float | None:
        """Over time; in a window without length the value in force there. None: nothing known."""
        if not self:
            return None
        start, end = max(start, float(self.times[0])), min(end, self.end)
        if end <= start:
            return float(self.at(np.array([min(start, self.end)]))[0])
        return self.integral(start, end) / (end - start)

    def means(self, edges: FloatArray) -> FloatArray:
        """The mean between each two edges; NaN where some of it is not known."""
        areas = self._area(edges)
        widths = np.diff(edges).reshape(-1, *[1] * (areas.ndim - 1))
        means = np.diff(areas, axis=0) / widths
        slack = 1e-9 * max(abs(self.end), 1.0)
        unknown = (edges[:-1] < self.times[0] - slack) | (edges[1:] > self.end + slack)
        means[unknown] = np.nan
        return means

    def _area(self, instants: FloatArray) -> FloatArray:
        """The integral from the first instant to each of these, at most to the end."""
        bounded = np.clip(instants, self.times[0], self.end)
        rows = np.searchsorted(self.times, bounded, side="right") - 1
        widths = np.diff(self.times).reshape(-1, *[1] * (self.values.ndim - 1))
        done = np.cumsum(self.values[:-1] * widths, axis=0)
        done = np.concatenate([np.zeros((1, *self.values.shape[1:])), done])
        since = (bounded - self.times[rows]).reshape(-1, *[1] * (self.values.ndim - 1))
        areas: FloatArray = done[rows] + self.values[rows] * since
        return areas


def edges(unit: TimeUnit, end: float, bins: int = BINS) -> FloatArray:
    """Of the intervals from 0 to `end`: whole steps where a run counts steps and they are few."""
    if end <= 0:
        return np.array([0.0, 1.0])
    if unit is TimeUnit.STEP and end <= bins:
        return np.append(np.arange(np.ceil(end)), end)
    return np.linspace(0.0, end, bins + 1)
