# SPDX-License-Identifier: Apache-2.0
"""The forward kernel for Hopper, in Gluon: one warp loads, two groups of four compute.

A program computes 128 rows of queries of one head. One warp only loads: both halves of Q, then
tiles of K and V into rings of STAGES shared-memory buffers. Each group computes 64 rows. Tensor
cores and the units that exponentiate are busy at the same time: S of the next tile and P V of this
one are issued together, and the softmax of the next tile runs while P V still does, as in
FlashAttention-3. The two groups run freely; making them take turns with their products, as it does
too, was 1 to 8 % slower here, because each turn costs a barrier.

Tiles of keys are visited from the last one down, where the diagonal and the ragged end are: only
the first visited can be partly masked.

Scores are in units of log2: `scale_log2` is the scale times log2(e), and exp2 is one instruction. A
row's log-sum-exp2 goes to `lse_ptr` for the backward pass, padded to whole tiles.

Shape suffixes: M rows of queries of one group, N rows of keys of one tile, D the head dimension.
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
    allocate_barriers,
    keep,
    load_tile,
    place_of,
    store_tile,
)


@gluon.jit
def load_tiles(q_desc, k_desc, v_desc, tiles, barriers, place, heads_per_kv, STAGES: gl.constexpr):
    """Load Q once, and K and V from the last tile down, as buffers become free."""
    M: gl.constexpr = q_desc.block_type.shape[2]
    N: gl.constexpr = k_desc.block_type.shape[2]
    q_tiles, k_tiles, v_tiles = tiles
    q_ready, k_ready, k_empty, v_ready, v_empty = barriers
    batch, head, row, tiles_n = place
    kv_head = head // heads_per_kv
    for group in gl.static_range(2):
        load_tile(q_desc, batch, head, row + group * M, q_tiles.index(group), q_ready.index(group))
    for i in range(tiles_n):
        stage = i % STAGES
        phase = (i // STAGES) & 1
        key = (tiles_n - 1 - i) * N
        mbarrier.wait(k_empty.index(stage), phase ^ 1)
        load_tile(k_desc, batch, kv_head, key, k_tiles.index(stage), k_ready.index(stage))
        mbarrier.wait(v_empty.index(stage), phase ^ 1)
        load_tile(v_desc, batch, kv_head, key, v_tiles.index(stage), v_ready.index(stage))


@gluon.jit
def issue_scores(q, k_tile, S_MN: gl.constexpr):
    """Start S = Q K'."""
    M: gl.constexpr = q.shape[0]
    D: gl.constexpr = q.shape[1]
    N: gl.constexpr = k_tile.shape[2]
    zero = gl.zeros([M, N], gl.float32, S_MN)
    k = k_tile.reshape([N, D])
    return warpgroup_mma(q, k.permute((1, 0)), zero, use_acc=False, is_async=True)


@gluon.jit
def first_scores(q, k_tile, k_empty, S_MN: gl.constexpr):
    """Compute S, without other work to overlap, and release K."""
    s = warpgroup_mma_wait(0, deps=[issue_scores(q, k_tile, S_MN)])
    mbarrier.arrive(k_empty, count=1)
    return s


@gluon.jit
def as_weights(p, dtype: gl.constexpr, O_MD: gl.constexpr):
    """Round P and keep it as the left operand of P V; it already has the right layout."""
    P_MN: gl.constexpr = gl.DotOperandLayout(0, O_MD, 2)
    return gl.convert_layout(p.to(dtype), P_MN, assert_trivial=True)


@gluon.jit
def issue_output(p, v_tile, acc):
    """Start O += P V."""
    N: gl.constexpr = v_tile.shape[2]
    D: gl.constexpr = v_tile.shape[3]
    return warpgroup_mma(p, v_tile.reshape([N, D]), acc, is_async=True)


@gluon.jit
def masked(s, row, column, keys, CAUSAL: gl.constexpr, S_MN: gl.constexpr):
    """Replace scores that do not count by minus infinity."""
    columns = column + gl.arange(0, s.shape[1], gl.SliceLayout(0, S_MN))
    seen = gl.expand_dims(columns < keys, 0)
    if CAUSAL:
        rows = row + gl.arange(0, s.shape[0], gl.SliceLayout(1, S_MN))
        seen = seen & (gl.expand_dims(rows, 1) >= gl.expand_dims(columns, 0))
    return gl.where(seen, s, float("-inf"))


@gluon.jit
def exponentials(s, top, scale_log2):
    """Return exp2 of scaled scores above the row's top."""
    return gl.exp2(s * scale_log2 - gl.expand_dims(top * scale_log2, 1))


