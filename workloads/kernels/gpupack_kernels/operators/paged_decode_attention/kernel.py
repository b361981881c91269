# SPDX-License-Identifier: Apache-2.0
"""Attention of one token over pages in Triton, for any device.

A program computes one part of one sequence's positions, for one key head and HEADS of the query
heads that share it, which are the rows of its products: tensor cores take 16 at least, and the rest
is padding. Parts are cut by each sequence's own length, in whole tiles, so that all of a row's
programs have as much to do whatever the table has room for. What a part leaves, O by its own sum
and its log-sum-exp2, a second kernel puts together; where there is one part it leaves O itself.

What is beyond a sequence's length is not read: it may be others', or no numbers.

Offsets are 64-bit. Shape suffixes: H query heads, N positions of a tile, S parts, D head dimension.
"""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["stride_table", "table_pages", "parts"])
def paged_decode_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    table_ptr,
    lengths_ptr,
    o_ptr,
    lse_ptr,
    stride_qb,
    stride_qh,
    stride_kp,
    stride_kn,
    stride_kh,
    stride_vp,
    stride_vn,
    stride_vh,
    stride_table,
    stride_length,
    table_pages,
    parts,
    kv_heads,
    heads_per_kv,
    scale_log2,
    PAGE: tl.constexpr,
    HEADS: tl.constexpr,
    TILE_N: tl.constexpr,
    D: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """Compute O and its log-sum-exp2 of one part, (rows, heads, parts, D) and without D."""
    groups = tl.cdiv(heads_per_kv, HEADS)
    part = tl.program_id(0) % parts
    group = tl.program_id(0) // parts % groups
    owner = tl.program_id(0) // parts // groups
    row = (owner // kv_heads).to(tl.int64)
    kv_head = (owner % kv_heads).to(tl.int64)
    members_H = group * HEADS + tl.arange(0, HEADS)
    heads_H = kv_head * heads_per_kv + members_H
    columns_D = tl.arange(0, BLOCK_D)
    inside_HD = (members_H < heads_per_kv)[:, None] & (columns_D < D)[None, :]
    q = tl.load(
        q_ptr + row * stride_qb + heads_H[:, None] * stride_qh + columns_D[None, :],
        mask=inside_HD,
        other=0.0,
    )

    length = tl.load(lengths_ptr + row * stride_length).to(tl.int32)
    length = tl.minimum(length, table_pages * PAGE)
    tiles = tl.cdiv(tl.cdiv(length, TILE_N), parts)
    begin = part * tiles * TILE_N
    end = tl.minimum(begin + tiles * TILE_N, length)
    table_ptr += row * stride_table
    k_ptr += kv_head * stride_kh
    v_ptr += kv_head * stride_vh
    top = tl.full((HEADS,), float("-inf"), tl.float32)
    total = tl.zeros((HEADS,), tl.float32)
    acc = tl.zeros((HEADS, BLOCK_D), tl.float32)
    for first in range(begin, end, TILE_N):
        positions_N = first + tl.arange(0, TILE_N)
        there_N = positions_N < end
        page_N = tl.load(table_ptr + positions_N // PAGE, mask=there_N, other=0).to(tl.int64)
        slot_N = positions_N % PAGE
        there_ND = there_N[:, None]
        if D != BLOCK_D:
            there_ND = there_ND & (columns_D < D)[None, :]
        at_N = page_N * stride_kp + slot_N * stride_kn
        k = tl.load(k_ptr + at_N[:, None] + columns_D[None, :], mask=there_ND, other=0.0)
        at_N = page_N * stride_vp + slot_N * stride_vn
        v = tl.load(v_ptr + at_N[:, None] + columns_D[None, :], mask=there_ND, other=0.0)
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale_log2
        s = tl.where(there_N[None, :], s, float("-inf"))
        # A tile has a position at least, so that this is a number.
        new_top = tl.maximum(top, tl.max(s, 1))
        p = tl.exp2(s - new_top[:, None])
        shrink = tl.exp2(top - new_top)
        total = total * shrink + tl.sum(p, 1)
        acc = tl.dot(p.to(v.dtype), v, acc * shrink[:, None], input_precision="ieee")
        top = new_top

    empty = begin >= end
    total = tl.where(empty, 1.0, total)
    acc = acc / total[:, None]
    # Minus infinity where the part is empty: it has no weight.
    lse = top + tl.log2(total)
    out_H = (row * kv_heads * heads_per_kv + heads_H) * parts + part
    o_HD = o_ptr + out_H[:, None] * D + columns_D[None, :]
    tl.store(o_HD, acc.to(o_ptr.dtype.element_ty), mask=inside_HD)
    tl.store(lse_ptr + out_H, lse, mask=members_H < heads_per_kv)


@triton.jit(do_not_specialize=["parts"])
def paged_combine_kernel(
    parts_ptr,
    lse_ptr,
    o_ptr,
    parts,
    TILE_S: tl.constexpr,
    D: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """Put the parts of one row and head together, each by its share of the sum."""
    owner = tl.program_id(0).to(tl.int64)
    columns_D = tl.arange(0, BLOCK_D)
    inside_D = columns_D < D
    top = owner.to(tl.float32) * 0 + float("-inf")
    total = owner.to(tl.float32) * 0
    acc = tl.zeros((BLOCK_D,), tl.float32)
    for first in range(0, parts, TILE_S):
        parts_S = first + tl.arange(0, TILE_S)
        there_S = parts_S < parts
        lse_S = tl.load(lse_ptr + owner * parts + parts_S, mask=there_S, other=float("-inf"))
        at_SD = parts_ptr + (owner * parts + parts_S)[:, None] * D + columns_D[None, :]
        o_SD = tl.load(at_SD, mask=there_S[:, None] & inside_D[None, :], other=0.0)
        new_top = tl.maximum(top, tl.max(lse_S, 0))
        # Minus infinity less minus infinity is no number: no part has had a position yet.
        safe = tl.where(new_top == float("-inf"), 0.0, new_top)
        weights_S = tl.exp2(lse_S - safe)
        shrink = tl.exp2(top - safe)
        total = total * shrink + tl.sum(weights_S, 0)
        acc = acc * shrink + tl.sum(weights_S[:, None] * o_SD, 0)
        top = new_top
    o_D = acc / tl.where(total == 0.0, 1.0, total)
    tl.store(o_ptr + owner * D + columns_D, o_D.to(o_ptr.dtype.element_ty), mask=inside_D)
