# SPDX-License-Identifier: Apache-2.0
"""The common style of plots: sizes, a palette for colour-blind readers, one legend below.

Figures are made without pyplot, so nothing is kept between them and no window system is needed.
"""

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""The palette of Okabe and Ito without yellow, which is too pale for a line."""
DASHES: tuple[Any, ...] = ("-", (0, (6, 2)), (0, (2, 1.5)), (0, (7, 2, 1.5, 2)))
GREY = "#8c8c8c"
SEQUENTIAL = "cividis"
"""A colour map that looks the same to colour-blind readers."""
DPI = 130
THOUSAND = 1000
LETTERS = 130
"""Maximum number of letters on one line of a legend."""
WIDTH = 9.6
"""Width of a figure in inches."""
MIN_LABEL_HEIGHT = 0.022
"""Minimum fraction of the axis for the name of a kind."""


def new_figure(rows: int = 1, columns: int = 1, *, height: float) -> tuple[Figure, list[Axes]]:
    """Make a figure with its axes, row by row; `height` is in inches per row."""
    figure = Figure(figsize=(WIDTH, height * rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    return figure, list(grid.flat)


def tidy(axes: Axes, *, x: str, y: str, title: str = "") -> None:
    """Set labels, a faint grid below the data, and no frame at the top and the right."""
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.set_title(title, fontsize=11, loc="left")
    axes.grid(color="#e0e0e0", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.xaxis.set_major_formatter(_number)
    axes.yaxis.set_major_formatter(_number)


def _number(value: float, _place: float) -> str:
    """Format a tick with separators for thousands."""
    return f"{value:,.0f}" if abs(value) >= THOUSAND else f"{value:g}"


def line_style(number: int, lines: int) -> dict[str, Any]:
    """Return the style of line `number`: later ones are thinner, so that equal lines all show."""
    return {
        "color": PALETTE[number % len(PALETTE)],
        "linestyle": DASHES[number // len(PALETTE) if lines > len(PALETTE) else 0],
        "linewidth": 3.2 - 1.8 * number / max(lines - 1, 1),
    }


def legend_below(figure: Figure, axes: Axes) -> None:
    """Draw the legend below all axes, where it hides nothing."""
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        labels = [textwrap.fill(label, LETTERS // 2) for label in labels]
        longest = max(len(line) for label in labels for line in label.splitlines())
        width = max(1, min(len(handles), LETTERS // (longest + 8)))
        figure.legend(handles, labels, loc="outside lower center", ncols=width, frameon=False)


def empty(reason: str) -> Figure:
    """Make a figure that says why there is no plot."""
    figure, (axes,) = new_figure(height=1.2)
    axes.set_axis_off()
    axes.text(0.5, 0.5, reason, ha="center", va="center", fontsize=12, color="#555555", wrap=True)
    return figure


def save(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Save as PNG and SVG; the same figure gives the same bytes."""
    paths = [folder / f"{name}.png", folder / f"{name}.svg"]
    with rc_context({"svg.hashsalt": "gpupack"}):
        figure.savefig(paths[0], dpi=DPI, metadata={"Software": None})
        figure.savefig(paths[1], dpi=DPI, metadata={"Date": None})
    return paths


def policies_of(digests: Sequence[Any]) -> list[str]:
    """Return each policy once, in the order of the runs."""
    return list(dict.fromkeys(one.policy for one in digests))


def kind_axis(axes: Axes, kinds: Sequence[tuple[str, int]]) -> None:
    """Label the middle of each kind on the axis, with thin lines between; `kinds`: their rows."""
    whole, first = sum(rows for _, rows in kinds), 0
    ticks: list[tuple[float, str]] = []
    for name, rows in kinds:
        if first:
            axes.axhline(first, color="white", linewidth=0.6)
        if rows >= MIN_LABEL_HEIGHT * whole:
            ticks.append((first + rows / 2, name))
        first += rows
    axes.set_yticks([place for place, _ in ticks], [name for _, name in ticks], fontsize=8)
