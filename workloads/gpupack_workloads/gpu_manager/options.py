# SPDX-License-Identifier: Apache-2.0
"""Options of `gpu-manager`."""

from dataclasses import dataclass

from gpupack_workloads.settings import Options

LARGEST_SIZE = 16384
"""Rows and columns: the check of a larger product would not fit into what torch may take itself."""
MAX_TASKS = 100_000


@dataclass(frozen=True, kw_only=True)
class GpuManagerOptions(Options):
    """Options of `gpu-manager`; `size` is the rows and columns of the products that are timed.

    Attributes:
        tasks: timed on each GPU in a turn; None takes what suits the device.
    """

    tasks: int | None = None
