# SPDX-License-Identifier: Apache-2.0
"""Draws docs/workloads/collectives.svg from a report of `collectives`.

python benchmarks/collectives_figure.py
"""

import json
from pathlib import Path
from typing import Final

from matplotlib.figure import Figure
from pictures import svg

from gpupack_workloads.collectives.plots import Row, curves, of_methods, of_operations, panel

ROOT: Final = Path(__file__).resolve().parents[1]
REPORT: Final = ROOT / "docs" / "reports" / "workloads" / "collectives-4xh200.json"
PICTURE: Final = ROOT / "docs" / "workloads" / "collectives.svg"


def draw(rows: list[Row]) -> Figure:
    """Draw the bus bandwidth of every operation next to the times of small sums."""
    figure = Figure(figsize=(12, 4.5), layout="constrained")
    bandwidth, small = figure.subplots(1, 2)
    panel(bandwidth, curves(of_operations(rows), "bus_gb_per_s"), "bus bandwidth, GB/s")
    panel(small, of_methods(rows), "small all-reduce, us", log=True)
    return figure


def drawn(report: Path) -> str:
    """Return the picture of a report."""
    rows = json.loads(report.read_text())["result"]["rows"]
    return svg(draw(rows), "collectives")


def main() -> None:
    """Write the picture."""
    PICTURE.write_text(drawn(REPORT))


if __name__ == "__main__":
    main()
