# SPDX-License-Identifier: Apache-2.0
"""The plot of capacity that no job used, by cause."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from gpupack_simulator.output.digest import Digest
from gpupack_simulator.output.plots.style import (
    GREY,
    PALETTE,
    empty,
    legend_below,
    new_figure,
    policies_of,
    tidy,
)
from gpupack_simulator.record import Cause

WORDS = {
    Cause.FRAGMENTED: "too little left on one node",
    Cause.STRANDED: "CPU or memory of the node used up",
    Cause.WRONG_KIND: "of a kind that no job waits for",
    Cause.HELD_BACK: "fits a waiting job that is held back",
    Cause.NO_DEMAND: "no job waits",
    Cause.FAILED: "out of order",
    Cause.KILLED_WORK: "work lost with a GPU",
    Cause.MOVED: "work lost by moves",
    Cause.DRAINED: "work lost for maintenance",
}
COLOURS = dict(
    zip(WORDS, (*PALETTE[:4], "#d0d0d0", GREY, "#000000", "#5a5a5a", "#808080"), strict=True)
)
HATCHES = {Cause.FAILED: "////"}


def wasted(digests: Sequence[Digest]) -> Figure:
    """Draw one bar per policy: mean over seeds."""
    drawn = [one for one in digests if one.figures.waste.gpu_time]
    if not drawn:
        return empty("The causes of free capacity were not sampled in these runs.")
    policies = policies_of(drawn)
    figure, (axes,) = new_figure(height=1.6 + 0.36 * len(policies))
    left = np.zeros(len(policies))
    for cause, words in WORDS.items():
        width = np.array([_mean(drawn, policy, cause) for policy in policies])
        if width.any():
            axes.barh(
                range(len(policies)),
                width,
                left=left,
                label=words,
                color=COLOURS[cause],
                hatch=HATCHES.get(cause),
                edgecolor="white",
                linewidth=0.7,
                height=0.7,
            )
            left += width
    for row, total in enumerate(left):
        axes.annotate(f" {total:.1f}%", (total, row), va="center", fontsize=9)
    tidy(axes, x="not used (% of all GPU capacity)", y="")
    axes.grid(axis="y", visible=False)
    axes.set_yticks(range(len(policies)), policies)
    axes.invert_yaxis()
    axes.margins(x=0.1)
    axes.set_xlim(left=0)
    legend_below(figure, axes)
    return figure


def _mean(digests: Sequence[Digest], policy: str, cause: Cause) -> float:
    of_policy = [d.figures.waste.percent(cause) for d in digests if d.policy == policy]
    return float(np.mean(of_policy))