@gluon.jit
def attend(
    o_desc,
    lse_ptr,
    tiles,
    barriers,
    place,
    sizes,
    GROUP: gl.constexpr,
    CAUSAL: gl.constexpr,
    STAGES: gl.constexpr,
):
    """Compute 64 rows of O."""
    M: gl.constexpr = o_desc.block_type.shape[2]
    D: gl.constexpr = o_desc.block_type.shape[3]
    N: gl.constexpr = tiles[1].shape[3]
    S_MN: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, N, 16])
    O_MD: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, D, 16])
    ROW_O: gl.constexpr = gl.SliceLayout(1, O_MD)
    q_tiles, k_tiles, v_tiles = tiles
    q_ready, k_ready, k_empty, v_ready, v_empty = barriers
    batch, head, row, tiles_n = place
    rows, keys, scale_log2 = sizes
    row += GROUP * M

    q = q_tiles.index(GROUP).reshape([M, D])
    mbarrier.wait(q_ready.index(GROUP), 0)
    mbarrier.wait(k_ready.index(0), 0)
    s = first_scores(q, k_tiles.index(0), k_empty.index(0), S_MN)
    s = masked(s, row, (tiles_n - 1) * N, keys, CAUSAL, S_MN)
    top = gl.max(s, axis=1)
    p = exponentials(s, top, scale_log2)
    total = gl.sum(p, axis=1)
    weights = as_weights(p, o_desc.dtype, O_MD)
    acc = warpgroup_mma_init(gl.zeros([M, D], gl.float32, O_MD))

    mbarrier.wait(k_ready.index(1 % STAGES), 1 // STAGES, pred=tiles_n > 1)
    for i in range(1, tiles_n):
        stage, before, after = i % STAGES, (i - 1) % STAGES, (i + 1) % STAGES
        s = issue_scores(q, k_tiles.index(stage), S_MN)
        mbarrier.wait(v_ready.index(before), ((i - 1) // STAGES) & 1)
        acc = issue_output(weights, v_tiles.index(before), acc)
        s, acc = warpgroup_mma_wait(1, deps=[s, acc])
        mbarrier.arrive(k_empty.index(stage), count=1)
        old_top, top = top, gl.maximum(top, gl.max(s, axis=1))
        shrink = gl.exp2(old_top * scale_log2 - top * scale_log2)
        p = exponentials(s, top, scale_log2)
        total = total * shrink + gl.sum(p, axis=1)
        # The assembler moves the wait for P V up to the last wait for a barrier, and the softmax
        # must run before it: so the next K is waited for here, and not where it is read.
        mbarrier.wait(k_ready.index(after), ((i + 1) // STAGES) & 1, pred=i + 1 < tiles_n)
        acc, p = warpgroup_mma_wait(0, deps=[acc, p])
        weights = keep(weights)
        mbarrier.arrive(v_empty.index(before), count=1)
        shrink_o = gl.convert_layout(shrink, ROW_O, assert_trivial=True)
        acc = warpgroup_mma_init(acc * gl.expand_dims(shrink_o, 1))
        weights = as_weights(p, o_desc.dtype, O_MD)

    last = tiles_n - 1
    mbarrier.wait(v_ready.index(last % STAGES), (last // STAGES) & 1)
    acc = warpgroup_mma_wait(0, deps=[issue_output(weights, v_tiles.index(last % STAGES), acc)])
    weights = keep(weights)

    share = gl.convert_layout(1.0 / total, ROW_O, assert_trivial=True)
    # Q has been read for the last time: its buffer takes O.
    store_tile(o_desc, batch, head, row, q_tiles.index(GROUP), acc * gl.expand_dims(share, 1))
    at = row + gl.arange(0, M, gl.SliceLayout(1, S_MN))
    # With infinity a row beyond the end has no weights in the backward pass.
    gl.store(lse_ptr + at, gl.where(at < rows, top * scale_log2 + gl.log2(total), float("inf")))
    tma.store_wait(0)


@gluon.jit(do_not_specialize=["rows", "keys", "heads", "heads_per_kv", "owners", "owners_together"])
def attention_forward_kernel(
    q_desc,
    k_desc,
    v_desc,
    o_desc,
    lse_ptr,
    rows,
    keys,
    heads,
    heads_per_kv,
    owners,
    owners_together,
    scale_log2,
    CAUSAL: gl.constexpr,
    STAGES: gl.constexpr,
):
    """Compute the 128 rows of O that belong to this program, the longest first."""
    M: gl.constexpr = q_desc.block_type.shape[2]
    N: gl.constexpr = k_desc.block_type.shape[2]
    D: gl.constexpr = q_desc.block_type.shape[3]
    tiles_m = gl.cdiv(rows, 2 * M)
    # An owner is a head of a batch. The last rows see the most keys.
    owner, before_last = place_of(gl.program_id(0), tiles_m, owners, owners_together)
    batch = owner // heads
    head = owner % heads
    row = (tiles_m - 1 - before_last) * 2 * M
    tiles_n = gl.cdiv(keys, N)
    if CAUSAL:
        tiles_n = gl.minimum(tiles_n, gl.cdiv(row + 2 * M, N))
    lse_ptr += owner.to(gl.int64) * (tiles_m * 2 * M)

    tiles = (
        gl.allocate_shared_memory(q_desc.dtype, [2, 1, 1, M, D], q_desc.layout),
        gl.allocate_shared_memory(k_desc.dtype, [STAGES, 1, 1, N, D], k_desc.layout),
        gl.allocate_shared_memory(v_desc.dtype, [STAGES, 1, 1, N, D], v_desc.layout),
    )
    # A tile is empty once both groups have said so.
    barriers = (
        allocate_barriers(2, 1),
        allocate_barriers(STAGES, 1),
        allocate_barriers(STAGES, 2),
        allocate_barriers(STAGES, 1),
        allocate_barriers(STAGES, 2),
    )
    fence_async_shared()
    place = (batch, head, row, tiles_n)
    sizes = (rows, keys, scale_log2)
    gl.warp_specialize(
        [
            (attend, (o_desc, lse_ptr, tiles, barriers, place, sizes, 0, CAUSAL, STAGES)),
            (attend, (o_desc, lse_ptr, tiles, barriers, place, sizes, 1, CAUSAL, STAGES)),
            (load_tiles, (q_desc, k_desc, v_desc, tiles, barriers, place, heads_per_kv, STAGES)),
        ],
        [4, 1],
        [240, 24],
    )
