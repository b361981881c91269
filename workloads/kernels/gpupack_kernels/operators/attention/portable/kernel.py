# SPDX-License-Identifier: Apache-2.0
"""Attention kernels in plain Triton, for any device.

Forward: a program computes TILE_M rows of O and visits the keys in tiles of TILE_N. Backward: one
kernel for dK and dV, whose program owns TILE_N rows of keys, and one for dQ, whose program owns
TILE_M rows of queries. Both compute the scores again from the row's log-sum-exp2.

With a causal mask, tiles right of the diagonal are not visited, and only tiles that cross it are
masked. Scores are in units of log2: `scale_log2` is the scale times log2(e). Each row's sums, its
log-sum-exp2 and its sum of O dO, are padded to `padded` rows.

Offsets of heads and rows are 64-bit: tensors may have more elements than 32 bits count.

A block of Triton's has a power of two of columns: BLOCK_D is the next one from D, and columns
beyond D are zero.

Shape suffixes: M rows of queries and N rows of keys of one tile, D the head dimension.
"""

import triton
import triton.language as tl


@triton.jit
def inside(row, rows, D: tl.constexpr, BLOCK_D: tl.constexpr):
    """Return which elements of a tile are there."""
    there = (row < rows)[:, None]
    if D != BLOCK_D:
        there = there & (tl.arange(0, BLOCK_D) < D)[None, :]
    return there


@triton.jit
def load_rows(
    base, first, stride, rows, TILE: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr
):
    """Load TILE rows of D elements; what is not there is zero."""
    row = first + tl.arange(0, TILE)
    at = base + row.to(tl.int64)[:, None] * stride + tl.arange(0, BLOCK_D)[None, :]
    return tl.load(at, mask=inside(row, rows, D, BLOCK_D), other=0.0)


@triton.jit
def store_rows(
    base, first, stride, rows, value, TILE: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr
):
    """Store TILE rows of D elements, except those that are not there."""
    row = first + tl.arange(0, TILE)
    at = base + row.to(tl.int64)[:, None] * stride + tl.arange(0, BLOCK_D)[None, :]
    tl.store(at, value.to(base.dtype.element_ty), mask=inside(row, rows, D, BLOCK_D))


@triton.jit
def visible(rows_m, columns_n, keys, CAUSAL: tl.constexpr):
    """Return which keys of a tile each row sees."""
    seen = columns_n[None, :] < keys
    if CAUSAL:
        seen = seen & (rows_m[:, None] >= columns_n[None, :])
    return seen


