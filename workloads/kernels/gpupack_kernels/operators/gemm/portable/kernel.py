# SPDX-License-Identifier: Apache-2.0
"""The GEMM kernel: one program computes one tile of C.

Programs that run at the same time should share rows of A and columns of B in the L2 cache, so tiles
are walked in groups of GROUP_M rows of tiles, down first, then right.

Offsets are 64-bit: a matrix of 65536 x 65536 has more elements than 32 bits count.

Shape suffixes: M rows, N columns, K the summed dimension, of one tile.
"""

import triton
import triton.language as tl

# Looks at a flag before a program goes on all the same, with a wrong result: a transfer that never
# comes must not leave a kernel that runs for ever.
MAX_POLLS: tl.constexpr = tl.constexpr(2**24)


@triton.jit
def sum_kernel(sums_ptr, c_ptr, elements, SPLITS: tl.constexpr, BLOCK: tl.constexpr):
    """Write a block of C: the sum of SPLITS matrices in 32 bits, one below the other."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < elements
    total = tl.zeros((BLOCK,), tl.float32)
    for split in tl.static_range(SPLITS):
        total += tl.load(sums_ptr + split * elements + at, mask=inside, other=0.0)
    tl.store(c_ptr + at, total.to(c_ptr.dtype.element_ty), mask=inside)


@triton.jit
def gemm_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_cm,
    stride_cn,
    arrived_ptr,
    first_tile,
    part_rows,
    TILE_M: tl.constexpr,
    TILE_N: tl.constexpr,
    TILE_K: tl.constexpr,
    GROUP_M: tl.constexpr,
):
    """Compute the tile of C that belongs to this program.

    Where A still arrives (`arrived_ptr` is not None), programs begin with the rows of `first_tile`
    and go round, and each waits until the parts of A with its rows have arrived: flag i of
    `arrived_ptr` is not 0 once the rows from i * part_rows on, as many as that, are there.
    """
    program = tl.program_id(0)
    tiles_m = tl.cdiv(M, TILE_M)
    tiles_n = tl.cdiv(N, TILE_N)
    group = program // (GROUP_M * tiles_n)
    first_m = group * GROUP_M
    group_rows = min(tiles_m - first_m, GROUP_M)
    within = program % (GROUP_M * tiles_n)
    tile_m = first_m + within % group_rows
    tile_n = within // group_rows
    if arrived_ptr is not None:
        tile_m = (tile_m + first_tile) % tiles_m
        last_row = min((tile_m + 1) * TILE_M, M) - 1
        part = tile_m * TILE_M // part_rows
        while part <= last_row // part_rows:
            polls = 0
            here = tl.atomic_add(arrived_ptr + part, 0, sem="acquire", scope="sys")
            while (here == 0) & (polls < MAX_POLLS):
                here = tl.atomic_add(arrived_ptr + part, 0, sem="acquire", scope="sys")
                polls += 1
            part += 1

    rows_M = tile_m.to(tl.int64) * TILE_M + tl.arange(0, TILE_M)
    columns_N = tile_n.to(tl.int64) * TILE_N + tl.arange(0, TILE_N)
    depth_K = tl.arange(0, TILE_K).to(tl.int64)
    a_MK = a_ptr + rows_M[:, None] * stride_am + depth_K[None, :] * stride_ak
    b_KN = b_ptr + depth_K[:, None] * stride_bk + columns_N[None, :] * stride_bn
    rows_in = rows_M[:, None] < M
    columns_in = columns_N[None, :] < N

    sum_MN = tl.zeros((TILE_M, TILE_N), dtype=tl.float32)
    for done in range(0, K, TILE_K):
        left = K - done
        a = tl.load(a_MK, mask=rows_in & (depth_K[None, :] < left), other=0.0)
        b = tl.load(b_KN, mask=(depth_K[:, None] < left) & columns_in, other=0.0)
        # "ieee": TF32 would give fp32 inputs the precision of fp16.
        sum_MN = tl.dot(a, b, sum_MN, input_precision="ieee")
        a_MK += TILE_K * stride_ak
        b_KN += TILE_K * stride_bk

    c_MN = c_ptr + rows_M[:, None] * stride_cm + columns_N[None, :] * stride_cn
    tl.store(c_MN, sum_MN.to(c_ptr.dtype.element_ty), mask=rows_in & columns_in)
