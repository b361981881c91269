# SPDX-License-Identifier: Apache-2.0
"""Options of `collectives`."""

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
    "reduce",
    "gather",
    "scatter",
)
REDUCING = ("all-reduce", "reduce-scatter", "reduce")
DTYPES = (
    "float32",
    "float16",
    "bfloat16",
    "float64",
    "int8",
    "uint8",
    "int32",
    "int64",
)
REDUCE_OPS = ("sum", "prod", "min", "max", "avg")
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
        dtype: type of the elements, of DTYPES.
        reduce_op: what REDUCING operations do with them, of REDUCE_OPS.
        iterations: calls of a batch; None: by the size.
        warmup: calls before the first batch; None: what suits the device.
    """

    operations: tuple[str, ...] = OPERATIONS
    smallest: int = SMALLEST_BYTES
    plots: Path | None = None
    tune: bool = False
    dtype: str = "float32"
    reduce_op: str = "sum"
    iterations: int | None = None
    warmup: int | None = None

    @property
    def usual(self) -> bool:
        """Whether elements are what the small sums are made of."""
        return (self.dtype, self.reduce_op) == ("float32", "sum")
