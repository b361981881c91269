# SPDX-License-Identifier: Apache-2.0
"""Softmax kernels for rows of any length: one program takes a row, in two passes over chunks of it.

Forward keeps, for each position of a chunk, the largest value so far and the sum of exponentials
relative to it ("online"), so that one pass finds both the row's largest value and its sum.

Shape suffix: N columns of one chunk.
"""

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)
NONE = tl.constexpr(float("-inf"))


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
        x = tl.load(
            x_ptr + columns_N, mask=columns_N < columns, other=NONE, eviction_policy="evict_last"
        ).to(tl.float32)
        higher_N = tl.maximum(top_N, x)
        # A position that has seen nothing yet: infinity minus infinity would be no number.
        base_N = tl.where(higher_N == NONE, 0.0, higher_N)
        sum_N = sum_N * tl.exp2((top_N - base_N) * LOG2_E) + tl.exp2((x - base_N) * LOG2_E)
        top_N = higher_N
    top = tl.max(top_N, 0)
    scale = 1.0 / tl.sum(sum_N * tl.exp2((top_N - top) * LOG2_E), 0)
    for start in tl.range(0, columns, CHUNK, num_stages=STAGES):
        columns_N = start + positions_N
        inside_N = columns_N < columns
        x = tl.load(x_ptr + columns_N, mask=inside_N, other=NONE, eviction_policy="evict_first")
        y = tl.exp2((x.to(tl.float32) - top) * LOG2_E) * scale
        tl.store(
            y_ptr + columns_N, y.to(y_ptr.dtype.element_ty), mask=inside_N, cache_modifier=".cs"
        )


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
        inside_N = columns_N < columns
        y = tl.load(y_ptr + columns_N, mask=inside_N, other=0.0, eviction_policy="evict_last")
        dy = tl.load(dy_ptr + columns_N, mask=inside_N, other=0.0, eviction_policy="evict_last")
        dot_N += y.to(tl.float32) * dy.to(tl.float32)
    dot = tl.sum(dot_N, 0)
    for start in tl.range(0, columns, CHUNK, num_stages=STAGES):
        columns_N = start + positions_N
        inside_N = columns_N < columns
        y = tl.load(y_ptr + columns_N, mask=inside_N, other=0.0, eviction_policy="evict_first")
        dy = tl.load(dy_ptr + columns_N, mask=inside_N, other=0.0, eviction_policy="evict_first")
        dx = y.to(tl.float32) * (dy.to(tl.float32) - dot)
        tl.store(
            dx_ptr + columns_N, dx.to(dx_ptr.dtype.element_ty), mask=inside_N, cache_modifier=".cs"
        )
