# SPDX-License-Identifier: Apache-2.0
"""Launches the Hopper kernel: tensor maps of the operands, and copies of what no map describes.

A tensor map needs one dimension whose elements lie side by side, and a start and a step of the
other dimension that are multiples of 16 bytes. Any other operand is copied once into rows that
are: its bytes are few beside the product's work.
"""

import functools
from typing import Any

import torch
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from gpupack_workloads.kernels.devices import properties_of
from gpupack_workloads.kernels.gemm.hopper.compiled import (
    Arguments,
    CompiledKernels,
    Grid,
    specialization,
)
from gpupack_workloads.kernels.gemm.hopper.kernel import gemm_hopper_kernel
from gpupack_workloads.kernels.gemm.tuning import HopperTiles

MAP_BYTES = 16
# Two groups of four warps multiply, one warp loads; its group counts in full. 65536 registers of a
# multiprocessor over 384 threads, in steps of 8.
REGISTERS = 168
GROUP_WARPS = 4
TYPES = {
    torch.bfloat16: gl.bfloat16,
    torch.float16: gl.float16,
    torch.float8_e4m3fn: gl.float8e4nv,
}


def launch(
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor,
    tiles: HopperTiles,
    *,
    arriving: tuple[torch.Tensor, int, int] | None = None,
) -> None:
    """Write A @ B to C.

    Where rows of A still arrive, `arriving` has flags, the first tile and the rows of a part.
    """
    (m, k), n = a.shape, b.shape[1]
    # wgmma takes 8-bit operands only with the summed dimension side by side.
    narrow = a.element_size() == 1
    a, a_turned = mappable(a, rows_only=narrow)
    b_t, b_straight = mappable(b.T, rows_only=narrow)
    half, by_map = tiles.m // 2, has_map(c)
    part = [half, tiles.n // tiles.parts]
    operands = (
        tensor_map(a, [tiles.k, half] if a_turned else [half, tiles.k]),
        tensor_map(b_t, [tiles.k, tiles.n] if b_straight else [tiles.n, tiles.k]),
        tensor_map(c if by_map else c.new_empty(part), part),
        *(None if by_map else c, c.stride(0), m, n, k),
        *(arriving or (None, None, None)),
    )
    constants = (tiles.group_m, tiles.stages, tiles.parts, a_turned, not b_straight)
    # Triton compiles anew by types, by constants, and by what divides numbers and addresses. Not by
    # every shape: a job may have any number of them, and each would be kept for ever.
    numbers = tuple(specialization(number) for number in (c.stride(0), m, n, k))
    if arriving is not None:
        numbers += tuple(specialization(number) for number in arriving[1:])
    kind = (a.dtype, c.dtype, tiles, constants, numbers, by_map or c.data_ptr() % MAP_BYTES)
    # Not triton.cdiv, which takes microseconds outside a kernel.
    count = -(-m // tiles.m) * -(-n // tiles.n)
    grid = (min(properties_of(c).multi_processor_count, count), 1, 1)
    KERNELS.run((*kind, c.device.index), grid, (*operands, *constants))


def _by_triton(grid: Grid, arguments: Arguments) -> Any:
    return gemm_hopper_kernel[grid](
        *arguments, num_warps=GROUP_WARPS, maxnreg=REGISTERS, launch_pdl=True
    )


KERNELS = CompiledKernels(_by_triton)


def mappable(matrix: torch.Tensor, *, rows_only: bool) -> tuple[torch.Tensor, bool]:
    """Return the matrix or its transpose, as a tensor map can read it, and whether it is turned."""
    if has_map(matrix):
        return matrix, False
    if has_map(matrix.T) and not rows_only:
        return matrix.T, True
    if matrix.stride(0) == 1 and not rows_only:
        return aligned(matrix.T), True
    return aligned(matrix), False


def has_map(matrix: torch.Tensor) -> bool:
    """Return whether a tensor map can describe the rows of a matrix."""
    step = matrix.stride(0) * matrix.element_size()
    return bool(
        matrix.stride(1) == 1
        and matrix.data_ptr() % MAP_BYTES == 0
        and step % MAP_BYTES == 0
        and step >= matrix.shape[1] * matrix.element_size()
    )


def aligned(matrix: torch.Tensor) -> torch.Tensor:
    """Return a copy whose rows start at multiples of 16 bytes."""
    step = -(-matrix.shape[1] * matrix.element_size() // MAP_BYTES) * MAP_BYTES
    copy = matrix.new_empty((matrix.shape[0], step // matrix.element_size()))[:, : matrix.shape[1]]
    copy.copy_(matrix)
    return copy


def tensor_map(matrix: torch.Tensor, block: list[int]) -> TensorDescriptor:
    """Describe a matrix to the copy engine, which moves a block at a time."""
    return TensorDescriptor.from_tensor(matrix, block, layout_of(*block, matrix.dtype))


# Kept, since a third of the time of a launch went into working them out.
@functools.cache
def layout_of(rows: int, columns: int, dtype: torch.dtype) -> gl.NVMMASharedLayout:
    """Return how a block lies in shared memory, as the copy engine and wgmma agree on it."""
    return gl.NVMMASharedLayout.get_default_for([rows, columns], TYPES[dtype])
