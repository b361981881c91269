# SPDX-License-Identifier: Apache-2.0
"""Draws docs/packing-frontier.svg from the table below it in docs/packing.md.

python benchmarks/frontier.py
"""

from pathlib import Path
from typing import Final

from matplotlib.figure import Figure
from pictures import svg

DOCUMENT: Final = Path("docs/packing.md")
PICTURE: Final = Path("docs/packing-frontier.svg")
THETA, FILLING, DROPPING = 1, 2, 7
"""Columns of the table."""

Point = tuple[str, float, float]
"""θ or FGD; allocation filled to 130 %; allocation at load 1.0, losing what does not fit."""


def points(document: str) -> dict[str, list[Point]]:
    """Return the points by workload."""
    table = document.partition("<!-- frontier -->")[2].partition("<!-- end of frontier -->")[0]
    found: dict[str, list[Point]] = {}
    for line in table.strip().splitlines()[2:]:
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        filled = float(cells[FILLING].split("/")[1])
        point = cells[THETA], filled, float(cells[DROPPING])
        found.setdefault(cells[0], []).append(point)
    return found


def draw(found: dict[str, list[Point]]) -> Figure:
    """Draw one panel for each workload: up and to the right is better."""
    figure = Figure(figsize=(4.5 * len(found), 3.6), layout="constrained")
    panels = figure.subplots(1, len(found), squeeze=False)[0]
    for axes, (workload, of) in zip(panels, found.items(), strict=True):
        *ours, (_, *fgd) = of
        thetas, filled, dropping = zip(*ours, strict=True)
        axes.plot(filled, dropping, "o-", label="bid-price, θ fixed")
        axes.plot(*([value] for value in fgd), "s", label="fgd")
        axes.plot(filled[0], dropping[-1], "*", markersize=14, label="bid-price, θ by churn")
        for theta, x, y in zip(thetas, filled, dropping, strict=True):
            axes.annotate(f" {theta}", (x, y))
        axes.set(title=workload, xlabel="filling to 130 %: allocated, %")
    panels[0].set_ylabel("jobs come and go, load 1.0: allocated, %")
    panels[0].legend(fontsize="small")
    return figure


def drawn(document: str) -> str:
    """Return the picture of a document's table."""
    return svg(draw(points(document)), "frontier")


def main() -> None:
    """Write the picture."""
    PICTURE.write_text(drawn(DOCUMENT.read_text()))


if __name__ == "__main__":
    main()
