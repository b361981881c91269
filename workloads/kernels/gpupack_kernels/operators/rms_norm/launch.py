# SPDX-License-Identifier: Apache-2.0
"""Launches the kernels of the RMS norm: checks the arguments, sizes grids."""

from dataclasses import dataclass, replace

import torch
import triton

from gpupack_kernels.devices import device_of, properties_of
from gpupack_kernels.errors import Unsupported
from gpupack_kernels.operators.rms_norm.kernel import backward_kernel, forward_kernel, sum_kernel
from gpupack_kernels.rows import INTERPRETED_BLOCK, as_rows, block_of, require

Two = tuple[torch.Tensor, torch.Tensor]
# Of registers: backward holds four numbers for each column, and spills some of long rows.
LONG_ROW, LONGEST_ROW = 1 << 15, 1 << 16
# Backward, programs hide each other's waiting, as many as have so many columns in registers
# together; each leaves a row of sums, which more would add to.
COLUMNS_PER_MULTIPROCESSOR = 12288
MIN_PROGRAMS, MAX_PROGRAMS = 2, 8
# Where they are few, x and dy are loaded to shared memory a turn ahead, if there is room for that.
AHEAD_COLUMNS, AHEAD_BYTES = 8192, 96 * 1024
SUM_ROWS, SUM_BLOCK, SUM_WARPS = 128, 32, 8


@dataclass(frozen=True)
class Block:
    """Block of a program: rows, columns as a power of two, and warps."""

    rows: int
    columns: int
    warps: int


def forward(x: torch.Tensor, weight: torch.Tensor, epsilon: float) -> Two:
    """Return y and each row's factor."""
    y = torch.empty(x.shape, device=x.device, dtype=x.dtype)
    scales = torch.empty(x.shape[:-1], device=x.device, dtype=torch.float32)
    if not x.numel():
        return y, scales
    rows, out = as_rows(x), as_rows(y)
    block = _block(rows)
    with device_of(x):
        forward_kernel[(triton.cdiv(rows.shape[0], block.rows),)](
            *(rows, weight.contiguous(), out, scales),
            *rows.shape,
            *(rows.stride(0), out.stride(0), epsilon),
            ROWS=block.rows,
            BLOCK=block.columns,
            EXACT=block.columns == rows.shape[1],
            num_warps=block.warps,
        )
    return y, scales


def backward(x: torch.Tensor, weight: torch.Tensor, scales: torch.Tensor, dy: torch.Tensor) -> Two:
    """Return dx and the gradient of the weight."""
    dx = torch.empty(x.shape, device=x.device, dtype=x.dtype)
    if not x.numel():
        return dx, torch.zeros_like(weight, memory_format=torch.contiguous_format)
    dweight = torch.empty(weight.shape, device=x.device, dtype=weight.dtype)
    rows, drows, out = as_rows(x), as_rows(dy), as_rows(dx)
    count, columns = rows.shape
    block = _backward_block(rows)
    programs = min(triton.cdiv(count, block.rows), _programs(rows))
    sums = torch.empty((programs, columns), device=x.device, dtype=torch.float32)
    with device_of(x):
        backward_kernel[(programs,)](
            *(rows, weight.contiguous(), scales, drows, out, sums, count, columns),
            *(matrix.stride(0) for matrix in (rows, drows, out)),
            ROWS=block.rows,
            BLOCK=block.columns,
            EXACT=block.columns == columns,
            STAGES=_stages(rows),
            num_warps=block.warps,
        )
        sum_kernel[(triton.cdiv(columns, SUM_BLOCK),)](
            *(sums, dweight, programs, columns),
            ROWS=SUM_ROWS,
            BLOCK=SUM_BLOCK,
            num_warps=SUM_WARPS,
        )
    return dx, dweight


def check(x: torch.Tensor, weight: torch.Tensor) -> None:
    """Refuse operands that have no RMS norm here."""
    require("rms_norm", x, weight)
    if x.dim() == 0 or x.shape[-1] > LONGEST_ROW:
        raise Unsupported(
            f"rms_norm takes rows of at most {LONGEST_ROW} numbers, not shape {tuple(x.shape)}"
        )
    if weight.shape != x.shape[-1:]:
        raise Unsupported(
            f"rms_norm of rows of {x.shape[-1]} numbers takes a weight for each, not shape"
            f" {tuple(weight.shape)}"
        )


def _block(rows: torch.Tensor) -> Block:
    """Return 16 columns a thread, and as many rows as make two warps of them, at the least."""
    columns = block_of(rows.shape[1])
    if not rows.is_cuda:
        return Block(rows=max(1, INTERPRETED_BLOCK // columns), columns=columns, warps=1)
    return Block(
        rows=max(1, 1024 // columns), columns=columns, warps=min(32, max(2, columns // 512))
    )


def _backward_block(rows: torch.Tensor) -> Block:
    """Return what a program holds backward: 32 columns a thread, of long rows 64; no single warp.

    From 32,768 columns on it has all the warps that there are: with 64 columns a thread most spill.
    """
    block = _block(rows)
    if block.columns >= LONG_ROW:
        return replace(block, warps=32)
    per_warp = 1024 if block.columns < AHEAD_COLUMNS else 2048
    return replace(block, warps=max(2, block.columns // per_warp))


def _programs(rows: torch.Tensor) -> int:
    """Return how many programs share the rows in the backward pass; few where interpreted."""
    if not rows.is_cuda:
        return MIN_PROGRAMS
    fitting = COLUMNS_PER_MULTIPROCESSOR // block_of(rows.shape[1])
    each = max(MIN_PROGRAMS, min(MAX_PROGRAMS, fitting))
    return each * int(properties_of(rows).multi_processor_count)


def _stages(rows: torch.Tensor) -> int:
    """Return 2 where a turn's x and dy are loaded while the one before is computed."""
    columns = block_of(rows.shape[1])
    ahead = columns >= AHEAD_COLUMNS and 2 * columns * rows.element_size() <= AHEAD_BYTES
    return 2 if ahead else 1
