# SPDX-License-Identifier: Apache-2.0
"""Attention over packed sequences in plain Triton, for any device.

A program computes a tile of one sequence, and one head. Sequence s begins at row c[s], and its
tiles are the programs from c[s] // TILE + s on: as many as it has tiles, or one more, which has
nothing to do. So a program finds its sequence by a search among sums, which need no list of tiles;
whose number is known on the host all the same: total // TILE + sequences.

With a causal mask row i of m sees the keys up to i + n - m of n: the last row sees all. Rows that
see none are zero, and their log-sum-exp is infinite, so that they have no weights in the gradient.

Otherwise as `portable`: forward a program visits its sequence's keys in tiles of TILE_N; backward
there is one kernel for dK and dV and one for dQ. Each row's log-sum-exp2 and its sum of O dO are
(heads, rows).

Offsets are 64-bit. Shape suffixes: M rows of queries, N rows of keys of a tile, D head dimension.
"""

import triton
import triton.language as tl

from gpupack_kernels.operators.attention.portable.kernel import load_rows, store_rows


@triton.jit
def bounds(offsets_ptr, sequence, total):
    """Return where a sequence begins, and its length, both within what is there."""
    begin = tl.minimum(tl.maximum(tl.load(offsets_ptr + sequence), 0), total)
    end = tl.minimum(tl.load(offsets_ptr + sequence + 1), total)
    return begin, tl.maximum(end - begin, 0)


