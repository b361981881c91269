# SPDX-License-Identifier: Apache-2.0
"""RMS norm and its gradients in Triton: a program holds whole rows in registers.

Backward, there are a few programs for each multiprocessor, which share all rows. Each keeps the sum
of its rows' gradients of the weight in registers, and `sum_kernel` adds up what programs leave. So
nothing is read twice.

EXACT says that a row fills its block, which then needs no mask. Rows are counted in 64 bits.

Shape suffixes: R rows, N columns, of one program's block.
"""

import triton
import triton.language as tl


@triton.jit
def load(at, inside, EXACT: tl.constexpr):
    """Read values in 32 bits."""
    values = tl.load(at) if EXACT else tl.load(at, mask=inside, other=0.0)
    return values.to(tl.float32)


@triton.jit
def store(at, values, inside, EXACT: tl.constexpr):
    """Write values, rounded to their type."""
    values = values.to(at.dtype.element_ty)
    if EXACT:
        tl.store(at, values)
    else:
        tl.store(at, values, mask=inside)


@triton.jit
def forward_kernel(
    x_ptr,
    weight_ptr,
    y_ptr,
    scales_ptr,
    count,
    columns,
    stride_x,
    stride_y,
    epsilon,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    EXACT: tl.constexpr,
):
    """Write y and r of the rows of this program; beyond the last one that one again."""
    first = tl.program_id(0).to(tl.int64) * ROWS
    rows_R = tl.minimum(first + tl.arange(0, ROWS), count - 1)
    columns_N = tl.arange(0, BLOCK)
    inside_N = columns_N < columns
    x = load(x_ptr + rows_R[:, None] * stride_x + columns_N[None, :], inside_N[None, :], EXACT)
    weight_N = load(weight_ptr + columns_N, inside_N, EXACT)
    scale_R = tl.rsqrt(tl.sum(x * x, 1) / columns + epsilon)
    y = x * scale_R[:, None] * weight_N[None, :]
    store(y_ptr + rows_R[:, None] * stride_y + columns_N[None, :], y, inside_N[None, :], EXACT)
    tl.store(scales_ptr + rows_R, scale_R)


@triton.jit
def backward_kernel(
    x_ptr,
    weight_ptr,
    scales_ptr,
    dy_ptr,
    dx_ptr,
    sums_ptr,
    count,
    columns,
    stride_x,
    stride_dy,
    stride_dx,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    EXACT: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Write dx of the rows of this program, and the sum of dy x r over them."""
    # One row at a time lies inside whenever there is a turn for it.
    WHOLE: tl.constexpr = EXACT and ROWS == 1
    program = tl.program_id(0).to(tl.int64)
    step = tl.num_programs(0).to(tl.int64) * ROWS
    mine_R = program * ROWS + tl.arange(0, ROWS)
    # In 32 bits, unlike rows.
    turns = tl.cdiv(count - program * ROWS, step).to(tl.int32)
    columns_N = tl.arange(0, BLOCK)
    inside_N = columns_N < columns
    weight_N = load(weight_ptr + columns_N, inside_N, EXACT)
    sum_RN = tl.zeros((ROWS, BLOCK), tl.float32)
    for turn in tl.range(0, turns, num_stages=STAGES):
        rows_R = mine_R + turn * step
        inside_R = rows_R < count
        inside_RN = inside_R[:, None] & inside_N[None, :]
        x = load(x_ptr + rows_R[:, None] * stride_x + columns_N[None, :], inside_RN, WHOLE)
        dy = load(dy_ptr + rows_R[:, None] * stride_dy + columns_N[None, :], inside_RN, WHOLE)
        scale_R = tl.load(scales_ptr + rows_R, mask=inside_R, other=0.0)
        normal = x * scale_R[:, None]
        g = dy * weight_N[None, :]
        mean_R = tl.sum(g * normal, 1) / columns
        dx = (g - normal * mean_R[:, None]) * scale_R[:, None]
        sum_RN += dy * normal
        store(dx_ptr + rows_R[:, None] * stride_dx + columns_N[None, :], dx, inside_RN, WHOLE)
    tl.store(sums_ptr + program * columns + columns_N, tl.sum(sum_RN, 0), mask=inside_N)


@triton.jit
def sum_kernel(
    sums_ptr,
    result_ptr,
    rows,
    columns,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Add up a block of columns of what `backward_kernel` has left."""
    columns_N = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside_N = columns_N < columns
    sum_RN = tl.zeros((ROWS, BLOCK), tl.float32)
    for first in range(0, rows, ROWS):
        rows_R = first + tl.arange(0, ROWS)
        inside_RN = (rows_R < rows)[:, None] & inside_N[None, :]
        at_RN = sums_ptr + rows_R[:, None] * columns + columns_N[None, :]
        sum_RN += tl.load(at_RN, mask=inside_RN, other=0.0)
    total_N = tl.sum(sum_RN, 0).to(result_ptr.dtype.element_ty)
    tl.store(result_ptr + columns_N, total_N, mask=inside_N)
