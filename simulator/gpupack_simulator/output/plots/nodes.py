# SPDX-License-Identifier: Apache-2.0
"""A heat map of nodes: the allocation of each over time, one panel per policy."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from gpupack_placement import FloatArray
from gpupack_simulator.output.digest import Digest
from gpupack_simulator.output.groups import NAMED, ordered, runs_of_kind
from gpupack_simulator.output.plots.style import SEQUENTIAL, empty, kind_axis, new_figure, tidy
from gpupack_simulator.output.units import UNITS
from gpupack_simulator.record import TimeUnit

COLUMNS = 3


def nodes(digests: Sequence[Digest]) -> Figure:
    """Draw the first run of each policy."""
    first = {d.policy: d for d in reversed(digests) if d.usage is not None}
    shown = [one for one in reversed(first.values()) if one.usage is not None]
    if not shown:
        return empty("How much of each node was allocated was not recorded in these runs.")
    few = min(len(one.usage.nodes) for one in shown if one.usage) <= NAMED
    columns = min(COLUMNS, len(shown))
    rows = -(-len(shown) // columns)
    figure, panels = new_figure(rows, columns, height=_height(shown, rows, few=few))
    images = [_panel(axes, one, few=few) for axes, one in zip(panels, shown, strict=False)]
    for number, axes in enumerate(panels[: len(shown)]):
        if number % columns:
            axes.set_yticklabels([])
    for spare in panels[len(shown) :]:
        spare.set_axis_off()
    figure.colorbar(
        images[0], ax=panels, label="allocated (% of the node's GPUs)", pad=0.01, aspect=40
    )
    return figure


def _height(shown: Sequence[Digest], rows: int, *, few: bool) -> float:
    named = max(len(one.usage.nodes) for one in shown if one.usage)
    wanted = 1.4 + 0.22 * named if few else 4.2
    return max(wanted, 2.2 if rows > 1 else 2.6)


def _panel(axes: Axes, digest: Digest, *, few: bool) -> AxesImage:
    usage = digest.usage
    if usage is None:
        raise ValueError(f"{digest.policy}: no usage was recorded")
    sequence = ordered(usage.nodes)
    place = {node.name: row for row, node in enumerate(usage.nodes)}
    image = axes.imshow(
        np.ma.masked_invalid(usage.percent[[place[node.name] for node in sequence]]),
        cmap=SEQUENTIAL,
        vmin=0,
        vmax=100,
        aspect="auto",
        interpolation="nearest" if few else "antialiased",
        extent=(usage.edges[0], usage.edges[-1], len(sequence), 0),
    )
    tidy(axes, x=UNITS[digest.unit].axis, y="", title=digest.policy)
    axes.grid(visible=False)
    axes.locator_params(axis="x", nbins=5)
    axes.set_xlim(left=usage.edges[_first_known(usage.percent)])
    if few:
        places = [row + 0.5 for row in range(len(sequence))]
        axes.set_yticks(places, [node.name for node in sequence], fontsize=8)
    else:
        kind_axis(axes, [(name, len(found)) for name, found in runs_of_kind(sequence)])
    if digest.unit is TimeUnit.ARRIVAL and len(usage.edges) == 2:  # noqa: PLR2004 - one interval
        axes.set_xticks([])
        axes.set_xlabel("at the end")
    return image


def _first_known(percent: FloatArray) -> int:
    """Return the first interval with a known value."""
    known = np.isfinite(percent).any(axis=0)
    return int(known.argmax())