@triton.jit
def tile_of(offsets_ptr, sequences, total, number, TILE: tl.constexpr):
    """Return the sequence that tile `number` is of, and its first row there.

    The row is beyond the sequence, or negative, where the tile has nothing to do.
    """
    sequence = number * 0
    after = sequence + sequences
    while after - sequence > 1:
        middle = (sequence + after) // 2
        begin, _ = bounds(offsets_ptr, middle, total)
        before = begin // TILE + middle <= number
        sequence = tl.where(before, middle, sequence)
        after = tl.where(before, after, middle)
    begin, _ = bounds(offsets_ptr, sequence, total)
    return sequence, (number - begin // TILE - sequence) * TILE


@triton.jit
def seen(rows_M, keys_N, rows, keys, CAUSAL: tl.constexpr):
    """Return which keys of a tile each row sees."""
    there = (keys_N < keys)[None, :]
    if CAUSAL:
        there = there & (rows_M[:, None] + (keys - rows) >= keys_N[None, :])
    return there


@triton.jit
def step(
    q, k_base, v_base, stride_k, stride_v, rows_M, key, rows, keys, scale_log2, top, total, acc,
    MASKED: tl.constexpr, CAUSAL: tl.constexpr, TILE_N: tl.constexpr,
    D: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Take one more tile of keys into each row's largest score, its sum, and O."""
    k = load_rows(k_base, key, stride_k, keys, TILE_N, D, BLOCK_D)
    v = load_rows(v_base, key, stride_v, keys, TILE_N, D, BLOCK_D)
    s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale_log2
    if MASKED:
        keys_N = key + tl.arange(0, TILE_N)
        s = tl.where(seen(rows_M, keys_N, rows, keys, CAUSAL), s, float("-inf"))
    new_top = tl.maximum(top, tl.max(s, 1))
    safe = new_top
    if MASKED:
        # A row that has seen no key yet: minus infinity less minus infinity is no number.
        safe = tl.where(new_top == float("-inf"), 0.0, new_top)
    p = tl.exp2(s - safe[:, None])
    shrink = tl.exp2(top - safe)
    total = total * shrink + tl.sum(p, 1)
    acc = tl.dot(p.to(v.dtype), v, acc * shrink[:, None], input_precision="ieee")
    return new_top, total, acc


@triton.jit(do_not_specialize=["sequences", "total_rows", "total_keys"])
def varlen_forward_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    o_ptr,
    lse_ptr,
    offsets_q_ptr,
    offsets_k_ptr,
    stride_qm,
    stride_qh,
    stride_kn,
    stride_kh,
    stride_vn,
    stride_vh,
    stride_om,
    stride_oh,
    sequences,
    total_rows,
    total_keys,
    heads_per_kv,
    scale_log2,
    CAUSAL: tl.constexpr,
    TILE_M: tl.constexpr,
    TILE_N: tl.constexpr,
    D: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """Compute TILE_M rows of O, the longest of a sequence first."""
    tiles = total_rows // TILE_M + sequences
    head = (tl.program_id(0) // tiles).to(tl.int64)
    number = tiles - 1 - tl.program_id(0) % tiles
    sequence, first = tile_of(offsets_q_ptr, sequences, total_rows, number, TILE_M)
    begin, rows = bounds(offsets_q_ptr, sequence, total_rows)
    if (first < 0) | (first >= rows):
        return
    begin_k, keys = bounds(offsets_k_ptr, sequence, total_keys)
    kv_head = head // heads_per_kv
    k_base = k_ptr + begin_k.to(tl.int64) * stride_kn + kv_head * stride_kh
    v_base = v_ptr + begin_k.to(tl.int64) * stride_vn + kv_head * stride_vh
    q_base = q_ptr + begin.to(tl.int64) * stride_qm + head * stride_qh
    rows_M = first + tl.arange(0, TILE_M)
    q = load_rows(q_base, first, stride_qm, rows, TILE_M, D, BLOCK_D)

    top = tl.full((TILE_M,), float("-inf"), tl.float32)
    total = tl.zeros((TILE_M,), tl.float32)
    acc = tl.zeros((TILE_M, BLOCK_D), tl.float32)
    end = keys
    free = keys // TILE_N * TILE_N
    if CAUSAL:
        end = tl.minimum(keys, tl.maximum(first + TILE_M + keys - rows, 0))
        all_see = tl.maximum(first + 1 + keys - rows, 0)
        free = tl.minimum(free, all_see // TILE_N * TILE_N)
    for key in range(0, free, TILE_N):
        top, total, acc = step(
            q, k_base, v_base, stride_kn, stride_vn, rows_M, key, rows, keys, scale_log2,
            top, total, acc, MASKED=False, CAUSAL=CAUSAL, TILE_N=TILE_N, D=D, BLOCK_D=BLOCK_D,
        )  # fmt: skip
    for key in range(free, end, TILE_N):
        top, total, acc = step(
            q, k_base, v_base, stride_kn, stride_vn, rows_M, key, rows, keys, scale_log2,
            top, total, acc, MASKED=True, CAUSAL=CAUSAL, TILE_N=TILE_N, D=D, BLOCK_D=BLOCK_D,
        )  # fmt: skip

    blind = total == 0.0
    acc = acc / tl.where(blind, 1.0, total)[:, None]
    o_base = o_ptr + begin.to(tl.int64) * stride_om + head * stride_oh
    store_rows(o_base, first, stride_om, rows, acc, TILE_M, D, BLOCK_D)
    lse = tl.where(blind, float("inf"), top + tl.log2(tl.where(blind, 1.0, total)))
    tl.store(lse_ptr + head * total_rows + begin + rows_M, lse, mask=rows_M < rows)


@triton.jit(do_not_specialize=["total_rows"])
def varlen_delta_kernel(
    o_ptr,
    do_ptr,
    delta_ptr,
    stride_om,
    stride_oh,
    stride_dm,
    stride_dh,
    total_rows,
    TILE_M: tl.constexpr,
    D: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """Compute the sum of O dO of each row, which the softmax's derivative subtracts."""
    tiles = tl.cdiv(total_rows, TILE_M)
    head = (tl.program_id(0) // tiles).to(tl.int64)
    first = tl.program_id(0) % tiles * TILE_M
    o = load_rows(o_ptr + head * stride_oh, first, stride_om, total_rows, TILE_M, D, BLOCK_D)
    do = load_rows(do_ptr + head * stride_dh, first, stride_dm, total_rows, TILE_M, D, BLOCK_D)
    delta = tl.sum(o.to(tl.float32) * do.to(tl.float32), 1)
    row = first + tl.arange(0, TILE_M)
    tl.store(delta_ptr + head * total_rows + row, delta, mask=row < total_rows)


@triton.jit(do_not_specialize=["sequences", "total_rows", "total_keys"])
def varlen_dkdv_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    do_ptr,
    dk_ptr,
    dv_ptr,
    lse_ptr,
    delta_ptr,
    offsets_q_ptr,
    offsets_k_ptr,
    stride_qm,
    stride_qh,
    stride_kn,
    stride_kh,
    stride_vn,
    stride_vh,
    stride_dm,
    stride_dh,
    stride_gn,
    stride_gh,
    sequences,
    total_rows,
    total_keys,
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
    tiles = total_keys // TILE_N + sequences
    kv_head = (tl.program_id(0) // tiles).to(tl.int64)
    number = tl.program_id(0) % tiles
    sequence, key = tile_of(offsets_k_ptr, sequences, total_keys, number, TILE_N)
    begin_k, keys = bounds(offsets_k_ptr, sequence, total_keys)
    if (key < 0) | (key >= keys):
        return
    begin, rows = bounds(offsets_q_ptr, sequence, total_rows)
    keys_N = key + tl.arange(0, TILE_N)
    k_base = k_ptr + begin_k.to(tl.int64) * stride_kn + kv_head * stride_kh
    v_base = v_ptr + begin_k.to(tl.int64) * stride_vn + kv_head * stride_vh
    k = load_rows(k_base, key, stride_kn, keys, TILE_N, D, BLOCK_D)
    v = load_rows(v_base, key, stride_vn, keys, TILE_N, D, BLOCK_D)
    dk = tl.zeros((TILE_N, BLOCK_D), tl.float32)
    dv = tl.zeros((TILE_N, BLOCK_D), tl.float32)
    first_row = key * 0
    if CAUSAL:
        first_row = tl.maximum(key - (keys - rows), 0) // TILE_M * TILE_M
    for member in range(heads_per_kv):
        head = kv_head * heads_per_kv + member
        q_base = q_ptr + begin.to(tl.int64) * stride_qm + head * stride_qh
        do_base = do_ptr + begin.to(tl.int64) * stride_dm + head * stride_dh
        sums = head * total_rows + begin
        for first in range(first_row, rows, TILE_M):
            row = first + tl.arange(0, TILE_M)
            q = load_rows(q_base, first, stride_qm, rows, TILE_M, D, BLOCK_D)
            do = load_rows(do_base, first, stride_dm, rows, TILE_M, D, BLOCK_D)
            lse = tl.load(lse_ptr + sums + row, mask=row < rows, other=float("inf"))
            delta = tl.load(delta_ptr + sums + row, mask=row < rows, other=0.0)
            s = tl.dot(k, tl.trans(q), input_precision="ieee") * scale_log2
            there = tl.trans(seen(row, keys_N, rows, keys, CAUSAL))
            p = tl.where(there, tl.exp2(s - lse[None, :]), 0.0)
            dv = tl.dot(p.to(do.dtype), do, dv, input_precision="ieee")
            dp = tl.dot(v, tl.trans(do), input_precision="ieee")
            ds = p * (dp - delta[None, :])
            dk = tl.dot(ds.to(q.dtype), q, dk, input_precision="ieee")
    # dK and dV have the same strides.
    out = begin_k.to(tl.int64) * stride_gn + kv_head * stride_gh
    store_rows(dk_ptr + out, key, stride_gn, keys, dk * scale, TILE_N, D, BLOCK_D)
    store_rows(dv_ptr + out, key, stride_gn, keys, dv, TILE_N, D, BLOCK_D)


@triton.jit(do_not_specialize=["sequences", "total_rows", "total_keys"])
def varlen_dq_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    do_ptr,
    dq_ptr,
    lse_ptr,
    delta_ptr,
    offsets_q_ptr,
    offsets_k_ptr,
    stride_qm,
    stride_qh,
    stride_kn,
    stride_kh,
    stride_vn,
    stride_vh,
    stride_dm,
    stride_dh,
    stride_gm,
    stride_gh,
    sequences,
    total_rows,
    total_keys,
    heads_per_kv,
    scale,
    scale_log2,
    CAUSAL: tl.constexpr,
    TILE_M: tl.constexpr,
    TILE_N: tl.constexpr,
    D: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """Compute TILE_M rows of dQ, the longest of a sequence first."""
    tiles = total_rows // TILE_M + sequences
    head = (tl.program_id(0) // tiles).to(tl.int64)
    number = tiles - 1 - tl.program_id(0) % tiles
    sequence, first = tile_of(offsets_q_ptr, sequences, total_rows, number, TILE_M)
    begin, rows = bounds(offsets_q_ptr, sequence, total_rows)
    if (first < 0) | (first >= rows):
        return
    begin_k, keys = bounds(offsets_k_ptr, sequence, total_keys)
    kv_head = head // heads_per_kv
    k_base = k_ptr + begin_k.to(tl.int64) * stride_kn + kv_head * stride_kh
    v_base = v_ptr + begin_k.to(tl.int64) * stride_vn + kv_head * stride_vh
    q_base = q_ptr + begin.to(tl.int64) * stride_qm + head * stride_qh
    do_base = do_ptr + begin.to(tl.int64) * stride_dm + head * stride_dh
    row = first + tl.arange(0, TILE_M)
    q = load_rows(q_base, first, stride_qm, rows, TILE_M, D, BLOCK_D)
    do = load_rows(do_base, first, stride_dm, rows, TILE_M, D, BLOCK_D)
    sums = head * total_rows + begin
    lse = tl.load(lse_ptr + sums + row, mask=row < rows, other=float("inf"))
    delta = tl.load(delta_ptr + sums + row, mask=row < rows, other=0.0)
    dq = tl.zeros((TILE_M, BLOCK_D), tl.float32)
    end = keys
    if CAUSAL:
        end = tl.minimum(keys, tl.maximum(first + TILE_M + keys - rows, 0))
    for key in range(0, end, TILE_N):
        k = load_rows(k_base, key, stride_kn, keys, TILE_N, D, BLOCK_D)
        v = load_rows(v_base, key, stride_vn, keys, TILE_N, D, BLOCK_D)
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale_log2
        there = seen(row, key + tl.arange(0, TILE_N), rows, keys, CAUSAL)
        p = tl.where(there, tl.exp2(s - lse[:, None]), 0.0)
        dp = tl.dot(do, tl.trans(v), input_precision="ieee")
        ds = p * (dp - delta[:, None])
        dq = tl.dot(ds.to(k.dtype), k, dq, input_precision="ieee")
    out = begin.to(tl.int64) * stride_gm + head * stride_gh
    store_rows(dq_ptr + out, first, stride_gm, rows, dq * scale, TILE_M, D, BLOCK_D)
