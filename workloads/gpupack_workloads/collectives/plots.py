# SPDX-License-Identifier: Apache-2.0
"""Draws the table: bus bandwidth and time over size.

matplotlib is imported when figures are wanted: the image has it not, nor has it a screen.
"""

import importlib
import importlib.util
import itertools
from pathlib import Path
from typing import Any

from gpupack_workloads.errors import BadArgument
from gpupack_workloads.folders import usable_folder
from gpupack_workloads.results import Result, Scalar

Row = dict[str, Scalar]
# Points of size and figure, by what they were measured of.
Lines = dict[str, list[tuple[float, float]]]


def require_plots(folder: Path) -> None:
    """Make sure, before any work, that figures can be drawn.

    Raises:
        BadArgument: matplotlib is missing, or nothing can be written to the folder.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise BadArgument("--plots needs matplotlib: install it, or draw the rows of --json")
    usable_folder(folder)


def plot(result: Result, folder: Path) -> None:
    """Write bus_bandwidth.png, time.png and, where there are any, small.png."""
    table = of_operations(result.rows)
    draw(curves(table, "bus_gb_per_s"), "bus bandwidth, GB/s", folder / "bus_bandwidth.png")
    draw(curves(table, "us"), "time, us", folder / "time.png", log=True)
    if small := of_methods(result.rows):
        draw(small, "time, us", folder / "small.png", log=True)


def of_operations(rows: list[Row]) -> list[Row]:
    """Return the rows that measure an operation at a size."""
    return [row for row in rows if "bus_gb_per_s" in row and "operation" in row]


def of_methods(rows: list[Row]) -> Lines:
    """Return what small sums took by each method, called and replayed."""
    small = [row for row in rows if "method" in row]
    replayed = {f"{name}, graph": line for name, line in curves(small, "graph_us").items()}
    return curves(small, "us") | replayed


def curves(rows: list[Row], figure: str) -> Lines:
    """Return points of size and figure for each line."""

    def line(row: Row) -> str:
        return str(row.get("method") or row["operation"]) + ", in place" * bool(row.get("in_place"))

    ordered = sorted(rows, key=line)
    return {
        name: [(float(row["size_bytes"]), float(row[figure])) for row in group]
        for name, group in itertools.groupby(ordered, key=line)
    }


def draw(lines: Lines, label: str, path: Path, *, log: bool = False) -> None:
    """Write one figure."""
    backend = importlib.import_module("matplotlib.backends.backend_agg")
    figure = importlib.import_module("matplotlib.figure").Figure(figsize=(9, 5.5))
    backend.FigureCanvasAgg(figure)
    panel(figure.add_subplot(), lines, label, log=log)
    figure.savefig(path, dpi=120, bbox_inches="tight")


def panel(axes: Any, lines: Lines, label: str, *, log: bool = False) -> None:
    """Draw lines over size."""
    for name, points in lines.items():
        axes.plot(*zip(*points, strict=True), marker=".", label=name)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log" if log else "linear")
    axes.set_xlabel("size, bytes")
    axes.set_ylabel(label)
    axes.grid(visible=True, alpha=0.3)
    axes.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1, 1))
