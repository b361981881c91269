# SPDX-License-Identifier: Apache-2.0
"""Softmax kernels for long rows: a ring of chunks in shared memory feeds a program that stays.

A row of 128 KiB fills half of a multiprocessor's registers, so no second program could load while
the first one computes, and memory would idle. Here the copies into shared memory are asynchronous:
a chunk that has been used for the second time makes room, and the program asks at once for the
chunk that comes SLOTS later, which belongs to the next row or the one after it.

First use of a chunk: the row's sums. Second use: the result. The backward pass of a row of 32k
32-bit floats needs 256 KiB, more than there is: one chunk per row (HELD) stays in registers.

A thread reads from shared memory what it copied there itself, so each waits for its own copies
only, and the swizzle is none: a warp reads 512 consecutive bytes.

Items number the chunks of all rows of a program: item i is chunk i % CHUNKS of its row i // CHUNKS.
Written in Gluon, Triton's lower level, since Triton does not let a program say when a copy starts.

Shape suffix: N columns of one chunk.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy

# Its name until Triton 3.6, and since.
copy_async = getattr(async_copy, "async_load", None) or async_copy.async_copy_global_to_shared

LOG2_E = gl.constexpr(1.4426950408889634)
NONE = gl.constexpr(float("-inf"))


@gluon.jit
def fetch(
    source,
    ring,
    item,
    items,
    columns,
    stride,
    positions_N,
    CHUNKS: gl.constexpr,
    SLOTS: gl.constexpr,
    CHUNK: gl.constexpr,
):
    """Start copying an item into its slot; what is beyond the last item or column stays away."""
    row = gl.program_id(0) + (item // CHUNKS) * gl.num_programs(0)
    start = (item % CHUNKS) * CHUNK
    inside_N = (positions_N < columns - start) & (item < items)
    values_N = source + row.to(gl.int64) * stride + start + positions_N
    copy_async(ring.index(item % SLOTS), values_N, mask=inside_N)


@gluon.jit
def forward_ring_kernel(
    x_ptr,
    y_ptr,
    count,
    columns,
    stride_x,
    stride_y,
    CHUNK: gl.constexpr,
    CHUNKS: gl.constexpr,
    SLOTS: gl.constexpr,
):
    """Write softmax of every row of this program."""
    gl.static_assert(SLOTS >= CHUNKS)
    dtype: gl.constexpr = x_ptr.dtype.element_ty
    layout: gl.constexpr = gl.BlockedLayout(
        [128 // dtype.primitive_bitwidth], [32], [gl.num_warps()], [0]
    )
    plain: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, order=[0])
    ring = gl.allocate_shared_memory(dtype, [SLOTS, CHUNK], plain)
    positions_N = gl.arange(0, CHUNK, layout=layout)
    rows = gl.cdiv(count - gl.program_id(0), gl.num_programs(0))
    items = rows * CHUNKS
    for item in gl.static_range(SLOTS):
        fetch(x_ptr, ring, item, items, columns, stride_x, positions_N, CHUNKS, SLOTS, CHUNK)
        async_copy.commit_group()
    item = 0
    for turn in range(rows):
        row = (gl.program_id(0) + turn * gl.num_programs(0)).to(gl.int64)
        top_N = gl.full([CHUNK], NONE, gl.float32, layout)
        sum_N = gl.zeros([CHUNK], gl.float32, layout)
        for chunk in gl.static_range(CHUNKS):
            async_copy.wait_group(SLOTS - 1 - chunk)
            x = ring.index((item + chunk) % SLOTS).load(layout).to(gl.float32)
            x = gl.where(positions_N < columns - chunk * CHUNK, x, NONE)
            higher_N = gl.maximum(top_N, x)
            # A position that has seen nothing yet: infinity minus infinity would be no number.
            base_N = gl.where(higher_N == NONE, 0.0, higher_N)
            sum_N = sum_N * gl.exp2((top_N - base_N) * LOG2_E) + gl.exp2((x - base_N) * LOG2_E)
            top_N = higher_N
        top = gl.max(top_N, 0)
        scale = 1.0 / gl.sum(sum_N * gl.exp2((top_N - top) * LOG2_E), 0)
        for chunk in gl.static_range(CHUNKS):
            start = chunk * CHUNK
            x = ring.index((item + chunk) % SLOTS).load(layout).to(gl.float32)
            y = gl.exp2((x - top) * LOG2_E) * scale
            gl.store(
                y_ptr + row * stride_y + start + positions_N,
                y.to(dtype),
                mask=positions_N < columns - start,
                cache_modifier=".cs",
            )
            fetch(
                x_ptr,
                ring,
                item + chunk + SLOTS,
                items,
                columns,
                stride_x,
                positions_N,
                CHUNKS,
                SLOTS,
                CHUNK,
            )
            async_copy.commit_group()
        item += CHUNKS
    async_copy.wait_group(0)


@gluon.jit
def fetch_pair(
    y_ptr,
    dy_ptr,
    y_ring,
    dy_ring,
    item,
    items,
    columns,
    stride_y,
    stride_dy,
    positions_N,
    CHUNKS: gl.constexpr,
    SLOTS: gl.constexpr,
    CHUNK: gl.constexpr,
):
    """Start copying an item of both inputs."""
    fetch(y_ptr, y_ring, item, items, columns, stride_y, positions_N, CHUNKS, SLOTS, CHUNK)
    fetch(dy_ptr, dy_ring, item, items, columns, stride_dy, positions_N, CHUNKS, SLOTS, CHUNK)
    async_copy.commit_group()


@gluon.jit
def backward_ring_kernel(
    y_ptr,
    dy_ptr,
    dx_ptr,
    count,
    columns,
    stride_y,
    stride_dy,
    stride_dx,
    CHUNK: gl.constexpr,
    CHUNKS: gl.constexpr,
    SLOTS: gl.constexpr,
    HELD: gl.constexpr,
):
    """Write the gradient of x for every row of this program; CHUNKS are those in the ring."""
    gl.static_assert(SLOTS >= CHUNKS)
    dtype: gl.constexpr = y_ptr.dtype.element_ty
    layout: gl.constexpr = gl.BlockedLayout(
        [128 // dtype.primitive_bitwidth], [32], [gl.num_warps()], [0]
    )
    plain: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, order=[0])
    y_ring = gl.allocate_shared_memory(dtype, [SLOTS, CHUNK], plain)
    dy_ring = gl.allocate_shared_memory(dtype, [SLOTS, CHUNK], plain)
    positions_N = gl.arange(0, CHUNK, layout=layout)
    rows = gl.cdiv(count - gl.program_id(0), gl.num_programs(0))
    items = rows * CHUNKS
    for item in gl.static_range(SLOTS):
        fetch_pair(
            y_ptr,
            dy_ptr,
            y_ring,
            dy_ring,
            item,
            items,
            columns,
            stride_y,
            stride_dy,
            positions_N,
            CHUNKS,
            SLOTS,
            CHUNK,
        )
    item = 0
    held_N = CHUNKS * CHUNK + positions_N
    for turn in range(rows):
        row = (gl.program_id(0) + turn * gl.num_programs(0)).to(gl.int64)
        dot_N = gl.zeros([CHUNK], gl.float32, layout)
        if HELD:
            y_held = gl.load(y_ptr + row * stride_y + held_N, mask=held_N < columns, other=0.0)
            dy_held = gl.load(dy_ptr + row * stride_dy + held_N, mask=held_N < columns, other=0.0)
        for chunk in gl.static_range(CHUNKS):
            async_copy.wait_group(SLOTS - 1 - chunk)
            y = y_ring.index((item + chunk) % SLOTS).load(layout).to(gl.float32)
            dy = dy_ring.index((item + chunk) % SLOTS).load(layout).to(gl.float32)
            dot_N += gl.where(positions_N < columns - chunk * CHUNK, y * dy, 0.0)
        if HELD:
            dot_N += y_held.to(gl.float32) * dy_held.to(gl.float32)
        dot = gl.sum(dot_N, 0)
        if HELD:
            dx = y_held.to(gl.float32) * (dy_held.to(gl.float32) - dot)
            gl.store(
                dx_ptr + row * stride_dx + held_N,
                dx.to(dtype),
                mask=held_N < columns,
                cache_modifier=".cs",
            )
        for chunk in gl.static_range(CHUNKS):
            start = chunk * CHUNK
            y = y_ring.index((item + chunk) % SLOTS).load(layout).to(gl.float32)
            dy = dy_ring.index((item + chunk) % SLOTS).load(layout).to(gl.float32)
            gl.store(
                dx_ptr + row * stride_dx + start + positions_N,
                (y * (dy - dot)).to(dtype),
                mask=positions_N < columns - start,
                cache_modifier=".cs",
            )
            fetch_pair(
                y_ptr,
                dy_ptr,
                y_ring,
                dy_ring,
                item + chunk + SLOTS,
                items,
                columns,
                stride_y,
                stride_dy,
                positions_N,
                CHUNKS,
                SLOTS,
                CHUNK,
            )
        item += CHUNKS
    async_copy.wait_group(0)
