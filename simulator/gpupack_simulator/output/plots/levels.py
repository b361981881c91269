# SPDX-License-Identifier: Apache-2.0
"""Plots of allocation, fragmentation and the queue over the course of runs."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from gpupack_simulator.output.digest import Digest
from gpupack_simulator.output.plots.bands import draw_bands
from gpupack_simulator.output.plots.style import empty


def allocation(digests: Sequence[Digest]) -> Figure:
    """Draw the allocated GPU capacity over time, or over demand without a clock."""
    return draw_bands(
        digests,
        lambda digest: digest.allocation,
        label="allocated (% of GPU capacity)",
        top=100,
        missing="No samples: nothing is known of what was allocated.",
    )


def fragmentation(digests: Sequence[Digest]) -> Figure:
    """Draw the free capacity that is of no use (FGD's measure), over time or demand."""
    return draw_bands(
        digests,
        lambda digest: digest.fragmentation,
        label="fragmented (% of GPU capacity)",
        missing="Fragmentation was not sampled in these runs.",
    )


def queue(digests: Sequence[Digest]) -> Figure:
    """Draw the number of waiting jobs over time."""
    if digests and not any(one.figures.queue_longest for one in digests):
        return empty("No job ever waited.")
    return draw_bands(
        digests,
        lambda digest: digest.queue,
        label="waiting jobs",
        missing="No samples: nothing is known of the queue.",
    )
