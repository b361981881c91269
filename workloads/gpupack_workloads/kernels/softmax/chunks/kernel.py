# SPDX-License-Identifier: Apache-2.0
"""Softmax kernels for rows of several chunks: one program takes one row and reads it again.

Memory sends a row once: what is read again lies in the L1 or L2 cache, where the first reading asks
to be kept and the last one to be forgotten. That is faster than holding the row in registers. Few
registers let more programs share a multiprocessor, so some load while others store; and lines that
are marked as used up leave the L2 cache to the results, which then reach memory in longer runs.

LOOKS: how often forward reads a row. With 2, the sum is taken of the values that the search for the
largest one has left in registers (the compiler finds that); with 3 it is read for that as well,
where a row is too long for the registers of a program.

The chunks are unrolled: a row has up to 16 of them.

Shape suffix: N columns of one chunk.
"""

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)
NONE = tl.constexpr(float("-inf"))


@triton.jit
def look(row_N, left, positions_N, nothing: tl.constexpr, KEEP: tl.constexpr, EXACT: tl.constexpr):
    """Read a chunk, of which `left` columns are there, and say whether the cache should keep it."""
    if EXACT:
        values = tl.load(row_N, eviction_policy=KEEP)
    else:
        values = tl.load(row_N, mask=positions_N < left, other=nothing, eviction_policy=KEEP)
    return values.to(tl.float32)


@triton.jit
def put(row_N, values, left, positions_N, EXACT: tl.constexpr):
    """Write a chunk, rounded to its type, which nobody here reads again."""
    values = values.to(row_N.dtype.element_ty)
    if EXACT:
        tl.store(row_N, values, cache_modifier=".cs")
    else:
        tl.store(row_N, values, mask=positions_N < left, cache_modifier=".cs")


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
    """Write softmax of the row of this program; EXACT says that its chunks are full."""
    AGAIN: tl.constexpr = "evict_last" if LOOKS == 2 else ""  # noqa: PLR2004  see above
    row = tl.program_id(0).to(tl.int64)
    positions_N = tl.arange(0, CHUNK)
    x_N = x_ptr + row * stride_x + positions_N
    y_N = y_ptr + row * stride_y + positions_N
    top_N = tl.full((CHUNK,), NONE, tl.float32)
    for chunk in tl.static_range(CHUNKS):
        done = chunk * CHUNK
        x = look(x_N + done, columns - done, positions_N, NONE, "evict_last", EXACT)
        top_N = tl.maximum(top_N, x)
    top = tl.max(top_N, 0)
    sum_N = tl.zeros((CHUNK,), tl.float32)
    for chunk in tl.static_range(CHUNKS):
        done = chunk * CHUNK
        x = look(x_N + done, columns - done, positions_N, NONE, AGAIN, EXACT)
        sum_N += tl.exp2((x - top) * LOG2_E)
    scale = 1.0 / tl.sum(sum_N, 0)
    for chunk in tl.static_range(CHUNKS):
        done = chunk * CHUNK
        x = look(x_N + done, columns - done, positions_N, NONE, "evict_first", EXACT)
        y = tl.exp2((x - top) * LOG2_E) * scale
        put(y_N + done, y, columns - done, positions_N, EXACT)


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
        y = look(y_N + done, columns - done, positions_N, 0.0, "evict_last", EXACT)
        dy = look(dy_N + done, columns - done, positions_N, 0.0, "evict_last", EXACT)
        dot_N += y * dy
    dot = tl.sum(dot_N, 0)
    for chunk in tl.static_range(CHUNKS):
        done = chunk * CHUNK
        y = look(y_N + done, columns - done, positions_N, 0.0, "evict_first", EXACT)
        dy = look(dy_N + done, columns - done, positions_N, 0.0, "evict_first", EXACT)
        put(dx_N + done, y * (dy - dot), columns - done, positions_N, EXACT)
