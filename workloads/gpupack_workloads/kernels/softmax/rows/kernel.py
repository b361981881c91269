# SPDX-License-Identifier: Apache-2.0
"""Softmax kernels that hold whole rows in registers: one program takes ROWS rows at once.

EXACT says that a row fills the block. Programs that stay for all rows, or take several turns while
the next rows are being copied to shared memory, were slower: the hardware hands out new programs to
whichever multiprocessor is ahead.

Shape suffixes: R rows, N columns, of one program's block.
"""

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def load_rows(rows_RN, inside_RN, nothing: tl.constexpr, EXACT: tl.constexpr):
    """Read rows; no hint to the cache: "evict_first" cost 2 to 4%."""
    values = tl.load(rows_RN) if EXACT else tl.load(rows_RN, mask=inside_RN, other=nothing)
    return values.to(tl.float32)


@triton.jit
def store_rows(rows_RN, values, inside_RN, EXACT: tl.constexpr):
    """Write rows that nobody here reads again, rounded to their type."""
    values = values.to(rows_RN.dtype.element_ty)
    if EXACT:
        tl.store(rows_RN, values, cache_modifier=".cs")
    else:
        tl.store(rows_RN, values, mask=inside_RN, cache_modifier=".cs")


@triton.jit
def rows_of_program(count, ROWS: tl.constexpr):
    """Return this program's rows; beyond the last one that one again, which needs no mask."""
    # Of one column, there may be more rows than 32 bits count.
    first = tl.program_id(0).to(tl.int64) * ROWS
    return tl.minimum(first + tl.arange(0, ROWS), count - 1)


@triton.jit
def forward_rows_kernel(
    x_ptr,
    y_ptr,
    count,
    columns,
    stride_x,
    stride_y,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    EXACT: tl.constexpr,
):
    """Write softmax of the rows of this program."""
    rows_R = rows_of_program(count, ROWS)
    columns_N = tl.arange(0, BLOCK)
    inside_RN = (columns_N < columns)[None, :]
    x_RN = x_ptr + rows_R[:, None] * stride_x + columns_N[None, :]
    x = load_rows(x_RN, inside_RN, float("-inf"), EXACT)
    top_R = tl.max(x, 1)
    # exp2 is the hardware's own; the subtraction before the product keeps equal values exact.
    e = tl.exp2((x - top_R[:, None]) * LOG2_E)
    y = e * (1.0 / tl.sum(e, 1))[:, None]
    y_RN = y_ptr + rows_R[:, None] * stride_y + columns_N[None, :]
    store_rows(y_RN, y, inside_RN, EXACT)


@triton.jit
def backward_rows_kernel(
    y_ptr,
    dy_ptr,
    dx_ptr,
    count,
    columns,
    stride_y,
    stride_dy,
    stride_dx,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    EXACT: tl.constexpr,
):
    """Write the gradient of x for the rows of this program."""
    rows_R = rows_of_program(count, ROWS)
    columns_N = tl.arange(0, BLOCK)
    inside_RN = (columns_N < columns)[None, :]
    y = load_rows(y_ptr + rows_R[:, None] * stride_y + columns_N[None, :], inside_RN, 0.0, EXACT)
    dy = load_rows(dy_ptr + rows_R[:, None] * stride_dy + columns_N[None, :], inside_RN, 0.0, EXACT)
    dx = y * (dy - tl.sum(y * dy, 1)[:, None])
    dx_RN = dx_ptr + rows_R[:, None] * stride_dx + columns_N[None, :]
    store_rows(dx_RN, dx, inside_RN, EXACT)
