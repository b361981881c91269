# SPDX-License-Identifier: Apache-2.0
"""The backward kernel for Hopper, in Gluon: all five products in one pass over the queries.

A program owns 128 rows of keys and values of one head and visits all tiles of 64 rows of queries
that see them, of every query head that shares this key head. dK and dV stay in registers; dQ, to
which all programs of a head contribute, is added to fp32 memory. Two kernels, one for dK and dV and
one for dQ, would need no addition in memory, but seven products instead of five.

Scores are computed transposed, S' = K Q', so that P' is where the product for dV wants its left
operand. dS' goes to shared memory, for dQ = dS K and dK = dS' Q. Eight warps compute; one loads Q
and dO and their rows' sums into rings of STAGES buffers; one adds finished tiles of dQ to memory.

The order of a step keeps the tensor cores busy while the other units work: S' and dP' of this step
and dK of the step before are issued first, and dK runs while P' is computed; dV runs while dQ goes
to shared memory. The first step has no step before: it multiplies zeros, which lie in the last
buffer of Q. So a buffer of step i becomes free in step i + 1, and the last one once more than the
others.

`sums` are each row's log-sum-exp2 and its sum of O dO, padded to whole tiles in such a way that
rows beyond the end count nothing.

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

from gpupack_kernels.operators.attention.hopper.tiles import (
    add_out,
    allocate_barriers,
    copy_in,
    load_tile,
    place_of,
    store_tile,
)


@gluon.jit
def row_of(tile_m, walk, M: gl.constexpr):
    """Return the first row that is visited in the place of a tile.

    Programs start at different tiles, so that not all add to the same part of dQ at a time.
    """
    first_m, tiles_m, turn = walk
    turned = tile_m + turn
    return gl.where(turned >= tiles_m, turned - (tiles_m - first_m), turned) * M


@gluon.jit
def load_tiles(descs, tiles, barriers, place, walk, sizes, STAGES: gl.constexpr):
    """Load K and V once, and what belongs to queries tile by tile, as buffers become free."""
    k_desc, v_desc, q_desc, do_desc, lse_desc, delta_desc = descs
    k_tile, v_tile, q_tiles, do_tiles, lse_tiles, delta_tiles, _, _ = tiles
    kv_ready, q_ready, do_ready, empty, _ = barriers
    batch, kv_head, key = place
    rows, _, kv_heads, heads_per_kv, _, _ = sizes
    M: gl.constexpr = q_desc.block_type.shape[2]
    N: gl.constexpr = k_desc.block_type.shape[2]
    load_tile(k_desc, batch, kv_head, key, k_tile, kv_ready.index(0))
    load_tile(v_desc, batch, kv_head, key, v_tile, kv_ready.index(1))
    i = 0
    for member in range(heads_per_kv):
        head = kv_head * heads_per_kv + member
        sums = (batch * kv_heads * heads_per_kv + head) * (gl.cdiv(rows, N) * N)
        for tile_m in range(walk[0], walk[1]):
            row = row_of(tile_m, walk, M)
            stage = i % STAGES
            released = gl.where(stage == STAGES - 1, 0, 1)
            mbarrier.wait(empty.index(stage), ((i // STAGES) & 1) ^ released)
            ready = q_ready.index(stage)
            mbarrier.expect(ready, q_desc.block_type.nbytes + lse_desc.block_type.nbytes)
            copy_in(q_desc, [batch, head, row, 0], ready, q_tiles.index(stage))
            copy_in(lse_desc, [sums + row], ready, lse_tiles.index(stage))
            ready = do_ready.index(stage)
            mbarrier.expect(ready, do_desc.block_type.nbytes + delta_desc.block_type.nbytes)
            copy_in(do_desc, [batch, head, row, 0], ready, do_tiles.index(stage))
            copy_in(delta_desc, [sums + row], ready, delta_tiles.index(stage))
            i += 1


@gluon.jit
def add_tiles(dq_desc, tiles, barriers, place, walk, heads_per_kv):
    """Add each finished tile of dQ to memory."""
    M: gl.constexpr = dq_desc.block_type.shape[2]
    dq_tile = tiles[7]
    dq_ready = barriers[4].index(0)
    dq_empty = barriers[4].index(1)
    batch, kv_head, _ = place
    i = 0
    for member in range(heads_per_kv):
        head = kv_head * heads_per_kv + member
        for tile_m in range(walk[0], walk[1]):
            mbarrier.wait(dq_ready, i & 1)
            add_out(dq_desc, [batch, head, row_of(tile_m, walk, M), 0], dq_tile)
            tma.store_wait(0)
            mbarrier.arrive(dq_empty, count=1)
            i += 1


@gluon.jit
def clear(tile, ROWS: gl.constexpr, COLUMNS: gl.constexpr, LAYOUT: gl.constexpr):
    """Fill a tile with zeros."""
    tile.store(gl.zeros([ROWS, COLUMNS], tile.dtype, LAYOUT))
    fence_async_shared()


@gluon.jit
def issue_transposed(a, b_tile, LAYOUT: gl.constexpr):
    """Start A B'."""
    N: gl.constexpr = a.shape[0]
    M: gl.constexpr = b_tile.shape[2]
    D: gl.constexpr = b_tile.shape[3]
    b = b_tile.reshape([M, D]).permute((1, 0))
    zero = gl.zeros([N, M], gl.float32, LAYOUT)
    return warpgroup_mma(a, b, zero, use_acc=False, is_async=True)


