# SPDX-License-Identifier: Apache-2.0
"""A vertical axis along which many nodes or GPUs stand grouped by kind of node."""

from collections.abc import Sequence

from matplotlib.axes import Axes

LEAST = 0.022
"""Kinds that are a smaller part of the axis than this have no room for a name."""


def kind_axis(axes: Axes, kinds: Sequence[tuple[str, int]]) -> None:
    """Names of the kinds at their middles, thin lines between them. With the rows of each kind."""
    whole, first = sum(rows for _, rows in kinds), 0
    ticks: list[tuple[float, str]] = []
    for name, rows in kinds:
        if first:
            axes.axhline(first, color="white", linewidth=0.6)
        if rows >= LEAST * whole:
            ticks.append((first + rows / 2, name))
        first += rows
    axes.set_yticks([place for place, _ in ticks], [name for _, name in ticks], fontsize=8)
