# SPDX-License-Identifier: Apache-2.0
"""Launches the kernel for any GPU."""

import torch
import triton

from gpupack_kernels.operators.gemm.portable.kernel import gemm_kernel
from gpupack_kernels.operators.gemm.problem import Arrivals
from gpupack_kernels.operators.gemm.tuning import choose_tiles

# Of the kernel's arguments about rows that still arrive.
NOTHING_ARRIVES: tuple[object, ...] = (None, None, None)


def launch(
    a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, arrivals: Arrivals | None = None
) -> None:
    """Write A @ B to C by the kernel for any GPU, which is the current device."""
    (m, k), n = a.shape, b.shape[1]
    tiles = choose_tiles(a)
    group_m, arriving = tiles.group_m, NOTHING_ARRIVES
    if arrivals is not None:
        group_m = max(1, min(group_m, arrivals.rows // tiles.m))
        first_tile = arrivals.first * arrivals.rows // tiles.m
        arriving = (arrivals.flags, first_tile, arrivals.rows)
    grid = (triton.cdiv(m, tiles.m) * triton.cdiv(n, tiles.n),)
    gemm_kernel[grid](
        *(a, b, c, m, n, k, *a.stride(), *b.stride(), *c.stride(), *arriving),
        TILE_M=tiles.m,
        TILE_N=tiles.n,
        TILE_K=tiles.k,
        GROUP_M=group_m,
        num_warps=tiles.warps,
        num_stages=tiles.stages,
    )
