# SPDX-License-Identifier: Apache-2.0
"""Softmax and its gradient in Triton: three ways to walk a row, forward and backward of each.

rows    A program holds ROWS whole rows in registers. Programs that stay for all rows, or take
        several turns while the next rows are being copied to shared memory, were slower: the
        hardware hands out new programs to whichever multiprocessor is ahead.

chunks  A program takes one row in up to 16 unrolled chunks and reads it again. Memory sends a row
        once: what is read again lies in the L1 or L2 cache, where the first reading asks to be kept
        and the last one to be forgotten. Few registers let more programs share a multiprocessor,
        so some load while others store; and lines that are marked as used up leave the L2 cache to
        the results, which then reach memory in longer runs.

passes  The same in a loop, for a row of any length. Forward keeps, for each position of a chunk,
        the largest value so far and the sum of exponentials relative to it ("online"), so that one
        pass finds both the row's largest value and its sum.

EXACT says that a row fills its blocks, which then need no mask. Rows are counted in 64 bits: of one
column, there may be more than 32 bits count.

Shape suffixes: R rows, N columns, of one program's block or chunk.
"""

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)
NONE = tl.constexpr(float("-inf"))


@triton.jit
def load(at, inside, nothing: tl.constexpr, KEEP: tl.constexpr, EXACT: tl.constexpr):
    """Read values in 32 bits; KEEP is the cache hint for values that are read again."""
    if EXACT:
        values = tl.load(at, eviction_policy=KEEP)
    else:
        values = tl.load(at, mask=inside, other=nothing, eviction_policy=KEEP)
    return values.to(tl.float32)


@triton.jit
def store(at, values, inside, EXACT: tl.constexpr):
    """Write values that are not read here again, rounded to their type."""
    values = values.to(at.dtype.element_ty)
    if EXACT:
        tl.store(at, values, cache_modifier=".cs")
    else:
        tl.store(at, values, mask=inside, cache_modifier=".cs")


@triton.jit
def rows_of_program(count, ROWS: tl.constexpr):
    """Return this program's rows; beyond the last one that one again, which needs no mask."""
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
    # No hint to the cache where values are read once: "evict_first" cost 2 to 4 %.
    x = load(x_ptr + rows_R[:, None] * stride_x + columns_N[None, :], inside_RN, NONE, "", EXACT)
    top_R = tl.max(x, 1)
    # exp2 is the hardware's own; the subtraction before the product keeps equal values exact.
    e = tl.exp2((x - top_R[:, None]) * LOG2_E)
    y = e * (1.0 / tl.sum(e, 1))[:, None]
    store(y_ptr + rows_R[:, None] * stride_y + columns_N[None, :], y, inside_RN, EXACT)


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
    y = load(y_ptr + rows_R[:, None] * stride_y + columns_N[None, :], inside_RN, 0.0, "", EXACT)
    dy = load(dy_ptr + rows_R[:, None] * stride_dy + columns_N[None, :], inside_RN, 0.0, "", EXACT)
    dx = y * (dy - tl.sum(y * dy, 1)[:, None])
    store(dx_ptr + rows_R[:, None] * stride_dx + columns_N[None, :], dx, inside_RN, EXACT)


@triton.jit
def forward_chunks_kernel(
    x_ptr,
    y_ptr,
    columns,
    stride_x,
    stride_y,
    CHUNK: tl.constexpr,
    CHUNKS: tl.constexpr,
    EXACT: tl.constexpr,
    LOOKS: tl.constexpr,
):
    """Write softmax of the row of this program.

    With two LOOKS the sum is taken of the values that the search for the largest one has left in
    registers (the compiler finds that); with three the row is read for that as well, where it is
    too long for the registers of a program.
    """
    AGAIN: tl.constexpr = "evict_last" if LOOKS == 2 else ""  # noqa: PLR2004  see above
    row = tl.program_id(0).to(tl.int64)
    positions_N = tl.arange(0, CHUNK)
    x_N = x_ptr + row * stride_x + positions_N
    y_N = y_ptr + row * stride_y + positions_N
    top_N = tl.full((CHUNK,), NONE, tl.float32)
    for chunk in tl.static_range(CHUNKS):
        done = chunk * CHUNK
        x = load(x_N + done, positions_N < columns - done, NONE, "evict_last", EXACT)
        top_N = tl.maximum(top_N, x)
    top = tl.max(top_N, 0)
    sum_N = tl.zeros((CHUNK,), tl.float32)
    for chunk in tl.static_range(CHUNKS):
        done = chunk * CHUNK
        x = load(x_N + done, positions_N < columns - done, NONE, AGAIN, EXACT)
        sum_N += tl.exp2((x - top) * LOG2_E)
    scale = 1.0 / tl.sum(sum_N, 0)
    for chunk in tl.static_range(CHUNKS):
        done = chunk * CHUNK
        inside_N = positions_N < columns - done
        x = load(x_N + done, inside_N, NONE, "evict_first", EXACT)
        store(y_N + done, tl.exp2((x - top) * LOG2_E) * scale, inside_N, EXACT)


