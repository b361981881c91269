# SPDX-License-Identifier: Apache-2.0
"""The plot of fairness over time: Jain's index in each window, one line for each run."""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from gpupack_simulator.output.fairness import Fairness
from gpupack_simulator.output.plots.style import (
    empty,
    legend_below,
    line_style,
    new_figure,
    tidy,
)
from gpupack_simulator.output.units import Unit


def fairness_over_time(by_name: Mapping[str, Fairness], unit: Unit) -> Figure:
    """Draw Jain's index; windows without an index are gaps in the line."""
    if all(one.mean is None for one in by_name.values()):
        return empty("At no time did two tenants ask for GPUs: there is nothing to be fair about.")
    figure, (axes,) = new_figure(height=3.6)
    for number, (name, one) in enumerate(by_name.items()):
        # Each window's value is drawn from its start to its end.
        values = np.append(one.index, one.index[-1:])
        axes.step(one.edges, values, where="post", label=name, **line_style(number, len(by_name)))
    tidy(axes, x=unit.axis, y="Jain's index (1: fair)")
    axes.set_ylim(0, 1.03)
    axes.set_xlim(min(one.edges[0] for one in by_name.values()), None)
    legend_below(figure, axes)
    return figure
