# SPDX-License-Identifier: Apache-2.0
"""Multiplies: checks the arguments, chooses a kernel and tiles, launches. No gradients here."""

import torch
import triton

from gpupack_workloads.kernels.errors import Unsupported
from gpupack_workloads.kernels.gemm.kernel import gemm_kernel
from gpupack_workloads.kernels.gemm.tuning import choose_hopper_tiles, choose_tiles

FP8 = torch.float8_e4m3fn
DTYPES = (torch.float32, torch.float16, torch.bfloat16, FP8)


def multiply(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return A @ B in the type of A; in bfloat16 where A is of 8 bits (float16 without a GPU).

    Raises:
        Unsupported: shapes, types or devices do not fit, or the GPU has too little shared memory.
    """
    check(a, b)
    c = torch.empty((a.shape[0], b.shape[1]), device=a.device, dtype=result_type(a))
    # Triton launches on the current device, which need not be the operands'.
    with torch.cuda.device_of(a):
        tiles = choose_hopper_tiles(a, b.shape[1])
        if tiles is None:
            _launch_portable(a, b, c)
        else:
            # Here, because Gluon cannot be imported under the interpreter.
            from gpupack_workloads.kernels.gemm.hopper.launch import launch  # noqa: PLC0415

            launch(a, b, c, tiles)
    return c


def result_type(a: torch.Tensor) -> torch.dtype:
    """Return the type of a product: 8 bits would be too few for a sum."""
    if a.dtype != FP8:
        return a.dtype
    return torch.bfloat16 if a.is_cuda else torch.float16


def check(a: torch.Tensor, b: torch.Tensor) -> None:
    """Refuse what cannot be multiplied."""
    if a.dim() != 2 or b.dim() != 2 or a.shape[1] != b.shape[0]:  # noqa: PLR2004  matrices
        raise Unsupported(f"cannot multiply {tuple(a.shape)} by {tuple(b.shape)}")
    if 0 in (*a.shape, *b.shape):
        raise Unsupported(f"a matrix is empty: {tuple(a.shape)} by {tuple(b.shape)}")
    if a.dtype != b.dtype or a.dtype not in DTYPES:
        raise Unsupported(f"cannot multiply {a.dtype} by {b.dtype}; both must be one of {DTYPES}")
    if a.device != b.device:
        raise Unsupported(f"the matrices are on {a.device} and on {b.device}")
    if a.dtype == torch.bfloat16 and not a.is_cuda:
        raise Unsupported("bfloat16 needs a GPU: Triton's interpreter computes it wrongly")


def _launch_portable(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
    (m, k), n = a.shape, b.shape[1]
    tiles = choose_tiles(a)
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
