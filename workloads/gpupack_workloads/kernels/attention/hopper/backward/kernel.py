# SPDX-License-Identifier: Apache-2.0
"""The backward kernel for Hopper, in Gluon: all five products in one pass over the queries.

A program owns 128 rows of keys and values of one head and visits all tiles of TILE_M = 64 rows of
queries that see them, of every query head that shares this key head. dK and dV stay in registers;
dQ, to which all programs of a head contribute, is added to fp32 memory. Two kernels, one for dK and
dV and one for dQ, would need no addition in memory, but seven products instead of five.

Scores are computed transposed, S' = K Q', so that P' and dS' are where the products for dV and dK
want their left operand. Only dS' also goes to shared memory, for dQ = dS K. One warp loads; eight
compute. The product for dK is still running when the next tile's scores are issued.

dQ is kept in tiles of 8 x 8 elements, each 256 bytes in a row: what the 32 threads of a warp hold
of it after a product is then contiguous, and an addition is one full request.

Shape suffixes: N rows of keys, M rows of queries of one tile, D the head dimension.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_init,
    warpgroup_mma_wait,
)

from gpupack_workloads.kernels.attention.hopper.kernel import copy_in, copy_out


@gluon.jit
def shifted(tile, turn, first_m, tiles_m):
    """Return the tile that is visited in the place of `tile`: programs start at different ones."""
    tile += turn
    return gl.where(tile >= tiles_m, tile - (tiles_m - first_m), tile)


@gluon.jit
def load_tiles(
    q_desc,
    k_desc,
    v_desc,
    do_desc,
    q_tiles,
    k_tile,
    v_tile,
    do_tiles,
    kv_ready,
    q_ready,
    q_empty,
    do_ready,
    do_empty,
    batch,
    kv_head,
    key,
    first_m,
    tiles_m,
    heads_per_kv,
    turn,
    STAGES: gl.constexpr,
):
    """Load K and V once, and Q and dO tile by tile, as buffers become free."""
    M: gl.constexpr = q_desc.block_type.shape[2]
    mbarrier.expect(kv_ready.index(0), k_desc.block_type.nbytes)
    copy_in(k_desc, [batch, kv_head, key, 0], kv_ready.index(0), k_tile)
    mbarrier.expect(kv_ready.index(1), v_desc.block_type.nbytes)
    copy_in(v_desc, [batch, kv_head, key, 0], kv_ready.index(1), v_tile)
    i = 0
    for member in range(heads_per_kv):
        head = kv_head * heads_per_kv + member
        for tile in range(first_m, tiles_m):
            row = shifted(tile, turn, first_m, tiles_m) * M
            stage = i % STAGES
            phase = ((i // STAGES) & 1) ^ 1
            mbarrier.wait(q_empty.index(stage), phase)
            mbarrier.expect(q_ready.index(stage), q_desc.block_type.nbytes)
            copy_in(q_desc, [batch, head, row, 0], q_ready.index(stage), q_tiles.index(stage))
            mbarrier.wait(do_empty.index(stage), phase)
            mbarrier.expect(do_ready.index(stage), do_desc.block_type.nbytes)
            copy_in(do_desc, [batch, head, row, 0], do_ready.index(stage), do_tiles.index(stage))
            i += 1


@gluon.jit
def accumulate(
    dk_desc,
    dv_desc,
    dq_ptr,
    lse_ptr,
    delta_ptr,
    q_tiles,
    k_tile,
    v_tile,
    do_tiles,
    ds_tiles,
    kv_ready,
    q_ready,
    q_empty,
    do_ready,
    do_empty,
    batch,
    kv_head,
    key,
    first_m,
    tiles_m,
    rows,
    keys,
    kv_heads,
    heads_per_kv,
    turn,
    scale,
    scale_log2,
    CAUSAL: gl.constexpr,
    RAGGED: gl.constexpr,
    STAGES: gl.constexpr,
):
    """Compute dK and dV of 128 rows, and what they contribute to dQ."""
    M: gl.constexpr = q_tiles.shape[3]
    N: gl.constexpr = dk_desc.block_type.shape[2]
    D: gl.constexpr = dk_desc.block_type.shape[3]
    WARPS: gl.constexpr = gl.num_warps()
    dtype: gl.constexpr = dk_desc.dtype
    S_NM: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [WARPS, 1], [16, M, 16])
    DK_ND: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [WARPS, 1], [16, D, 16])
    DQ_MD: gl.constexpr = gl.NVMMADistributedLayout(
        [3, 0], [4, WARPS // 4], [16, D * 4 // WARPS, 16]
    )
    P_NM: gl.constexpr = gl.DotOperandLayout(0, DK_ND, 2)
    COLUMN: gl.constexpr = gl.SliceLayout(0, S_NM)

    k = k_tile.reshape([N, D])
    v = v_tile.reshape([N, D])
    zero_s = gl.zeros([N, M], gl.float32, S_NM)
    zero_dq = gl.zeros([M, D], gl.float32, DQ_MD)
    dk = warpgroup_mma_init(gl.zeros([N, D], gl.float32, DK_ND))
    dv = warpgroup_mma_init(gl.zeros([N, D], gl.float32, DK_ND))
    columns_n = key + gl.arange(0, N, gl.SliceLayout(1, S_NM))
    rows_m = gl.arange(0, M, COLUMN)
    in_m = gl.arange(0, M, gl.SliceLayout(1, DQ_MD))
    in_d = gl.arange(0, D, gl.SliceLayout(0, DQ_MD))
    in_tile = gl.expand_dims((in_m // 8) * (8 * D) + (in_m % 8) * 8, 1) + gl.expand_dims(
        (in_d // 8) * 64 + in_d % 8, 0
    )
    mbarrier.wait(kv_ready.index(0), 0)
    mbarrier.wait(kv_ready.index(1), 0)

    i = 0
    padded = tiles_m * M
    for member in range(heads_per_kv):
        owner = ((batch * kv_heads + kv_head) * heads_per_kv + member).to(gl.int64)
        lse_head = lse_ptr + owner * rows
        delta_head = delta_ptr + owner * rows
        dq_head = dq_ptr + owner * padded * D
        for tile in range(first_m, tiles_m):
            stage = i % STAGES
            phase = (i // STAGES) & 1
            row = shifted(tile, turn, first_m, tiles_m) * M
            q = q_tiles.index(stage).reshape([M, D])
            do = do_tiles.index(stage).reshape([M, D])
            ds_tile = ds_tiles.index(i % 2)

            mbarrier.wait(q_ready.index(stage), phase)
            s = warpgroup_mma(k, q.permute((1, 0)), zero_s, use_acc=False, is_async=True)
            mbarrier.wait(do_ready.index(stage), phase)
            dp = warpgroup_mma(v, do.permute((1, 0)), zero_s, use_acc=False, is_async=True)
            at = row + rows_m
            lse = gl.load(lse_head + at, mask=at < rows, other=float("inf"))
            delta = gl.load(delta_head + at, mask=at < rows, other=0.0)
            s = warpgroup_mma_wait(1, deps=[s])
            p = gl.exp2(s * scale_log2 - gl.expand_dims(lse, 0))
            if CAUSAL:
                if row < key + N:
                    p = gl.where(gl.expand_dims(at, 0) >= gl.expand_dims(columns_n, 1), p, 0.0)
            if RAGGED:
                p = gl.where(gl.expand_dims(columns_n < keys, 1), p, 0.0)
            p16 = gl.convert_layout(p.to(dtype), P_NM, assert_trivial=True)
            dv = warpgroup_mma(p16, do, dv, is_async=True)
            dp = warpgroup_mma_wait(1, deps=[dp])
            ds = p * (dp - gl.expand_dims(delta, 0))
            ds_tile.store(ds.to(dtype))
            fence_async_shared()
            dq = warpgroup_mma(ds_tile.permute((1, 0)), k, zero_dq, use_acc=False, is_async=True)
            dk = warpgroup_mma(ds_tile, q, dk, is_async=True)
            dq = warpgroup_mma_wait(1, deps=[dq])
            dk = warpgroup_mma_wait(0, deps=[dk])
            dk = warpgroup_mma_init(dk)
            mbarrier.arrive(q_empty.index(stage), count=1)
            mbarrier.arrive(do_empty.index(stage), count=1)
            gl.atomic_add(dq_head + row * D + in_tile, dq, sem="relaxed")
            i += 1

    dk, dv = warpgroup_mma_wait(0, deps=[dk, dv])
    k.store((dk * scale).to(dtype))
    v.store(dv.to(dtype))
    fence_async_shared()
    copy_out(dk_desc, [batch, kv_head, key, 0], k_tile)
    copy_out(dv_desc, [batch, kv_head, key, 0], v_tile)
    tma.store_wait(0)


@gluon.jit
def attention_backward_kernel(
    q_desc,
    k_desc,
    v_desc,
    do_desc,
    dk_desc,
    dv_desc,
    dq_ptr,
    lse_ptr,
    delta_ptr,
    rows,
    keys,
    kv_heads,
    heads_per_kv,
    scale,
    scale_log2,
    CAUSAL: gl.constexpr,
    RAGGED: gl.constexpr,
    STAGES: gl.constexpr,
    STAGGER: gl.constexpr,
):
    """Compute dK and dV of the rows that belong to this program, the longest first."""
    M: gl.constexpr = q_desc.block_type.shape[2]
    N: gl.constexpr = k_desc.block_type.shape[2]
    D: gl.constexpr = q_desc.block_type.shape[3]
    tiles_n = gl.cdiv(keys, N)
    tiles_m = gl.cdiv(rows, M)
    program = gl.program_id(0)
    owner = program // tiles_n
    tile_n = program % tiles_n
    batch = owner // kv_heads
    kv_head = owner % kv_heads
    key = tile_n * N
    first_m = 0
    if CAUSAL:
        first_m = gl.minimum(key // M, tiles_m - 1)
    turn = (tile_n * STAGGER) % (tiles_m - first_m)

    q_tiles = gl.allocate_shared_memory(q_desc.dtype, [STAGES, 1, 1, M, D], q_desc.layout)
    do_tiles = gl.allocate_shared_memory(q_desc.dtype, [STAGES, 1, 1, M, D], do_desc.layout)
    k_tile = gl.allocate_shared_memory(k_desc.dtype, [1, 1, N, D], k_desc.layout)
    v_tile = gl.allocate_shared_memory(k_desc.dtype, [1, 1, N, D], v_desc.layout)
    DS: gl.constexpr = gl.NVMMASharedLayout.get_default_for([N, M], q_desc.dtype)
    ds_tiles = gl.allocate_shared_memory(q_desc.dtype, [2, N, M], DS)
    kv_ready = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    q_ready = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    q_empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    do_ready = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    do_empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(2):
        mbarrier.init(kv_ready.index(i), count=1)
    for i in gl.static_range(STAGES):
        mbarrier.init(q_ready.index(i), count=1)
        mbarrier.init(q_empty.index(i), count=1)
        mbarrier.init(do_ready.index(i), count=1)
        mbarrier.init(do_empty.index(i), count=1)
    fence_async_shared()

    gl.warp_specialize(
        [
            (
                accumulate,
                (
                    dk_desc,
                    dv_desc,
                    dq_ptr,
                    lse_ptr,
                    delta_ptr,
                    q_tiles,
                    k_tile,
                    v_tile,
                    do_tiles,
                    ds_tiles,
                    kv_ready,
                    q_ready,
                    q_empty,
                    do_ready,
                    do_empty,
                    batch,
                    kv_head,
                    key,
                    first_m,
                    tiles_m,
                    rows,
                    keys,
                    kv_heads,
                    heads_per_kv,
                    turn,
                    scale,
                    scale_log2,
                    CAUSAL,
                    RAGGED,
                    STAGES,
                ),
            ),
            (
                load_tiles,
                (
                    q_desc,
                    k_desc,
                    v_desc,
                    do_desc,
                    q_tiles,
                    k_tile,
                    v_tile,
                    do_tiles,
                    kv_ready,
                    q_ready,
                    q_empty,
                    do_ready,
                    do_empty,
                    batch,
                    kv_head,
                    key,
                    first_m,
                    tiles_m,
                    heads_per_kv,
                    turn,
                    STAGES,
                ),
            ),
        ],
        [1],
        [24],
    )
