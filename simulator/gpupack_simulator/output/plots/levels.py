# SPDX-License-Identifier: Apache-2.0
"""Allocation, fragmentation and the queue over the course of runs."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from gpupack_simulator.output.digest import Digest
from gpupack_simulator.output.plots.bands import banded
from gpupack_simulator.output.plots.style import empty


def allocation(digests: Sequence[Digest]) -> Figure:
    """How much of the GPU capacity jobs hold, over time; over demand where there is no clock."""
    return banded(
        digests,
        lambda digest: digest.allocation,
        label="allocated (% of GPU capacity)",
        top=100,
        missing="No samples: nothing is known of what was allocated.",
    )


def fragmentation(digests: Sequence[Digest]) -> Figure:
    """How much is free and yet of no use (FGD's measure); as `allocation`."""
    return banded(
        digests,
        lambda digest: digest.fragmentation,
        label="fragmented (% of GPU capacity)",
        missing="Fragmentation was not sampled in these runs.",
    )


def queue(digests: Sequence[Digest]) -> Figure:
    """How many jobs wait, over time."""
    if digests and not any(one.figures.queue_longest for one in digests):
        return empty("No job ever waited.")
    return banded(
        digests,
        lambda digest: digest.queue,
        label="waiting jobs",
        missing="No samples: nothing is known of the queue.",
    )
