# SPDX-License-Identifier: Apache-2.0
"""How rows of a length are computed, per device, from measurements: nothing is tried out in a job.

The table is by direction, bytes per element and columns, rounded up to a power of two. It is the
H200's; other devices take it as well, which is right everywhere and may be slower.
"""

from dataclasses import dataclass
from typing import Literal

Direction = Literal["forward", "backward"]


@dataclass(frozen=True)
class Rows:
    """Whole rows in registers.

    Attributes:
        rows: how many a program takes at a time.
        turns: how often it does.
        stages: 2 copies the next turn's rows to shared memory meanwhile.
    """

    warps: int
    rows: int = 1
    turns: int = 1
    stages: int = 1


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
class Ring:
    """Rows through a ring of chunks in shared memory, one program per multiprocessor.

    Attributes:
        chunk: columns of a chunk.
        slots: chunks of each input that shared memory holds.
    """

    warps: int
    chunk: int
    slots: int


@dataclass(frozen=True)
class Passes:
    """Rows of any length, read twice in chunks."""

    warps: int
    chunk: int
    stages: int


Plan = Rows | Chunks | Ring | Passes

LONGEST_IN_ONE_PASS = 32768
LONGER = Passes(warps=8, chunk=4096, stages=3)
# The interpreter takes its time per program, not per element.
INTERPRETED_BLOCK = 1 << 16

H200: dict[tuple[Direction, int], dict[int, Plan]] = {
    ("forward", 4): {
        1024: Rows(warps=1),
        2048: Rows(warps=1),
        4096: Chunks(warps=8, chunk=2048),
        8192: Chunks(warps=16, chunk=4096),
        16384: Chunks(warps=16, chunk=4096),
        32768: Chunks(warps=16, chunk=8192),
    },
    ("forward", 2): {
        1024: Rows(warps=1),
        2048: Rows(warps=1),
        4096: Chunks(warps=8, chunk=2048),
        8192: Chunks(warps=8, chunk=4096),
        16384: Chunks(warps=8, chunk=4096),
        32768: Chunks(warps=16, chunk=8192, looks=3),
    },
    ("backward", 4): {
        1024: Rows(warps=2, turns=2, stages=2),
        2048: Rows(warps=2, turns=2, stages=2),
        4096: Rows(warps=8, turns=2, stages=2),
        8192: Rows(warps=16, turns=2, stages=2),
        16384: Rows(warps=16, turns=2, stages=2),
        32768: Ring(warps=16, chunk=4096, slots=7),
    },
    ("backward", 2): {
        1024: Rows(warps=2, turns=2, stages=2),
        2048: Rows(warps=2, turns=2, stages=2),
        4096: Rows(warps=8, turns=2, stages=2),
        8192: Rows(warps=16, turns=2, stages=2),
        16384: Ring(warps=16, chunk=8192, slots=7),
        32768: Ring(warps=16, chunk=4096, slots=13),
    },
}


def choose_plan(direction: Direction, *, columns: int, element_bytes: int, aligned: bool) -> Plan:
    """Return how rows are computed on a GPU.

    Args:
        direction: forward or backward.
        columns: the length of a row.
        element_bytes: of the type.
        aligned: whether every row starts at a multiple of 16 bytes, as the ring's copies need.
    """
    if columns > LONGEST_IN_ONE_PASS:
        return LONGER
    block = block_of(columns)
    plan = H200[direction, element_bytes].get(block, usual_rows(block))
    return plan if aligned or not isinstance(plan, Ring) else usual_rows(block)


def interpreted_plan(columns: int) -> Plan:
    """Return how rows are computed without a GPU: several at a time, in few steps."""
    if columns > LONGEST_IN_ONE_PASS:
        return Passes(warps=1, chunk=INTERPRETED_BLOCK, stages=1)
    return Rows(warps=1, rows=max(1, INTERPRETED_BLOCK // block_of(columns)))


def usual_rows(block: int) -> Rows:
    """Return one warp per 1024 columns or so: 32 values in each thread's registers."""
    return Rows(warps=min(32, max(1, block // 1024)), rows=max(1, 512 // block))


def block_of(columns: int) -> int:
    """Return the smallest power of two that holds a row."""
    return 1 << (columns - 1).bit_length()
