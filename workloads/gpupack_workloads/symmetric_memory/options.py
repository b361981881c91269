# SPDX-License-Identifier: Apache-2.0
"""Options of `symmetric-memory`."""

from dataclasses import dataclass

from gpupack_workloads.settings import Options

PARTS = ("one-sided", "matmul", "nvshmem")
SEND_RECV = "send-recv"
"""The way with which the others are compared."""
DTYPES = ("bfloat16", "float16")
SMALLEST_BYTES = 8
LARGEST_BYTES = 16 * 2**30
# A feed-forward layer's first product in a language model of 8 billion parameters (Llama 3).
DEPTH, COLUMNS = 4096, 14336
ROWS = tuple(512 << power for power in range(7))


@dataclass(frozen=True, kw_only=True)
class SymmetricMemoryOptions(Options):
    """Options of `symmetric-memory`; `size` is the largest put and get in bytes.

    Attributes:
        parts: what to do, of PARTS.
        rows: numbers of rows of the gathered matrix, all ranks' together; each is tried.
        depth: its columns, which the product sums over.
        columns: number of columns of the product, all ranks' together.
        dtype: type of the product on GPUs, of DTYPES.
    """

    parts: tuple[str, ...] = PARTS
    rows: tuple[int, ...] = ()
    depth: int | None = None
    columns: int | None = None
    dtype: str = "bfloat16"
