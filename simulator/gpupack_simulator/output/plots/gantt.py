# SPDX-License-Identifier: Apache-2.0
"""The plot of every GPU over time: its jobs, or its allocation if there are too many jobs."""

from collections.abc import Sequence
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from gpupack_placement import WHOLE_GPU
from gpupack_simulator.output.digest import Digest
from gpupack_simulator.output.groups import runs_of_kind
from gpupack_simulator.output.plots.style import (
    GREY,
    PALETTE,
    SEQUENTIAL,
    WIDTH,
    empty,
    kind_axis,
    new_figure,
    tidy,
)
from gpupack_simulator.output.plots.waits import TITLES
from gpupack_simulator.output.tenancy import Bar, Tenancy
from gpupack_simulator.output.units import UNITS

ROW = 0.24
"""Height of a GPU's row in inches."""
GAP = 0.08
"""Fraction of a row that is left free between GPUs."""
LETTER = 0.085
"""Width of a letter in inches."""
LEGEND_COLUMNS = 6
WHITE_BELOW = 0.5
"""Brightness of colours below which letters are white."""


def gantt(digests: Sequence[Digest]) -> Figure:
    """Draw the first run with a record of holders."""
    tenancy = next((one.tenancy for one in digests if one.tenancy is not None), None)
    if tenancy is None:
        return empty("Who held which GPU was not recorded in these runs.")
    return _bars(tenancy) if tenancy.percent is None else _raster(tenancy)


class _Group(NamedTuple):
    """Bars of one colour, with their title in the legend."""

    title: str
    colour: str
    bars: list[Bar]


def _bars(tenancy: Tenancy) -> Figure:
    rows = sum(len(node.devices) for node in tenancy.nodes)
    figure, (axes,) = new_figure(height=max(2.2, 1.3 + ROW * rows))
    groups = _groups(tenancy.bars)
    for group in groups:
        axes.add_collection(
            PolyCollection(
                [_box(bar) for bar in group.bars],
                facecolors=group.colour,
                edgecolors="white",
                linewidths=0.7,
            )
        )
    for row, start, end in tenancy.outages:
        axes.broken_barh(
            [(start, end - start)],
            (row + GAP / 2, 1 - GAP),
            facecolor="#dddddd",
            edgecolor=GREY,
            hatch="////",
            linewidth=0,
        )
    for group in groups:
        _names_in_bars(axes, group, tenancy.ended or 1.0)
    _gpu_axis(axes, tenancy, rows)
    handles = [Patch(facecolor=group.colour, label=group.title) for group in groups]
    handles += [
        Patch(facecolor="#dddddd", edgecolor=GREY, hatch="////", label="out of order")
    ] * bool(tenancy.outages)
    if handles:
        width = min(LEGEND_COLUMNS, len(handles))
        figure.legend(handles=handles, loc="outside lower center", ncols=width, frameon=False)
    return figure


def _groups(bars: Sequence[Bar]) -> list[_Group]:
    """Group bars by job if there are enough colours, else by size."""
    jobs = sorted({bar.job for bar in bars})
    if len(jobs) <= len(PALETTE):
        colours = zip(jobs, PALETTE, strict=False)
        return [_Group(job, colour, [b for b in bars if b.job == job]) for job, colour in colours]
    groups = [
        _Group(title, colour, [bar for bar in bars if bar.size is size])
        for (size, title), colour in zip(TITLES.items(), PALETTE, strict=False)
    ]
    return [group for group in groups if group.bars]


def _box(bar: Bar) -> list[tuple[float, float]]:
    low, high = _span(bar)
    return [(bar.start, low), (bar.end, low), (bar.end, high), (bar.start, high)]


def _span(bar: Bar) -> tuple[float, float]:
    """Return the span in the row of the bar's GPU, as high as the part of the GPU that it holds."""
    low = bar.row + GAP / 2 + (1 - GAP) * bar.lane / WHOLE_GPU
    return low, low + (1 - GAP) * bar.milli / WHOLE_GPU


def _names_in_bars(axes: Axes, group: _Group, ended: float) -> None:
    """Write names in the bars that are large enough."""
    per_inch = ended / (WIDTH - 1.8)
    for bar in group.bars:
        low, high = _span(bar)
        roomy = (bar.end - bar.start) / per_inch > LETTER * len(bar.job) + 0.08
        if roomy and bar.milli * 2 >= WHOLE_GPU:
            axes.text(
                (bar.start + bar.end) / 2,
                (low + high) / 2,
                bar.job,
                ha="center",
                va="center_baseline",
                fontsize=8,
                color="white" if _brightness(group.colour) < WHITE_BELOW else "black",
            )


def _brightness(colour: str) -> float:
    red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return 0.299 * red + 0.587 * green + 0.114 * blue


def _gpu_axis(axes: Axes, tenancy: Tenancy, rows: int) -> None:
    """Draw one tick per GPU, the node's name at its first, and lines between nodes."""
    tidy(axes, x=UNITS[tenancy.unit].axis, y="")
    axes.grid(axis="y", visible=False)
    labels, first = [], 0
    for node in tenancy.nodes:
        labels += [
            f"{node.name}  GPU {device.index}" if not n else f"GPU {device.index}"
            for n, device in enumerate(node.devices)
        ]
        axes.axhline(first, color="#444444", linewidth=0.8)
        first += len(node.devices)
    axes.set_yticks([row + 0.5 for row in range(rows)], labels, fontsize=8)
    axes.set_ylim(rows, 0)
    axes.set_xlim(0, tenancy.ended or 1.0)


def _raster(tenancy: Tenancy) -> Figure:
    percent = tenancy.percent
    if percent is None:
        return empty("Nothing was held.")
    figure, (axes,) = new_figure(height=7.4)
    shown = axes.imshow(
        percent,
        cmap=SEQUENTIAL,
        vmin=0,
        vmax=100,
        aspect="auto",
        extent=(tenancy.edges[0], tenancy.edges[-1], len(percent) * tenancy.gpus_per_row, 0),
    )
    per_row = "one row a GPU" if tenancy.gpus_per_row == 1 else f"{tenancy.gpus_per_row} GPUs a row"
    tidy(axes, x=UNITS[tenancy.unit].axis, y=f"GPUs, by kind of node ({per_row})")
    axes.grid(visible=False)
    kinds = runs_of_kind(tenancy.nodes)
    kind_axis(axes, [(name, sum(len(node.devices) for node in nodes)) for name, nodes in kinds])
    figure.colorbar(shown, ax=axes, label="allocated (%)", pad=0.01, aspect=40)
    return figure