@triton.jit
def attention_forward_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    o_ptr,
    lse_ptr,
    stride_qb,
    stride_qh,
    stride_qm,
    stride_kb,
    stride_kh,
    stride_kn,
    stride_vb,
    stride_vh,
    stride_vn,
    stride_ob,
    stride_oh,
    stride_om,
    rows,
    padded,
    keys,
    heads,
    heads_per_kv,
    scale_log2,
    CAUSAL: tl.constexpr,
    TILE_M: tl.constexpr,
    TILE_N: tl.constexpr,
    D: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """Compute TILE_M rows of O, the longest first."""
    tiles_m = tl.cdiv(rows, TILE_M)
    program = tl.program_id(0)
    owner = program // tiles_m
    batch = (owner // heads).to(tl.int64)
    head = (owner % heads).to(tl.int64)
    kv_head = head // heads_per_kv
    first = (tiles_m - 1 - program % tiles_m) * TILE_M
    rows_m = first + tl.arange(0, TILE_M)
    k_base = k_ptr + batch * stride_kb + kv_head * stride_kh
    v_base = v_ptr + batch * stride_vb + kv_head * stride_vh
    q = load_rows(
        q_ptr + batch * stride_qb + head * stride_qh, first, stride_qm, rows, TILE_M, D, BLOCK_D
    )

    top = tl.full((TILE_M,), float("-inf"), tl.float32)
    total = tl.zeros((TILE_M,), tl.float32)
    acc = tl.zeros((TILE_M, BLOCK_D), tl.float32)
    end = keys
    free = keys // TILE_N * TILE_N
    if CAUSAL:
        end = tl.minimum(keys, first + TILE_M)
        free = tl.minimum(free, (first + 1) // TILE_N * TILE_N)
    for key in range(0, free, TILE_N):
        k = load_rows(k_base, key, stride_kn, keys, TILE_N, D, BLOCK_D)
        v = load_rows(v_base, key, stride_vn, keys, TILE_N, D, BLOCK_D)
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale_log2
        new_top = tl.maximum(top, tl.max(s, 1))
        p = tl.exp2(s - new_top[:, None])
        shrink = tl.exp2(top - new_top)
        total = total * shrink + tl.sum(p, 1)
        acc = tl.dot(p.to(v.dtype), v, acc * shrink[:, None], input_precision="ieee")
        top = new_top
    for key in range(free, end, TILE_N):
        k = load_rows(k_base, key, stride_kn, keys, TILE_N, D, BLOCK_D)
        v = load_rows(v_base, key, stride_vn, keys, TILE_N, D, BLOCK_D)
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale_log2
        s = tl.where(visible(rows_m, key + tl.arange(0, TILE_N), keys, CAUSAL), s, float("-inf"))
        new_top = tl.maximum(top, tl.max(s, 1))
        p = tl.exp2(s - new_top[:, None])
        shrink = tl.exp2(top - new_top)
        total = total * shrink + tl.sum(p, 1)
        acc = tl.dot(p.to(v.dtype), v, acc * shrink[:, None], input_precision="ieee")
        top = new_top

    o_base = o_ptr + batch * stride_ob + head * stride_oh
    store_rows(o_base, first, stride_om, rows, acc / total[:, None], TILE_M, D, BLOCK_D)
    lse = top + tl.log2(total)
    tl.store(lse_ptr + owner.to(tl.int64) * padded + rows_m, lse, mask=rows_m < rows)


@triton.jit
def attention_delta_kernel(
    o_ptr,
    do_ptr,
    delta_ptr,
    stride_ob,
    stride_oh,
    stride_om,
    stride_db,
    stride_dh,
    stride_dm,
    rows,
    padded,
    heads,
    TILE_M: tl.constexpr,
    D: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """Compute the sum of O dO of each row, which the softmax's derivative subtracts."""
    tiles_m = padded // TILE_M
    owner = tl.program_id(0) // tiles_m
    batch = (owner // heads).to(tl.int64)
    head = (owner % heads).to(tl.int64)
    first = tl.program_id(0) % tiles_m * TILE_M
    o = load_rows(
        o_ptr + batch * stride_ob + head * stride_oh, first, stride_om, rows, TILE_M, D, BLOCK_D
    )
    do = load_rows(
        do_ptr + batch * stride_db + head * stride_dh, first, stride_dm, rows, TILE_M, D, BLOCK_D
    )
    delta = tl.sum(o.to(tl.float32) * do.to(tl.float32), 1)
    row = first + tl.arange(0, TILE_M)
    # Rows beyond the end were read as zero, and are stored as that.
    tl.store(delta_ptr + owner.to(tl.int64) * padded + row, delta)


@triton.jit
def attention_dkdv_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    do_ptr,
    dk_ptr,
    dv_ptr,
    lse_ptr,
    delta_ptr,
    stride_qb,
    stride_qh,
    stride_qm,
    stride_kb,
    stride_kh,
    stride_kn,
    stride_vb,
    stride_vh,
    stride_vn,
    stride_db,
    stride_dh,
    stride_dm,
    stride_dkb,
    stride_dkh,
    stride_dkn,
    stride_dvb,
    stride_dvh,
    stride_dvn,
    rows,
    padded,
    keys,
    kv_heads,
    heads_per_kv,
    scale,
    scale_log2,
    CAUSAL: tl.constexpr,
    TILE_M: tl.constexpr,
    TILE_N: tl.constexpr,
    D: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """Compute TILE_N rows of dK and dV, over all query heads that share them."""
    tiles_n = tl.cdiv(keys, TILE_N)
    owner = tl.program_id(0) // tiles_n
    batch = (owner // kv_heads).to(tl.int64)
    kv_head = (owner % kv_heads).to(tl.int64)
    key = tl.program_id(0) % tiles_n * TILE_N
    columns_n = key + tl.arange(0, TILE_N)
    k = load_rows(
        k_ptr + batch * stride_kb + kv_head * stride_kh, key, stride_kn, keys, TILE_N, D, BLOCK_D
    )
    v = load_rows(
        v_ptr + batch * stride_vb + kv_head * stride_vh, key, stride_vn, keys, TILE_N, D, BLOCK_D
    )
    dk = tl.zeros((TILE_N, BLOCK_D), tl.float32)
    dv = tl.zeros((TILE_N, BLOCK_D), tl.float32)
    begin = 0
    if CAUSAL:
        begin = key // TILE_M * TILE_M
    for member in range(heads_per_kv):
        head = kv_head * heads_per_kv + member
        q_base = q_ptr + batch * stride_qb + head * stride_qh
        do_base = do_ptr + batch * stride_db + head * stride_dh
        sums = (batch * kv_heads * heads_per_kv + head) * padded
        for first in range(begin, rows, TILE_M):
            row = first + tl.arange(0, TILE_M)
            q = load_rows(q_base, first, stride_qm, rows, TILE_M, D, BLOCK_D)
            do = load_rows(do_base, first, stride_dm, rows, TILE_M, D, BLOCK_D)
            lse = tl.load(lse_ptr + sums + row, mask=row < rows, other=float("inf"))
            delta = tl.load(delta_ptr + sums + row, mask=row < rows, other=0.0)
            s = tl.dot(k, tl.trans(q), input_precision="ieee") * scale_log2
            seen = tl.trans(visible(row, columns_n, keys, CAUSAL))
            p = tl.where(seen, tl.exp2(s - lse[None, :]), 0.0)
            dv = tl.dot(p.to(do.dtype), do, dv, input_precision="ieee")
            dp = tl.dot(v, tl.trans(do), input_precision="ieee")
            ds = p * (dp - delta[None, :])
            dk = tl.dot(ds.to(q.dtype), q, dk, input_precision="ieee")
    dk_ptr += batch * stride_dkb + kv_head * stride_dkh
    dv_ptr += batch * stride_dvb + kv_head * stride_dvh
    store_rows(dk_ptr, key, stride_dkn, keys, dk * scale, TILE_N, D, BLOCK_D)
    store_rows(dv_ptr, key, stride_dvn, keys, dv, TILE_N, D, BLOCK_D)


@triton.jit
def attention_dq_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    do_ptr,
    dq_ptr,
    lse_ptr,
    delta_ptr,
    stride_qb,
    stride_qh,
    stride_qm,
    stride_kb,
    stride_kh,
    stride_kn,
    stride_vb,
    stride_vh,
    stride_vn,
    stride_db,
    stride_dh,
    stride_dm,
    stride_dqb,
    stride_dqh,
    stride_dqm,
    rows,
    padded,
    keys,
    kv_heads,
    heads_per_kv,
    scale,
    scale_log2,
    CAUSAL: tl.constexpr,
    TILE_M: tl.constexpr,
    TILE_N: tl.constexpr,
    D: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """Compute TILE_M rows of dQ."""
    tiles_m = tl.cdiv(rows, TILE_M)
    owner = tl.program_id(0) // tiles_m
    heads = kv_heads * heads_per_kv
    batch = (owner // heads).to(tl.int64)
    head = (owner % heads).to(tl.int64)
    kv_head = head // heads_per_kv
    first = tl.program_id(0) % tiles_m * TILE_M
    row = first + tl.arange(0, TILE_M)
    k_base = k_ptr + batch * stride_kb + kv_head * stride_kh
    v_base = v_ptr + batch * stride_vb + kv_head * stride_vh
    q = load_rows(
        q_ptr + batch * stride_qb + head * stride_qh, first, stride_qm, rows, TILE_M, D, BLOCK_D
    )
    do = load_rows(
        do_ptr + batch * stride_db + head * stride_dh, first, stride_dm, rows, TILE_M, D, BLOCK_D
    )
    sums = owner.to(tl.int64) * padded
    lse = tl.load(lse_ptr + sums + row, mask=row < rows, other=float("inf"))
    delta = tl.load(delta_ptr + sums + row, mask=row < rows, other=0.0)
    dq = tl.zeros((TILE_M, BLOCK_D), tl.float32)
    end = keys
    if CAUSAL:
        end = tl.minimum(keys, first + TILE_M)
    for key in range(0, end, TILE_N):
        k = load_rows(k_base, key, stride_kn, keys, TILE_N, D, BLOCK_D)
        v = load_rows(v_base, key, stride_vn, keys, TILE_N, D, BLOCK_D)
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale_log2
        seen = visible(row, key + tl.arange(0, TILE_N), keys, CAUSAL)
        p = tl.where(seen, tl.exp2(s - lse[:, None]), 0.0)
        dp = tl.dot(do, tl.trans(v), input_precision="ieee")
        ds = p * (dp - delta[:, None])
        dq = tl.dot(ds.to(k.dtype), k, dq, input_precision="ieee")
    dq_ptr += batch * stride_dqb + head * stride_dqh
    store_rows(dq_ptr, first, stride_dqm, rows, dq * scale, TILE_M, D, BLOCK_D)


@triton.jit
def attention_round_kernel(sum_ptr, dq_ptr, count, scale, TILE: tl.constexpr):
    """Scale and round dQ, which the Hopper kernel adds up in 32 bits."""
    at = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)
    dq = tl.load(sum_ptr + at, mask=at < count) * scale
    tl.store(dq_ptr + at, dq.to(dq_ptr.dtype.element_ty), mask=at < count)
