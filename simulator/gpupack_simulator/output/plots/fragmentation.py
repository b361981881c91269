# SPDX-License-Identifier: Apache-2.0
"""How much of the GPU capacity is free and yet of no use (FGD's measure)."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from gpupack_simulator.output.digest import Digest
from gpupack_simulator.output.plots.bands import banded


def fragmentation(digests: Sequence[Digest]) -> Figure:
    """Over time; over demand where there is no clock."""
    return banded(
        digests,
        lambda digest: digest.fragmentation,
        label="fragmented (% of GPU capacity)",
        missing="Fragmentation was not sampled in these runs.",
    )
