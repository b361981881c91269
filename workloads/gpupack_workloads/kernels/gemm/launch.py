# SPDX-License-Identifier: Apache-2.0
"""Multiplies: checks the arguments, chooses a kernel and tiles, launches. No gradients here."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
import triton

from gpupack_workloads.kernels.devices import device_of
from gpupack_workloads.kernels.errors import Unsupported
from gpupack_workloads.kernels.gemm.kernel import gemm_kernel, sum_kernel
from gpupack_workloads.kernels.gemm.tuning import (
    MAP_BYTES,
    SPLIT_TILES,
    choose_hopper_tiles,
    choose_tiles,
    hopper_tiles,
    runs_on_hopper,
    splits_for,
)

FP8 = torch.float8_e4m3fn
Pair = tuple[torch.Tensor, torch.Tensor]
# Products that the Hopper kernel adds to one.
MAX_OTHERS = 2
# Of the kernel's arguments about rows that still arrive.
NOTHING_ARRIVES: tuple[object, ...] = (None, None, None)
SUM_BLOCK, SUM_WARPS = 1024, 4
DTYPES = (torch.float32, torch.float16, torch.bfloat16, FP8)


@dataclass(frozen=True)
class Arrivals:
    """Flags of the rows of A that have arrived, while others still arrive.

    Attributes:
        flags: 32-bit numbers; i is not 0 once rows [i * rows, (i + 1) * rows) are there.
        rows: number of rows of a part.
        first: the part with which the product begins, since it is there first; then go those after
            it, and round.
    """

    flags: torch.Tensor
    rows: int
    first: int


def multiply_arriving(
    a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, arrivals: Arrivals
) -> None:
    """Write A @ B to C, whose type is A's, while parts of A's rows still arrive.

    Raises:
        Unsupported: shapes, types or devices do not fit, or the GPU has too little shared memory.
    """
    check(a, b)
    _check_arrivals(a, b, c, arrivals)
    with device_of(a):
        tiles = choose_hopper_tiles(a, b.shape[1])
        if tiles is None:
            launch_portable(a, b, c, arrivals)
        else:
            from gpupack_workloads.kernels.gemm.hopper.launch import launch  # noqa: PLC0415

            first_tile = arrivals.first * arrivals.rows // tiles.m
            # A group of tiles that spans parts would wait for the later ones with the first column.
            group_m = max(1, min(tiles.group_m, arrivals.rows // tiles.m))
            launch(
                *(a, b, c, replace(tiles, group_m=group_m)),
                arriving=(arrivals.flags, first_tile, arrivals.rows),
            )


def multiply(a: torch.Tensor, b: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Return A @ B in the type of A; in bfloat16 where A is of 8 bits (float16 without a GPU).

    Args:
        a: (rows, columns).
        b: (columns, any number), of the type of A.
        dtype: type of the product, if it differs: 32 bits.

    Raises:
        Unsupported: shapes, types or devices do not fit, or the GPU has too little shared memory.
    """
    check(a, b)
    kind = dtype or result_type(a)
    c = torch.empty((a.shape[0], b.shape[1]), device=a.device, dtype=kind)
    if is_nothing(a, b):
        return c.zero_()
    # Triton launches on the current device, which need not be the operands'.
    with device_of(a):
        if not multiply_on_hopper(a, b, c):
            launch_portable(a, b, c)
    return c


def multiply_sum(pairs: Sequence[Pair]) -> torch.Tensor:
    """Return the sum of products of the same type and shape; on Hopper GPUs three are rounded once.

    Raises:
        Unsupported: as `multiply`.
    """
    for a, b in pairs:
        check(a, b)
    (a, b), *others = [pair for pair in pairs if not is_nothing(*pair)] or pairs[:1]
    if is_nothing(a, b):
        return multiply(a, b)
    with device_of(a):
        tiles = choose_hopper_tiles(a, b.shape[1])
        if tiles is None:
            products = (multiply(*pair) for pair in ((a, b), *others))
            return functools.reduce(torch.Tensor.add_, products)
        if len(others) > MAX_OTHERS:
            first, rest = others[:MAX_OTHERS], others[MAX_OTHERS:]
            return multiply_sum([(a, b), *first]).add_(multiply_sum(rest))
        from gpupack_workloads.kernels.gemm.hopper.launch import launch  # noqa: PLC0415

        c = torch.empty((a.shape[0], b.shape[1]), device=a.device, dtype=result_type(a))
        launch(a, b, c, tiles, others=others)
    return c


