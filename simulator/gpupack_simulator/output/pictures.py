# SPDX-License-Identifier: Apache-2.0
"""Plots into files."""

from collections.abc import Sequence
from pathlib import Path

from gpupack_simulator.output.digest import Digest
from gpupack_simulator.output.plots.catalogue import Plot, plots
from gpupack_simulator.output.plots.style import save
from gpupack_simulator.output.report import Picture


def drawn(digests: Sequence[Digest], folder: Path) -> list[Picture]:
    """All plots, each as PNG and SVG."""
    folder.mkdir(parents=True, exist_ok=True)
    return [_picture(plot, folder) for plot in plots(digests)]


def _picture(plot: Plot, folder: Path) -> Picture:
    folder.mkdir(parents=True, exist_ok=True)
    png, svg = save(plot.draw(), folder, plot.name)
    return Picture(plot.title, plot.explanation, png.read_bytes(), svg.read_bytes())
