# SPDX-License-Identifier: Apache-2.0
"""Launches the kernels over packed sequences: chooses tiles, sizes grids."""

import torch
import triton

from gpupack_kernels.operators.attention.portable.launch import (
    NARROW,
    Tiles,
    backward_tiles,
    forward_tiles,
    options_of,
)
from gpupack_kernels.operators.attention_varlen.kernel import (
    varlen_delta_kernel,
    varlen_dkdv_kernel,
    varlen_dq_kernel,
    varlen_forward_kernel,
)
from gpupack_kernels.operators.attention_varlen.problem import PackedProblem

Three = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
Two = tuple[torch.Tensor, torch.Tensor]

DELTA_ROWS = 128
# Tiles of 64 queries spill 328 bytes a thread here, with Triton 3.9 on Hopper; these spill 32.
DKDV = (
    Tiles(m=32, n=64, warps=4, stages=2, shared_kib=96),
    Tiles(m=32, n=32, warps=4, stages=1, shared_kib=48),
)


def forward(qkv: Three, offsets: Two, problem: PackedProblem) -> tuple[torch.Tensor, torch.Tensor]:
    """Return O and each row's log-sum-exp2 of scaled scores; rows of no sequence are zero."""
    q, k, v = qkv
    tiles = forward_tiles(q, problem.block)
    o = torch.zeros(q.shape, device=q.device, dtype=q.dtype)
    lse = empty_sums(problem, q.device)
    if not o.numel() or not problem.sequences:
        return o, lse
    grid = (tiles_of(problem.rows, problem, tiles.m) * problem.heads,)
    varlen_forward_kernel[grid](
        *(q, k, v, o, lse, *offsets, *strides_of(q, k, v, o)),
        *(problem.sequences, problem.rows, problem.keys, problem.heads_per_kv),
        problem.scale_log2,
        **options_of(problem, tiles),
    )
    return o, lse


def backward(
    qkv: Three,
    offsets: Two,
    kept: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    problem: PackedProblem,
) -> Three:
    """Return dQ, dK and dV; `kept` are O, its gradient, and what `forward` returned with it."""
    q, k, v = qkv
    o, do, lse = kept
    of_keys, of_rows = backward_tiles(q, problem.block, DKDV)
    dq, dk, dv = (torch.zeros(x.shape, device=x.device, dtype=x.dtype) for x in qkv)
    if not dq.numel() or not dk.numel() or not problem.sequences:
        return dq, dk, dv
    sums = (lse, row_products(o, do, problem))
    inputs = (q, k, v, do)
    sizes = (problem.sequences, problem.rows, problem.keys, problem.heads_per_kv)
    scales = (problem.scale, problem.scale_log2)
    # One dimension: CUDA counts no more than 65,535 programs in the others.
    grid = (tiles_of(problem.keys, problem, of_keys.n) * problem.kv_heads,)
    varlen_dkdv_kernel[grid](
        *(*inputs, dk, dv, *sums, *offsets, *strides_of(*inputs, dk), *sizes, *scales),
        **options_of(problem, of_keys),
    )
    grid = (tiles_of(problem.rows, problem, of_rows.m) * problem.heads,)
    varlen_dq_kernel[grid](
        *(*inputs, dq, *sums, *offsets, *strides_of(*inputs, dq), *sizes, *scales),
        **options_of(problem, of_rows),
    )
    return dq, dk, dv


def row_products(o: torch.Tensor, do: torch.Tensor, problem: PackedProblem) -> torch.Tensor:
    """Return the sum of O dO of each row."""
    delta = empty_sums(problem, o.device)
    # As many elements per thread for any width.
    rows = DELTA_ROWS * NARROW // max(NARROW, problem.block)
    varlen_delta_kernel[(triton.cdiv(problem.rows, rows) * problem.heads,)](
        *(o, do, delta, *strides_of(o, do), problem.rows),
        TILE_M=rows,
        D=problem.dimension,
        BLOCK_D=problem.block,
    )
    return delta


def empty_sums(problem: PackedProblem, device: torch.device) -> torch.Tensor:
    """Return an empty tensor for one number per head and row."""
    return torch.empty((problem.heads, problem.rows), device=device, dtype=torch.float32)


def tiles_of(total: int, problem: PackedProblem, tile: int) -> int:
    """Return the maximum number of tiles of one head; the kernels number them in the same way."""
    return total // tile + problem.sequences


def strides_of(*tensors: torch.Tensor) -> tuple[int, ...]:
    """Return the strides of tokens and heads of each tensor."""
    return tuple(stride for tensor in tensors for stride in tensor.stride()[:2])