def multiply_on_hopper(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> bool:
    """Write A @ B to C if the Hopper kernel takes them, on the current device; return whether."""
    if not runs_on_hopper(a):
        return False
    # Here, because Gluon cannot be imported under the interpreter.
    from gpupack_workloads.kernels.gemm.hopper.launch import launch  # noqa: PLC0415
    from gpupack_workloads.kernels.gemm.hopper.plans import PLANS, kind_of  # noqa: PLC0415

    kind = kind_of(a, b, c)
    plan = PLANS.find(kind)
    if plan is not None:
        plan.launch(a, b, c)
        return True
    splits = splits_for(a, b, c)
    if splits == 1:
        tiles = hopper_tiles(a, b.shape[1], c.dtype)
        plan = launch(a, b, c, tiles)
        if plan is not None:
            PLANS.keep(kind, plan)
        return True
    sums = torch.empty((splits * c.shape[0], c.shape[1]), device=c.device, dtype=torch.float32)
    launch(a, b, sums, SPLIT_TILES)
    sum_kernel[(triton.cdiv(c.numel(), SUM_BLOCK),)](
        sums, c, c.numel(), SPLITS=splits, BLOCK=SUM_BLOCK, num_warps=SUM_WARPS
    )
    return True


def has_map(matrix: torch.Tensor) -> bool:
    """Return whether a tensor map can describe the rows of a matrix."""
    step = matrix.stride(0) * matrix.element_size()
    return bool(
        matrix.stride(1) == 1
        and matrix.data_ptr() % MAP_BYTES == 0
        and step % MAP_BYTES == 0
        and step >= matrix.shape[1] * matrix.element_size()
    )


def is_nothing(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Return whether a product is empty, or over nothing and so zero: no kernel computes it."""
    return not a.numel() or not b.numel()


def result_type(a: torch.Tensor) -> torch.dtype:
    """Return the type of a product: 8 bits would be too few for a sum."""
    if a.dtype != FP8:
        return a.dtype
    return torch.bfloat16 if a.is_cuda else torch.float16


def check(a: torch.Tensor, b: torch.Tensor) -> None:
    """Refuse what cannot be multiplied."""
    if a.dim() != 2 or b.dim() != 2 or a.shape[1] != b.shape[0]:  # noqa: PLR2004  matrices
        raise Unsupported(f"cannot multiply {tuple(a.shape)} by {tuple(b.shape)}")
    if a.dtype != b.dtype or a.dtype not in DTYPES:
        raise Unsupported(f"cannot multiply {a.dtype} by {b.dtype}; both must be one of {DTYPES}")
    if a.device != b.device:
        raise Unsupported(f"the matrices are on {a.device} and on {b.device}")
    if a.dtype == torch.bfloat16 and not a.is_cuda:
        raise Unsupported("bfloat16 needs a GPU: Triton's interpreter computes it wrongly")


def _check_arrivals(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, arrivals: Arrivals) -> None:
    if c.shape != (a.shape[0], b.shape[1]) or c.dtype != result_type(a) or c.device != a.device:
        raise Unsupported(
            f"cannot write {tuple(a.shape)} by {tuple(b.shape)} to {tuple(c.shape)} of {c.dtype}"
        )
    if 0 in (*a.shape, *b.shape):
        raise Unsupported(f"nothing arrives: {tuple(a.shape)} by {tuple(b.shape)}")
    if not c.is_contiguous():
        raise Unsupported("the result must be contiguous")
    if not a.is_contiguous():
        raise Unsupported("a matrix that still arrives must be contiguous: it cannot be copied")
    parts, flags = arrivals.flags.numel(), arrivals.flags
    if flags.device != a.device or not flags.is_contiguous():
        raise Unsupported(f"flags on {flags.device} must be contiguous on {a.device}")
    if flags.dtype != torch.int32 or arrivals.rows * parts != a.shape[0]:
        raise Unsupported(
            f"{parts} flags of {flags.dtype} for parts of {arrivals.rows} rows do not"
            f" cover {a.shape[0]} rows by 32-bit numbers"
        )
    if not 0 <= arrivals.first < parts:
        raise Unsupported(f"part {arrivals.first} is not among {parts}")
    if a.is_cuda and a.shape[1] * a.element_size() % MAP_BYTES:
        raise Unsupported(f"rows of {a.shape[1]} elements are no multiple of {MAP_BYTES} bytes")
    if a.is_cuda and a.data_ptr() % MAP_BYTES:
        raise Unsupported(f"a matrix that still arrives must begin at a multiple of {MAP_BYTES}")


def launch_portable(
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
