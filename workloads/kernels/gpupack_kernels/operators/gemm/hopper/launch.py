# SPDX-License-Identifier: Apache-2.0
"""Launches the Hopper kernel: tensor maps of the operands, and copies of what no map describes.

A tensor map needs one dimension whose elements lie side by side, and a start and a step of the
other dimension that are multiples of 16 bytes. Any other operand is copied once into rows that
are: its bytes are few compared with the product's work.
"""

import functools
from collections.abc import Sequence
from typing import Any

import torch
from triton.experimental.gluon import language as gl

from gpupack_kernels.devices import properties_of
from gpupack_kernels.operators.gemm.hopper.compiled import (
    Arguments,
    CompiledKernels,
    Grid,
    specialization,
)
from gpupack_kernels.operators.gemm.hopper.kernel import gemm_hopper_kernel
from gpupack_kernels.operators.gemm.hopper.plans import Plan, how
from gpupack_kernels.operators.gemm.problem import MAX_OTHERS, Pair, has_map
from gpupack_kernels.operators.gemm.tuning import MAP_BYTES, HopperTiles
from gpupack_kernels.tensor_maps import TensorMap

Turns = tuple[bool, bool]

# Two groups of four warps multiply, one warp loads; its group counts in full. 65536 registers of a
# multiprocessor over 384 threads, in steps of 8.
REGISTERS = 168
GROUP_WARPS = 4
TYPES = {
    torch.bfloat16: gl.bfloat16,
    torch.float16: gl.float16,
    torch.float8_e4m3fn: gl.float8e4nv,
    torch.float32: gl.float32,  # sums alone
}


def launch(
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor,
    tiles: HopperTiles,
    *,
    arriving: tuple[torch.Tensor, int, int] | None = None,
    others: Sequence[Pair] = (),
) -> Plan | None:
    """Write A @ B to C, or the sum of that and up to two others.

    Return how to do it again for operands of the same kind, if it takes these three alone and no
    copies of them.

    Where rows of A still arrive, `arriving` has flags, the first tile and the rows of a part. Where
    C has several times the rows of A it gets the sums of as many parts of K, one below the other.
    """
    (m, k), n, splits = a.shape, b.shape[1], c.shape[0] // a.shape[0]
    turns = turns_of(a, b)
    a_map, b_map = maps_of(a, b, tiles, turns)
    by_map = has_map(c)
    part = [tiles.m // 2, tiles.n // tiles.parts]
    further: list[Any] = [None, None, 0] * MAX_OTHERS
    for at, (other_a, other_b) in enumerate(others):
        other_maps = maps_of(other_a, other_b, tiles, turns)
        further[3 * at : 3 * at + 3] = (*other_maps, other_a.shape[1])
    maps = (a_map, b_map, tensor_map(c if by_map else c.new_empty(part), part))
    operands = (
        *(None if by_map else c, c.stride(0), m, n, k),
        *(arriving or (None, None, None)),
        *further,
    )
    constants = (tiles.group_m, tiles.stages, tiles.parts, *turns, splits)
    # Triton compiles again for other types, constants, and divisors of numbers and addresses, but
    # not for every shape: a job may have any number of them, and each would be kept for ever.
    numbers = tuple(specialization(n) for n in (c.stride(0), m, n, k, further[2], further[5]))
    if arriving is not None:
        numbers += tuple(specialization(number) for number in arriving[1:])
    stored = by_map or c.data_ptr() % MAP_BYTES
    kind = (a.dtype, c.dtype, tiles, constants, numbers, stored, len(others))
    # Not triton.cdiv, which takes microseconds outside a kernel.
    count = -(-m // tiles.m) * -(-n // tiles.n) * splits
    grid = (min(properties_of(c).multi_processor_count, count), 1, 1)
    key = (*kind, c.device.index)
    KERNELS.run(key, grid, (*maps, *operands, *constants))
    pairs = zip(maps, (a, b, c), strict=True)
    in_place = all(described.base.data_ptr() == x.data_ptr() for described, x in pairs)
    if not in_place or arriving is not None or others:
        return None
    return Plan(KERNELS, key, grid, tuple(map(how, maps)), (*operands, *constants))


def turns_of(a: torch.Tensor, b: torch.Tensor) -> Turns:
    """Return of each operand whether it is read by columns, so that it need not be copied."""
    if a.element_size() == 1:
        # wgmma takes 8-bit operands only with the summed dimension side by side.
        return False, True
    return by_columns(a), by_columns(b)


def maps_of(
    a: torch.Tensor, b: torch.Tensor, tiles: HopperTiles, turns: Turns
) -> tuple[TensorMap, TensorMap]:
    """Return maps of the operands, by columns if requested; of copies if no map is possible."""
    (a_turned, b_turned), half = turns, tiles.m // 2
    return (
        tensor_map(
            aligned(a.T if a_turned else a), [tiles.k, half] if a_turned else [half, tiles.k]
        ),
        tensor_map(
            aligned(b.T if b_turned else b),
            [tiles.n, tiles.k] if b_turned else [tiles.k, tiles.n],
        ),
    )


def _by_triton(grid: Grid, arguments: Arguments) -> Any:
    return gemm_hopper_kernel[grid](
        *arguments, num_warps=GROUP_WARPS, maxnreg=REGISTERS, launch_pdl=True
    )


KERNELS = CompiledKernels(_by_triton)


def by_columns(matrix: torch.Tensor) -> bool:
    """Return whether columns, and not rows, are contiguous."""
    if has_map(matrix):
        return False
    return has_map(matrix.T) or matrix.stride(0) == 1


def aligned(matrix: torch.Tensor) -> torch.Tensor:
    """Return the matrix if a map describes its rows, else a copy whose rows start at 16 bytes."""
    if has_map(matrix):
        return matrix
    step = -(-matrix.shape[1] * matrix.element_size() // MAP_BYTES) * MAP_BYTES
    copy = matrix.new_empty((matrix.shape[0], step // matrix.element_size()))[:, : matrix.shape[1]]
    copy.copy_(matrix)
    return copy


def tensor_map(matrix: torch.Tensor, block: list[int]) -> TensorMap:
    """Describe a matrix to the copy engine, which moves a block at a time."""
    layout = layout_of(*block, matrix.dtype)
    return TensorMap(matrix, matrix.shape, matrix.stride(), block, layout)


# Kept, since a third of the time of a launch went into working them out.
@functools.cache
def layout_of(rows: int, columns: int, dtype: torch.dtype) -> gl.NVMMASharedLayout:
    """Return the layout of a block in shared memory, as the copy engine and wgmma require."""
    return gl.NVMMASharedLayout.get_default_for([rows, columns], TYPES[dtype])
