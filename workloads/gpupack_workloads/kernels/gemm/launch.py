# SPDX-License-Identifier: Apache-2.0
"""Launches the GEMM kernel: checks the arguments, chooses tiles, sizes the grid."""

from dataclasses import dataclass

import torch
import triton

from gpupack_workloads.errors import BadArgument
from gpupack_workloads.kernels.gemm.kernel import gemm_kernel

DTYPES = (torch.float32, torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Tiles:
    """How the work is cut: a program's tile, and what the compiler does with it."""

    m: int
    n: int
    k: int
    group_m: int
    warps: int
    stages: int


# Half precision: two fp32 accumulator tiles of 128 x 128 per program fill a Hopper SM's registers,
# three stages of A and B its shared memory. fp32 goes through the ordinary cores: small tiles.
HALF = Tiles(m=128, n=256, k=64, group_m=8, warps=8, stages=3)
SINGLE = Tiles(m=64, n=64, k=32, group_m=8, warps=4, stages=3)
# The interpreter takes its time per program and per step, not per element.
INTERPRETED = Tiles(m=128, n=128, k=128, group_m=8, warps=4, stages=1)


def choose_tiles(*, dtype: torch.dtype, on_gpu: bool) -> Tiles:
    """Return the tiles for a type on a kind of device."""
    if not on_gpu:
        return INTERPRETED
    return SINGLE if dtype == torch.float32 else HALF


def gemm(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return A @ B in the type of A.

    Raises:
        BadArgument: shapes, types or devices do not fit.
    """
    _check(a, b)
    (m, k), n = a.shape, b.shape[1]
    c = torch.empty((m, n), device=a.device, dtype=a.dtype)
    tiles = choose_tiles(dtype=a.dtype, on_gpu=a.is_cuda)
    grid = (triton.cdiv(m, tiles.m) * triton.cdiv(n, tiles.n),)
    gemm_kernel[grid](
        *(a, b, c, m, n, k, *a.stride(), *b.stride(), *c.stride()),
        TILE_M=tiles.m,
        TILE_N=tiles.n,
        TILE_K=tiles.k,
        GROUP_M=tiles.group_m,
        num_warps=tiles.warps,
        num_stages=tiles.stages,
    )
    return c


def _check(a: torch.Tensor, b: torch.Tensor) -> None:
    if a.dim() != 2 or b.dim() != 2 or a.shape[1] != b.shape[0]:  # noqa: PLR2004  matrices
        raise BadArgument(f"cannot multiply {tuple(a.shape)} by {tuple(b.shape)}")
    if 0 in (*a.shape, *b.shape):
        raise BadArgument(f"a matrix is empty: {tuple(a.shape)} by {tuple(b.shape)}")
    if a.dtype != b.dtype or a.dtype not in DTYPES:
        raise BadArgument(f"cannot multiply {a.dtype} by {b.dtype}; both must be one of {DTYPES}")
    if a.device != b.device:
        raise BadArgument(f"the matrices are on {a.device} and on {b.device}")
    if a.dtype == torch.bfloat16 and not a.is_cuda:
        raise BadArgument("bfloat16 needs a GPU: Triton's interpreter computes it wrongly")
