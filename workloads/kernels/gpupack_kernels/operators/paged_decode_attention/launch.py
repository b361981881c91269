# SPDX-License-Identifier: Apache-2.0
"""Launches the kernels over pages: chooses tiles and parts, sizes grids.

The launch does not read lengths, so that it can be captured in a CUDA graph and replayed with
others.
"""

from dataclasses import dataclass

import torch

from gpupack_kernels.devices import fastest_that_fits, properties_of
from gpupack_kernels.operators.attention.portable.launch import NARROW
from gpupack_kernels.operators.paged_decode_attention.kernel import (
    paged_combine_kernel,
    paged_decode_kernel,
)
from gpupack_kernels.operators.paged_decode_attention.problem import PagedProblem
from gpupack_kernels.rows import block_of


@dataclass(frozen=True, kw_only=True)
class DecodeTiles:
    """Tile sizes and compiler options: positions of a step, warps, stages.

    Attributes:
        heads: query heads of a program at most.
        shared_kib: what Triton 3.9 takes for the widest head on whichever GPU it takes most.
    """

    n: int
    heads: int
    warps: int
    stages: int
    shared_kib: int


# Nothing is spilled on Hopper, and all GPUs from Turing on have 64 KiB.
HALVES = (DecodeTiles(n=64, heads=32, warps=4, stages=3, shared_kib=48),)
WIDE_HALVES = (DecodeTiles(n=32, heads=32, warps=4, stages=3, shared_kib=64),)
SINGLES = (DecodeTiles(n=16, heads=16, warps=4, stages=1, shared_kib=32),)
WIDE_SINGLES = (DecodeTiles(n=16, heads=16, warps=8, stages=1, shared_kib=64),)
INTERPRETED = DecodeTiles(n=64, heads=32, warps=4, stages=1, shared_kib=0)
# Rows of a product on tensor cores.
MIN_HEADS = 16
# Programs for each multiprocessor: two fit side by side, and one fills the other's waits.
PROGRAMS = 2
# A part's O is written and read once more in 32 bits: it must be much smaller than its keys and
# values.
MIN_POSITIONS, MAX_PARTS = 128, 128
# Without a GPU a program costs time, and several still show that parts are put together.
INTERPRETED_PARTS = 2
TILE_S = 16


def decode(
    q: torch.Tensor,
    pages: tuple[torch.Tensor, torch.Tensor],
    table: torch.Tensor,
    lengths: torch.Tensor,
    problem: PagedProblem,
    *,
    parts: int | None = None,
) -> torch.Tensor:
    """Return O, (rows, heads, dimension)."""
    k, v = pages
    o = torch.empty(q.shape, device=q.device, dtype=q.dtype)
    if not o.numel():
        return o
    tiles = tiles_for(q, problem.block)
    heads = min(tiles.heads, max(MIN_HEADS, block_of(problem.heads_per_kv)))
    programs = problem.rows * problem.kv_heads * cdiv(problem.heads_per_kv, heads)
    parts = parts or parts_for(q, programs, problem.table_pages * problem.page_tokens)
    owners = problem.rows * problem.heads
    lse = torch.empty((owners, parts), device=q.device, dtype=torch.float32)
    partial = o
    if parts > 1:
        shape = (owners, parts, problem.dimension)
        partial = torch.empty(shape, device=q.device, dtype=torch.float32)
    paged_decode_kernel[(programs * parts,)](
        *(q, k, v, table, lengths, partial, lse),
        *(*q.stride()[:2], *k.stride()[:3], *v.stride()[:3], table.stride(0), lengths.stride(0)),
        *(problem.table_pages, parts, problem.kv_heads, problem.heads_per_kv, problem.scale_log2),
        PAGE=problem.page_tokens,
        HEADS=heads,
        TILE_N=tiles.n,
        D=problem.dimension,
        BLOCK_D=problem.block,
        num_warps=tiles.warps,
        num_stages=tiles.stages,
    )
    if parts > 1:
        paged_combine_kernel[(owners,)](
            *(partial, lse, o, parts), TILE_S=TILE_S, D=problem.dimension, BLOCK_D=problem.block
        )
    return o


def tiles_for(q: torch.Tensor, block: int) -> DecodeTiles:
    """Return the tiles for a type and heads in blocks of so many columns.

    Raises:
        Unsupported: the GPU has too little shared memory.
    """
    if not q.is_cuda:
        return INTERPRETED
    wide = block > NARROW
    if q.dtype == torch.float32:
        return fastest_that_fits(WIDE_SINGLES if wide else SINGLES, q)
    return fastest_that_fits(WIDE_HALVES if wide else HALVES, q)


def parts_for(q: torch.Tensor, programs: int, positions: int) -> int:
    """Return into how many parts a sequence is cut, so that all multiprocessors have work.

    Args:
        q: on the device.
        programs: how many there are without parts.
        positions: for which a table has room.
    """
    wanted = INTERPRETED_PARTS
    if q.is_cuda:
        wanted = cdiv(PROGRAMS * properties_of(q).multi_processor_count, programs)
    most = min(MAX_PARTS, cdiv(positions, MIN_POSITIONS))
    return max(1, min(wanted, most))


def cdiv(a: int, b: int) -> int:
    """Return a / b, rounded up."""
    return -(-a // b)
