# SPDX-License-Identifier: Apache-2.0
"""What the command line asks of `collectives`."""

from dataclasses import dataclass
from pathlib import Path

from gpupack_workloads.settings import Options

OPERATIONS = (
    "all-reduce",
    "all-gather",
    "reduce-scatter",
    "broadcast",
    "all-to-all",
    "send-recv",
)
SMALLEST_BYTES = 8
LARGEST_BYTES = 16 * 2**30


@dataclass(frozen=True, kw_only=True)
class CollectivesOptions(Options):
    """Options of `collectives`; `size` is the largest buffer in bytes.

    Attributes:
        operations: which to run, of OPERATIONS.
        smallest: the first buffer in bytes; sizes double from there.
        plots: folder for figures, if any are wanted.
        tune: whether to try NCCL's settings against its defaults.
    """

    operations: tuple[str, ...] = OPERATIONS
    smallest: int = SMALLEST_BYTES
    plots: Path | None = None
    tune: bool = False
