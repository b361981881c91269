# SPDX-License-Identifier: Apache-2.0
"""Estimates the memory of a run, so that one that does not fit is refused before any work.

Every layout is held with every exchange at once, and what one GPU alone multiplies, for all of
them take turns. The check comes on top of that: it is greatest for a block that is all of C.
"""

from collections.abc import Sequence

from gpupack_workloads.matmul_multi.layout import Layout
from gpupack_workloads.matmul_multi.operands import Operands
from gpupack_workloads.reference.freivalds import ROWS_AT_ONCE, strip_width

DOUBLE_BYTES = 8
# Of a GPU alone: A, B and C.
MATRICES_ALONE = 3
# What the check has in 64 bits: first panels of one tile in K, of A and of B, of which those before
# are released only when the next are there, with few checksums …
PANELS, FIRST_CHECKSUMS = 3, 3
# … then rows of C, by themselves, with signs and without, and checksums; then only these, compared.
PIECES, CHECKSUMS = 3, 6
COMPARED = 10


def needed_bytes(layouts: Sequence[type[Layout]], operands: Operands, *, exchanges: int) -> int:
    """Return what a rank holds at most."""
    ranks, tile = operands.ranks, operands.edge**2
    tiles = MATRICES_ALONE * ranks**2
    tiles += exchanges * sum(layout.tiles(ranks) for layout in layouts)
    element: int = operands.dtype.itemsize
    return element * tile * tiles + check_bytes(operands)


def check_bytes(operands: Operands) -> int:
    """Return what the check of all of C takes."""
    size = operands.size
    panel, checksums = size * operands.edge, size**2 // strip_width(operands.edge)
    first = PANELS * panel + FIRST_CHECKSUMS * checksums
    then = PIECES * size * min(size, ROWS_AT_ONCE) + CHECKSUMS * checksums
    element: int = operands.dtype.itemsize
    return element * panel + DOUBLE_BYTES * max(first, then, COMPARED * checksums)
