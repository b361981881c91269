# SPDX-License-Identifier: Apache-2.0
"""Equal intervals over which runs are averaged, so that they can be drawn together."""

import numpy as np

from gpupack_core import FloatArray
from gpupack_simulator.record import TimeUnit

BINS = 240
"""As many as a plot can show side by side."""


def edges(unit: TimeUnit, end: float, bins: int = BINS) -> FloatArray:
    """Of the intervals from 0 to `end`: whole steps where a run counts steps and they are few."""
    if end <= 0:
        return np.array([0.0, 1.0])
    if unit is TimeUnit.STEP and end <= bins:
        return np.append(np.arange(np.ceil(end)), end)
    return np.linspace(0.0, end, bins + 1)
