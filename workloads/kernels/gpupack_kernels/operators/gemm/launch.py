# SPDX-License-Identifier: Apache-2.0
"""Chooses the kernel and the tiles of a product, and launches it. No gradients here."""

import functools
from collections.abc import Sequence
from dataclasses import replace

import torch
import triton

from gpupack_kernels.devices import device_of
from gpupack_kernels.operators.gemm.portable.kernel import sum_kernel
from gpupack_kernels.operators.gemm.portable.launch import launch as launch_portable
from gpupack_kernels.operators.gemm.problem import (
    MAX_OTHERS,
    Arrivals,
    Pair,
    check,
    check_arrivals,
    is_nothing,
    result_type,
)
from gpupack_kernels.operators.gemm.tuning import (
    SPLIT_TILES,
    choose_hopper_tiles,
    hopper_tiles,
    runs_on_hopper,
    splits_for,
)

SUM_BLOCK, SUM_WARPS = 1024, 4


def multiply_arriving(
    a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, arrivals: Arrivals
) -> None:
    """Write A @ B to C, whose type is A's, while parts of A's rows still arrive.

    Raises:
        Unsupported: shapes, types or devices do not fit, or the GPU has too little shared memory.
    """
    check(a, b)
    check_arrivals(a, b, c, arrivals)
    with device_of(a):
        tiles = choose_hopper_tiles(a, b.shape[1])
        if tiles is None:
            launch_portable(a, b, c, arrivals)
        else:
            from gpupack_kernels.operators.gemm.hopper.launch import launch  # noqa: PLC0415

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
        from gpupack_kernels.operators.gemm.hopper.launch import launch  # noqa: PLC0415

        c = torch.empty((a.shape[0], b.shape[1]), device=a.device, dtype=result_type(a))
        launch(a, b, c, tiles, others=others)
    return c


def multiply_on_hopper(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> bool:
    """Write A @ B to C if the Hopper kernel takes them, on the current device; return whether."""
    if not runs_on_hopper(a):
        return False
    # Here, because Gluon cannot be imported under the interpreter.
    from gpupack_kernels.operators.gemm.hopper.launch import launch  # noqa: PLC0415
    from gpupack_kernels.operators.gemm.hopper.plans import PLANS, kind_of  # noqa: PLC0415

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