@triton.jit
def backward_chunks_kernel(
    y_ptr,
    dy_ptr,
    dx_ptr,
    columns,
    stride_y,
    stride_dy,
    stride_dx,
    CHUNK: tl.constexpr,
    CHUNKS: tl.constexpr,
    EXACT: tl.constexpr,
):
    """Write the gradient of x for the row of this program."""
    row = tl.program_id(0).to(tl.int64)
    positions_N = tl.arange(0, CHUNK)
    y_N = y_ptr + row * stride_y + positions_N
    dy_N = dy_ptr + row * stride_dy + positions_N
    dx_N = dx_ptr + row * stride_dx + positions_N
    dot_N = tl.zeros((CHUNK,), tl.float32)
    for chunk in tl.static_range(CHUNKS):
        done = chunk * CHUNK
        inside_N = positions_N < columns - done
        y = load(y_N + done, inside_N, 0.0, "evict_last", EXACT)
        dot_N += y * load(dy_N + done, inside_N, 0.0, "evict_last", EXACT)
    dot = tl.sum(dot_N, 0)
    for chunk in tl.static_range(CHUNKS):
        done = chunk * CHUNK
        inside_N = positions_N < columns - done
        y = load(y_N + done, inside_N, 0.0, "evict_first", EXACT)
        dy = load(dy_N + done, inside_N, 0.0, "evict_first", EXACT)
        store(dx_N + done, y * (dy - dot), inside_N, EXACT)


@triton.jit
def forward_passes_kernel(
    x_ptr,
    y_ptr,
    columns,
    stride_x,
    stride_y,
    CHUNK: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Write softmax of the row of this program."""
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * stride_x
    y_ptr += row * stride_y
    positions_N = tl.arange(0, CHUNK)
    top_N = tl.full((CHUNK,), NONE, tl.float32)
    sum_N = tl.zeros((CHUNK,), tl.float32)
    for start in tl.range(0, columns, CHUNK, num_stages=STAGES):
        columns_N = start + positions_N
        x = load(x_ptr + columns_N, columns_N < columns, NONE, "evict_last", EXACT=False)
        higher_N = tl.maximum(top_N, x)
        # A position that has seen nothing yet: infinity minus infinity would be no number.
        base_N = tl.where(higher_N == NONE, 0.0, higher_N)
        sum_N = sum_N * tl.exp2((top_N - base_N) * LOG2_E) + tl.exp2((x - base_N) * LOG2_E)
        top_N = higher_N
    top = tl.max(top_N, 0)
    scale = 1.0 / tl.sum(sum_N * tl.exp2((top_N - top) * LOG2_E), 0)
    for start in tl.range(0, columns, CHUNK, num_stages=STAGES):
        columns_N = start + positions_N
        x = load(x_ptr + columns_N, columns_N < columns, NONE, "evict_first", EXACT=False)
        y = tl.exp2((x - top) * LOG2_E) * scale
        store(y_ptr + columns_N, y, columns_N < columns, EXACT=False)


@triton.jit
def backward_passes_kernel(
    y_ptr,
    dy_ptr,
    dx_ptr,
    columns,
    stride_y,
    stride_dy,
    stride_dx,
    CHUNK: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Write the gradient of x for the row of this program."""
    row = tl.program_id(0).to(tl.int64)
    y_ptr += row * stride_y
    dy_ptr += row * stride_dy
    dx_ptr += row * stride_dx
    positions_N = tl.arange(0, CHUNK)
    dot_N = tl.zeros((CHUNK,), tl.float32)
    for start in tl.range(0, columns, CHUNK, num_stages=STAGES):
        columns_N = start + positions_N
        y = load(y_ptr + columns_N, columns_N < columns, 0.0, "evict_last", EXACT=False)
        dot_N += y * load(dy_ptr + columns_N, columns_N < columns, 0.0, "evict_last", EXACT=False)
    dot = tl.sum(dot_N, 0)
    for start in tl.range(0, columns, CHUNK, num_stages=STAGES):
        columns_N = start + positions_N
        y = load(y_ptr + columns_N, columns_N < columns, 0.0, "evict_first", EXACT=False)
        dy = load(dy_ptr + columns_N, columns_N < columns, 0.0, "evict_first", EXACT=False)
        store(dx_ptr + columns_N, y * (dy - dot), columns_N < columns, EXACT=False)
