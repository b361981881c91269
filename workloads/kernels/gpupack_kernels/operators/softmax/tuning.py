# SPDX-License-Identifier: Apache-2.0
"""How rows of a length are computed, per device, from measurements: nothing is tried out in a job.

The table is by direction, bytes per element and columns, rounded up to a power of two. It is the
H200's with Triton 3.9; other devices take it as well, which is right everywhere and may be slower.
"""

from dataclasses import dataclass
from typing import Literal

from gpupack_kernels.rows import INTERPRETED_BLOCK, block_of

Direction = Literal["forward", "backward"]


@dataclass(frozen=True)
class Rows:
    """Whole rows in registers; `rows` is how many a program takes at once."""

    warps: int
    rows: int = 1


@dataclass(frozen=True)
class Chunks:
    """A row in unrolled chunks, read again from the cache.

    Attributes:
        chunk: columns of a chunk.
        looks: how often forward reads a row, 2 or 3.
    """

    warps: int
    chunk: int
    looks: int = 2


@dataclass(frozen=True)
class Passes:
    """Rows of any length, read twice in chunks."""

    warps: int
    chunk: int
    stages: int


Plan = Rows | Chunks | Passes

LONGEST_IN_ONE_PASS = 32768
LONGER = Passes(warps=8, chunk=4096, stages=3)

H200: dict[tuple[Direction, int], dict[int, Plan]] = {
    ("forward", 4): {
        1024: Chunks(warps=1, chunk=1024),
        2048: Chunks(warps=4, chunk=2048),
        4096: Chunks(warps=8, chunk=2048),
        8192: Chunks(warps=16, chunk=4096),
        16384: Chunks(warps=16, chunk=4096),
        32768: Chunks(warps=16, chunk=8192),
    },
    ("forward", 2): {
        1024: Chunks(warps=1, chunk=1024),
        2048: Chunks(warps=4, chunk=1024),
        4096: Chunks(warps=8, chunk=2048),
        8192: Chunks(warps=8, chunk=4096),
        16384: Chunks(warps=8, chunk=4096),
        32768: Chunks(warps=32, chunk=8192, looks=3),
    },
    ("backward", 4): {
        1024: Rows(warps=2),
        2048: Rows(warps=2),
        4096: Rows(warps=8),
        8192: Rows(warps=16),
        16384: Chunks(warps=32, chunk=8192),
        32768: Chunks(warps=32, chunk=32768),
    },
    ("backward", 2): {
        1024: Rows(warps=2),
        2048: Rows(warps=2),
        4096: Chunks(warps=16, chunk=4096),
        8192: Rows(warps=16),
        16384: Chunks(warps=32, chunk=8192),
        32768: Chunks(warps=32, chunk=32768),
    },
}


def choose_plan(direction: Direction, *, columns: int, element_bytes: int) -> Plan:
    """Return how rows of a length are computed on a GPU."""
    if columns > LONGEST_IN_ONE_PASS:
        return LONGER
    block = block_of(columns)
    return H200[direction, element_bytes].get(block, usual_rows(block))


def interpreted_plan(columns: int) -> Plan:
    """Return how rows are computed without a GPU: several at a time, in few steps."""
    if columns > LONGEST_IN_ONE_PASS:
        return Passes(warps=1, chunk=INTERPRETED_BLOCK, stages=1)
    return Rows(warps=1, rows=max(1, INTERPRETED_BLOCK // block_of(columns)))


def usual_rows(block: int) -> Rows:
    """Return one warp per 1024 columns or so: 32 values in each thread's registers."""
    return Rows(warps=min(32, max(1, block // 1024)), rows=max(1, 512 // block))
