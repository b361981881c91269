# SPDX-License-Identifier: Apache-2.0
"""How rows of a length are computed, per device, from measurements: nothing is tried out in a job.

The table is by direction, bytes per element and columns, rounded up to a power of two; a device
that is not in it takes the H200's, which is right everywhere and may be slower.
"""

from dataclasses import dataclass
from typing import Literal

Direction = Literal["forward", "backward"]


@dataclass(frozen=True)
class Rows:
    """Whole rows in registers.

    Attributes:
        rows: how many a program takes at a time.
        programs: per multiprocessor, which then stay for all rows; 0 gives each block its own.
        stages: more than 1 copies the next rows to shared memory meanwhile; only if they stay.
    """

    warps: int
    rows: int = 1
    programs: int = 0
    stages: int = 1


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


Plan = Rows | Ring | Passes

LONGEST_IN_ONE_PASS = 32768
LONGER = Passes(warps=8, chunk=4096, stages=3)
# The interpreter takes its time per program, not per element.
INTERPRETED_BLOCK = 1 << 16

H200: dict[tuple[Direction, int, int], Plan] = {
    ("forward", 4, 32768): Ring(warps=16, chunk=4096, slots=13),
    ("backward", 4, 32768): Ring(warps=16, chunk=4096, slots=7),
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
    plan = H200.get((direction, element_bytes, block), usual_rows(block))
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
