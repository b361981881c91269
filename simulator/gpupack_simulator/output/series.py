# SPDX-License-Identifier: Apache-2.0
"""Quantities over time. Between two instants nothing changes, so means are exact, not sampled."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from gpupack_placement import FloatArray
from gpupack_simulator.record import TimeUnit

BINS = 240
"""Maximum number of intervals that a plot can show."""


@dataclass(frozen=True, slots=True)
class Steps:
    """A step function: `values[i]` from `times[i]` until `times[i + 1]`, the last until `end`.

    `values` may have a second axis: several quantities that change at the same instants.
    """

    times: FloatArray
    values: FloatArray
    end: float

    @classmethod
    def of(cls, times: Sequence[float], values: Sequence[float] | FloatArray, end: float) -> Self:
        """Make a step function; of several values at the same instant the last one counts."""
        instants, states = np.asarray(times, float), np.asarray(values, float)
        kept = np.append(instants[1:] > instants[:-1], np.ones(min(len(instants), 1), bool))
        return cls(instants[kept], states[kept], max(end, float(instants.max(initial=end))))

    def __bool__(self) -> bool:
        return len(self.times) > 0

    @property
    def last(self) -> float | None:
        """Value at the end; None: unknown."""
        return float(self.values[-1]) if self else None

    def at(self, instants: FloatArray) -> FloatArray:
        """Return the values at these instants; NaN before the first and after the end."""
        rows = np.searchsorted(self.times, instants, side="right") - 1
        found = self.values[np.maximum(rows, 0)].copy()
        found[(rows < 0) | (instants > self.end)] = np.nan
        return found

    def integral(self, start: float, end: float) -> float:
        """Return the integral of value times time; before the first instant the value is 0."""
        lower, upper = self._area(np.array([start, end]))
        return float(upper - lower)

    def mean(self, start: float, end: float) -> float | None:
        """Return the mean over time; for an empty window the value there; None: unknown."""
        if not self:
            return None
        start, end = max(start, float(self.times[0])), min(end, self.end)
        if end <= start:
            return float(self.at(np.array([min(start, self.end)]))[0])
        return self.integral(start, end) / (end - start)

    def means(self, edges: FloatArray) -> FloatArray:
        """Return the mean between each two edges; NaN if a part is unknown."""
        areas = self._area(edges)
        widths = np.diff(edges).reshape(-1, *[1] * (areas.ndim - 1))
        means = np.diff(areas, axis=0) / widths
        slack = 1e-9 * max(abs(self.end), 1.0)
        unknown = (edges[:-1] < self.times[0] - slack) | (edges[1:] > self.end + slack)
        means[unknown] = np.nan
        return means

    def _area(self, instants: FloatArray) -> FloatArray:
        """Return the integral from the first instant to each of these, at most to the end."""
        bounded = np.clip(instants, self.times[0], self.end)
        rows = np.searchsorted(self.times, bounded, side="right") - 1
        widths = np.diff(self.times).reshape(-1, *[1] * (self.values.ndim - 1))
        done = np.cumsum(self.values[:-1] * widths, axis=0)
        done = np.concatenate([np.zeros((1, *self.values.shape[1:])), done])
        since = (bounded - self.times[rows]).reshape(-1, *[1] * (self.values.ndim - 1))
        areas: FloatArray = done[rows] + self.values[rows] * since
        return areas


def edges(unit: TimeUnit, end: float, bins: int = BINS) -> FloatArray:
    """Return the edges of intervals from 0 to `end`: whole steps if the run has few steps."""
    if end <= 0:
        return np.array([0.0, 1.0])
    if unit is TimeUnit.STEP and end <= bins:
        return np.append(np.arange(np.ceil(end)), end)
    return np.linspace(0.0, end, bins + 1)