@gluon.jit
def issue_dq(ds_tile, k, DQ_MD: gl.constexpr):
    """Start dQ = dS K."""
    M: gl.constexpr = ds_tile.shape[1]
    D: gl.constexpr = k.shape[1]
    zero = gl.zeros([M, D], gl.float32, DQ_MD)
    return warpgroup_mma(ds_tile.permute((1, 0)), k, zero, use_acc=False, is_async=True)


@gluon.jit
def issue_dk(ds_tile, q_tile, dk):
    """Start dK += dS' Q."""
    M: gl.constexpr = q_tile.shape[2]
    D: gl.constexpr = q_tile.shape[3]
    return warpgroup_mma(ds_tile, q_tile.reshape([M, D]), dk, is_async=True)


@gluon.jit
def issue_dv(p, do_tile, dv, DK_ND: gl.constexpr):
    """Start dV += P' dO; P' is already in the product's layout."""
    M: gl.constexpr = do_tile.shape[2]
    D: gl.constexpr = do_tile.shape[3]
    rounded = gl.convert_layout(
        p.to(do_tile.dtype), gl.DotOperandLayout(0, DK_ND, 2), assert_trivial=True
    )
    return warpgroup_mma(rounded, do_tile.reshape([M, D]), dv, is_async=True)


@gluon.jit
def weights(
    s,
    lse,
    key,
    row,
    keys,
    scale_log2,
    CAUSAL: gl.constexpr,
    RAGGED: gl.constexpr,
    S_NM: gl.constexpr,
):
    """Return P' of a tile."""
    N: gl.constexpr = s.shape[0]
    M: gl.constexpr = s.shape[1]
    p = gl.exp2(s * scale_log2 - gl.expand_dims(lse, 0))
    rows_m = gl.expand_dims(row + gl.arange(0, M, gl.SliceLayout(0, S_NM)), 0)
    columns_n = gl.expand_dims(key + gl.arange(0, N, gl.SliceLayout(1, S_NM)), 1)
    if CAUSAL:  # noqa: SIM102  it is decided when this is compiled
        if row < key + N:
            p = gl.where(rows_m >= columns_n, p, 0.0)
    # Keys beyond the end are zero and weigh nothing in dQ, but their P' could be infinite. A causal
    # mask hides them from every row that there is.
    if RAGGED:  # noqa: SIM102
        if key + N > keys:
            p = gl.where(columns_n < keys, p, 0.0)
    return p


