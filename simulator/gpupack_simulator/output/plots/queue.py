# SPDX-License-Identifier: Apache-2.0
"""How many jobs wait."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from gpupack_simulator.output.digest import Digest
from gpupack_simulator.output.plots.bands import banded
from gpupack_simulator.output.plots.style import empty


def queue(digests: Sequence[Digest]) -> Figure:
    """Over time."""
    if digests and not any(one.figures.queue_longest for one in digests):
        return empty("No job ever waited.")
    return banded(
        digests,
        lambda digest: digest.queue,
        label="waiting jobs",
        missing="No samples: nothing is known of the queue.",
    )
