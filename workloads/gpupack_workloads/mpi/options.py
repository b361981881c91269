# SPDX-License-Identifier: Apache-2.0
"""Options of `mpi`."""

from dataclasses import dataclass

from gpupack_workloads.settings import Options

SMALLEST_BYTES = 8
LARGEST_BYTES = 2**30
SMALLEST_GRID = 8
LARGEST_GRID = 32768
MAX_SWEEPS = 100_000


@dataclass(frozen=True, kw_only=True)
class MpiOptions(Options):
    """Options of `mpi`; `size` is the bytes of the largest message.

    Attributes:
        grid: rows and columns of the stencil's grid; None takes what suits the device.
        sweeps: over that grid.
    """

    grid: int | None = None
    sweeps: int = 50