@gluon.jit
def accumulate(
    dk_desc,
    dv_desc,
    tiles,
    barriers,
    place,
    walk,
    sizes,
    CAUSAL: gl.constexpr,
    RAGGED: gl.constexpr,
    STAGES: gl.constexpr,
):
    """Compute dK and dV of 128 rows, and what they contribute to dQ."""
    k_tile, v_tile, q_tiles, do_tiles, lse_tiles, delta_tiles, ds_tiles, dq_tile = tiles
    kv_ready, q_ready, do_ready, empty, dq_barriers = barriers
    batch, kv_head, key = place
    _, keys, _, heads_per_kv, scale, scale_log2 = sizes
    M: gl.constexpr = q_tiles.shape[3]
    N: gl.constexpr = k_tile.shape[2]
    D: gl.constexpr = k_tile.shape[3]
    S_NM: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [8, 1], [16, M, 16])
    DK_ND: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [8, 1], [16, D, 16])
    DQ_MD: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 2], [16, D // 2, 16])

    k = k_tile.reshape([N, D])
    v = v_tile.reshape([N, D])
    dk = warpgroup_mma_init(gl.zeros([N, D], gl.float32, DK_ND))
    dv = warpgroup_mma_init(gl.zeros([N, D], gl.float32, DK_ND))
    clear(ds_tiles.index(1), N, M, S_NM)
    clear(q_tiles.index(STAGES - 1).reshape([M, D]), M, D, DQ_MD)
    mbarrier.wait(kv_ready.index(0), 0)
    mbarrier.wait(kv_ready.index(1), 0)

    i = 0
    stage = 0
    phase = 0
    for _ in range(heads_per_kv):
        for tile_m in range(walk[0], walk[1]):
            before = gl.where(stage == 0, STAGES - 1, stage - 1)
            ds_tile = ds_tiles.index(i % 2)

            mbarrier.wait(q_ready.index(stage), phase)
            s = issue_transposed(k, q_tiles.index(stage), S_NM)
            mbarrier.wait(do_ready.index(stage), phase)
            dp = issue_transposed(v, do_tiles.index(stage), S_NM)
            dk = issue_dk(ds_tiles.index((i + 1) % 2), q_tiles.index(before), dk)
            s = warpgroup_mma_wait(2, deps=[s])
            # Sums are read just before they are needed: registers are full.
            lse = lse_tiles.index(stage).load(gl.SliceLayout(0, S_NM))
            row = row_of(tile_m, walk, M)
            p = weights(s, lse, key, row, keys, scale_log2, CAUSAL, RAGGED, S_NM)
            dp = warpgroup_mma_wait(1, deps=[dp])
            delta = delta_tiles.index(stage).load(gl.SliceLayout(0, S_NM))
            ds_tile.store((p * (dp - gl.expand_dims(delta, 0))).to(dk_desc.dtype))
            fence_async_shared()
            dq = issue_dq(ds_tile, k, DQ_MD)
            dv = issue_dv(p, do_tiles.index(stage), dv, DK_ND)
            # Products end in the order in which they were issued: dK has ended, too.
            dq, dk = warpgroup_mma_wait(1, deps=[dq, dk])
            dk = warpgroup_mma_init(dk)
            mbarrier.wait(dq_barriers.index(1), (i & 1) ^ 1)
            dq_tile.reshape([M, D]).store(dq)
            fence_async_shared()
            mbarrier.arrive(dq_barriers.index(0), count=1)
            mbarrier.arrive(empty.index(before), count=1)
            # A product in flight across the loop's edge would make the assembler wait for each.
            dv = warpgroup_mma_init(warpgroup_mma_wait(0, deps=[dv]))
            i += 1
            stage += 1
            if stage == STAGES:
                stage = 0
                phase ^= 1

    dk = issue_dk(ds_tiles.index((i + 1) % 2), q_tiles.index((i + STAGES - 1) % STAGES), dk)
    dk, dv = warpgroup_mma_wait(0, deps=[dk, dv])
    # K and V have been read for the last time: their buffers take dK and dV.
    store_tile(dk_desc, batch, kv_head, key, k_tile, dk * scale)
    store_tile(dv_desc, batch, kv_head, key, v_tile, dv)
    tma.store_wait(0)


@gluon.jit(
    do_not_specialize=["rows", "keys", "kv_heads", "heads_per_kv", "owners", "owners_together"]
)
def attention_backward_kernel(
    q_desc,
    k_desc,
    v_desc,
    do_desc,
    lse_desc,
    delta_desc,
    dq_desc,
    dk_desc,
    dv_desc,
    rows,
    keys,
    kv_heads,
    heads_per_kv,
    owners,
    owners_together,
    scale,
    scale_log2,
    CAUSAL: gl.constexpr,
    RAGGED: gl.constexpr,
    STAGES: gl.constexpr,
    STAGGER: gl.constexpr,
):
    """Compute dK and dV of the rows that belong to this program, the longest first.

    RAGGED says that the keys do not fill their last tile and that no causal mask hides its rest: a
    mask in the loop takes registers that Triton 3.9 has not left.
    """
    M: gl.constexpr = q_desc.block_type.shape[2]
    N: gl.constexpr = k_desc.block_type.shape[2]
    D: gl.constexpr = q_desc.block_type.shape[3]
    dtype: gl.constexpr = q_desc.dtype
    DS_NM: gl.constexpr = gl.NVMMASharedLayout.get_default_for([N, M], dtype)
    tiles_n = gl.cdiv(keys, N)
    tiles_m = gl.cdiv(rows, M)
    # An owner is a key head of a batch.
    owner, tile_n = place_of(gl.program_id(0), tiles_n, owners, owners_together)
    first_m = 0
    if CAUSAL:
        first_m = tile_n * (N // M)

    tiles = (
        gl.allocate_shared_memory(dtype, [1, 1, N, D], k_desc.layout),
        gl.allocate_shared_memory(dtype, [1, 1, N, D], v_desc.layout),
        gl.allocate_shared_memory(dtype, [STAGES, 1, 1, M, D], q_desc.layout),
        gl.allocate_shared_memory(dtype, [STAGES, 1, 1, M, D], do_desc.layout),
        gl.allocate_shared_memory(gl.float32, [STAGES, M], lse_desc.layout),
        gl.allocate_shared_memory(gl.float32, [STAGES, M], delta_desc.layout),
        gl.allocate_shared_memory(dtype, [2, N, M], DS_NM),
        gl.allocate_shared_memory(gl.float32, [1, 1, M, D], dq_desc.layout),
    )
    barriers = (
        allocate_barriers(2, 1),
        allocate_barriers(STAGES, 1),
        allocate_barriers(STAGES, 1),
        allocate_barriers(STAGES, 1),
        allocate_barriers(2, 1),
    )
    fence_async_shared()
    descs = (k_desc, v_desc, q_desc, do_desc, lse_desc, delta_desc)
    place = (owner // kv_heads, owner % kv_heads, tile_n * N)
    walk = (first_m, tiles_m, (tile_n * STAGGER) % (tiles_m - first_m))
    sizes = (rows, keys, kv_heads, heads_per_kv, scale, scale_log2)
    gl.warp_specialize(
        [
            (
                accumulate,
                (dk_desc, dv_desc, tiles, barriers, place, walk, sizes, CAUSAL, RAGGED, STAGES),
            ),
            (load_tiles, (descs, tiles, barriers, place, walk, sizes, STAGES)),
            (add_tiles, (dq_desc, tiles, barriers, place, walk, heads_per_kv)),
        ],
        [1, 1],
        [24, 24],
    )
