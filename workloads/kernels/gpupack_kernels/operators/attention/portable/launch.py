# SPDX-License-Identifier: Apache-2.0
"""Launches the portable kernels: chooses tiles, sizes grids."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import triton

from gpupack_kernels.devices import fastest_that_fits
from gpupack_kernels.operators.attention.portable.kernel import (
    attention_delta_kernel,
    attention_dkdv_kernel,
    attention_dq_kernel,
    attention_forward_kernel,
)
from gpupack_kernels.operators.attention.problem import PAD, Heads, Problem

Inputs = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


@dataclass(frozen=True, kw_only=True)
class Tiles:
    """Tile sizes and compiler options: rows of queries and keys of a step, warps, stages.

    Attributes:
        shared_kib: what Triton 3.9 takes for the widest head, on whichever GPU it takes most that
            has so much: of old ones mostly those without asynchronous copies.
    """

    m: int
    n: int
    warps: int
    stages: int
    shared_kib: int


NARROW = 128
"""The most columns of a block that narrow tiles are for; wide ones are for twice as many."""

# The fastest first; the second are for GPUs with 64 KiB of shared memory.
FORWARD = (
    Tiles(m=128, n=64, warps=8, stages=3, shared_kib=96),
    Tiles(m=64, n=32, warps=4, stages=2, shared_kib=48),
)
BACKWARD = (
    Tiles(m=64, n=64, warps=4, stages=2, shared_kib=96),
    Tiles(m=32, n=32, warps=4, stages=1, shared_kib=48),
)
# 32-bit numbers go through the ordinary cores, and fill registers and shared memory twice as fast.
SINGLE = (
    Tiles(m=32, n=32, warps=4, stages=1, shared_kib=68),
    Tiles(m=16, n=16, warps=4, stages=1, shared_kib=36),
)
WIDE_FORWARD = (
    Tiles(m=128, n=64, warps=8, stages=2, shared_kib=192),
    Tiles(m=64, n=32, warps=4, stages=2, shared_kib=96),
    Tiles(m=32, n=16, warps=4, stages=1, shared_kib=48),
)
# dK and dV of 64 keys fill the registers twice over: with 32 nothing is spilled.
WIDE_DKDV = (
    Tiles(m=32, n=32, warps=8, stages=2, shared_kib=96),
    Tiles(m=16, n=16, warps=4, stages=1, shared_kib=48),
)
WIDE_DQ = (
    Tiles(m=64, n=64, warps=8, stages=2, shared_kib=192),
    Tiles(m=32, n=32, warps=4, stages=2, shared_kib=96),
    Tiles(m=16, n=16, warps=4, stages=1, shared_kib=48),
)
WIDE_SINGLE = (Tiles(m=16, n=16, warps=8, stages=1, shared_kib=72),)
# The interpreter takes its time per program and per step, not per element.
INTERPRETED = Tiles(m=64, n=64, warps=4, stages=1, shared_kib=0)


def choose_tiles(
    of_halves: Sequence[Tiles], q: torch.Tensor, of_singles: Sequence[Tiles] = SINGLE
) -> Tiles:
    """Return the tiles for a type on a kind of device.

    Raises:
        Unsupported: the GPU has too little shared memory.
    """
    if not q.is_cuda:
        return INTERPRETED
    return fastest_that_fits(of_singles if q.dtype == torch.float32 else of_halves, q)


def forward_tiles(q: torch.Tensor, block: int) -> Tiles:
    """Return the tiles of a forward pass with heads in blocks of so many columns; see above."""
    if block <= NARROW:
        return choose_tiles(FORWARD, q)
    return choose_tiles(WIDE_FORWARD, q, WIDE_SINGLE)


def backward_tiles(
    q: torch.Tensor, block: int, narrow_dkdv: Sequence[Tiles] = BACKWARD
) -> tuple[Tiles, Tiles]:
    """Return the tiles of a backward pass, of dK with dV and of dQ; see above."""
    if block <= NARROW:
        return choose_tiles(narrow_dkdv, q), choose_tiles(BACKWARD, q)
    return choose_tiles(WIDE_DKDV, q, WIDE_SINGLE), choose_tiles(WIDE_DQ, q, WIDE_SINGLE)


def options_of(problem: Heads, tiles: Tiles) -> dict[str, int]:
    """Return what a kernel is compiled for."""
    return {
        "CAUSAL": problem.causal,
        "TILE_M": tiles.m,
        "TILE_N": tiles.n,
        "D": problem.dimension,
        "BLOCK_D": problem.block,
        "num_warps": tiles.warps,
        "num_stages": tiles.stages,
    }


def forward(qkv: Inputs, results: tuple[torch.Tensor, torch.Tensor], problem: Problem) -> None:
    """Write O and each row's log-sum-exp2 of scaled scores."""
    (q, k, v), (o, lse) = qkv, results
    tiles = forward_tiles(q, problem.block)
    grid = (triton.cdiv(problem.rows, tiles.m) * problem.batch * problem.heads,)
    attention_forward_kernel[grid](
        *(q, k, v, o, lse, *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *o.stride()[:3]),
        *(problem.rows, problem.padded, problem.keys, problem.heads, problem.heads_per_kv),
        problem.scale_log2,
        **options_of(problem, tiles),
    )


def row_products(o: torch.Tensor, do: torch.Tensor, problem: Problem) -> torch.Tensor:
    """Return the sum of O dO of each row, zero beyond the end."""
    delta = empty_sums(problem, o.device)
    # As many elements per thread for any width.
    rows = PAD * NARROW // max(NARROW, problem.block)
    attention_delta_kernel[(problem.padded // rows * problem.batch * problem.heads,)](
        *(o, do, delta, *o.stride()[:3], *do.stride()[:3]),
        *(problem.rows, problem.padded, problem.heads),
        TILE_M=rows,
        D=problem.dimension,
        BLOCK_D=problem.block,
    )
    return delta


def empty_sums(problem: Problem, device: torch.device) -> torch.Tensor:
    """Return an empty tensor for one number per row, padded to whole tiles."""
    shape = (problem.batch, problem.heads, problem.padded)
    return torch.empty(shape, device=device, dtype=torch.float32)


def backward(
    inputs: Inputs,
    do: torch.Tensor,
    sums: tuple[torch.Tensor, torch.Tensor],
    gradients: Inputs,
    problem: Problem,
) -> None:
    """Write dQ, dK and dV; `sums` are the log-sum-exp2 and the sum of O dO of each row."""
    q, k, v = inputs
    of_keys, of_rows = backward_tiles(q, problem.block)
    dq, dk, dv = gradients
    strides = (*q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *do.stride()[:3])
    sizes = (problem.rows, problem.padded, problem.keys, problem.kv_heads, problem.heads_per_kv)
    scales = (problem.scale, problem.scale_log2)
    # One dimension: CUDA counts no more than 65,535 programs in the others.
    owners_of_keys = problem.batch * problem.kv_heads
    attention_dkdv_kernel[(triton.cdiv(problem.keys, of_keys.n) * owners_of_keys,)](
        *(q, k, v, do, dk, dv, *sums),
        *(*strides, *dk.stride()[:3], *dv.stride()[:3], *sizes, *scales),
        **options_of(problem, of_keys),
    )
    owners_of_rows = problem.batch * problem.heads
    attention_dq_kernel[(triton.cdiv(problem.rows, of_rows.m) * owners_of_rows,)](
        *(q, k, v, do, dq, *sums, *strides, *dq.stride()[:3], *sizes, *scales),
        **options_of(problem, of_rows),
    )
