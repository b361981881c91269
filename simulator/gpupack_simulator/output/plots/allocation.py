# SPDX-License-Identifier: Apache-2.0
"""How much of the GPU capacity jobs hold."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from gpupack_simulator.output.digest import Digest
from gpupack_simulator.output.plots.bands import banded


def allocation(digests: Sequence[Digest]) -> Figure:
    """Over time; over demand where there is no clock."""
    return banded(
        digests,
        lambda digest: digest.allocation,
        label="allocated (% of GPU capacity)",
        top=100,
        missing="No samples: nothing is known of what was allocated.",
    )
