# SPDX-License-Identifier: Apache-2.0
"""Rotary positions in Triton: a program turns all heads of one token, those of q and of k.

EXACT says that half a head fills its block, which then needs no mask for it. Tokens and heads are
counted in 64 bits.

Shape suffixes: H heads of a turn of the loop, D half of the numbers of a head.
"""

import triton
import triton.language as tl


@triton.jit
def rotary_kernel(
    q_ptr,
    k_ptr,
    cosine_ptr,
    sine_ptr,
    turned_q_ptr,
    turned_k_ptr,
    tokens,
    half,
    heads_q,
    heads_k,
    stride_qb,
    stride_qh,
    stride_qs,
    stride_kb,
    stride_kh,
    stride_ks,
    stride_tqb,
    stride_tqh,
    stride_tqs,
    stride_tkb,
    stride_tkh,
    stride_tks,
    stride_cosine,
    stride_sine,
    HEADS_Q: tl.constexpr,
    HEADS_K: tl.constexpr,
    BLOCK: tl.constexpr,
    EXACT: tl.constexpr,
    BACK: tl.constexpr,
):
    """Turn a token's heads; BACK turns them the other way."""
    program = tl.program_id(0).to(tl.int64)
    row = program // tokens
    token = program % tokens
    pairs_D = tl.arange(0, BLOCK)
    inside_D = pairs_D < half
    at_D = cosine_ptr + token * stride_cosine + pairs_D
    cosine_D = tl.load(at_D, mask=inside_D, other=0.0).to(tl.float32)
    at_D = sine_ptr + token * stride_sine + pairs_D
    sine_D = tl.load(at_D, mask=inside_D, other=0.0).to(tl.float32)
    if BACK:
        sine_D = -sine_D
    q_ptr += row * stride_qb + token * stride_qs
    turned_q_ptr += row * stride_tqb + token * stride_tqs
    turn(
        q_ptr, turned_q_ptr, heads_q, half, stride_qh, stride_tqh, cosine_D, sine_D,
        HEADS_Q, BLOCK, EXACT,
    )  # fmt: skip
    k_ptr += row * stride_kb + token * stride_ks
    turned_k_ptr += row * stride_tkb + token * stride_tks
    turn(
        k_ptr, turned_k_ptr, heads_k, half, stride_kh, stride_tkh, cosine_D, sine_D,
        HEADS_K, BLOCK, EXACT,
    )  # fmt: skip


@triton.jit
def turn(
    x_ptr,
    y_ptr,
    heads,
    half,
    stride_x,
    stride_y,
    cosine_D,
    sine_D,
    HEADS: tl.constexpr,
    BLOCK: tl.constexpr,
    EXACT: tl.constexpr,
):
    """Rotate the heads of x, whose stride is `stride_x`."""
    pairs_D = tl.arange(0, BLOCK)
    for first in range(0, heads, HEADS):
        heads_H = first + tl.arange(0, HEADS).to(tl.int64)
        inside_HD = (heads_H < heads)[:, None]
        if not EXACT:
            inside_HD = inside_HD & (pairs_D < half)[None, :]
        x_HD = x_ptr + heads_H[:, None] * stride_x + pairs_D[None, :]
        left = tl.load(x_HD, mask=inside_HD, other=0.0).to(tl.float32)
        right = tl.load(x_HD + half, mask=inside_HD, other=0.0).to(tl.float32)
        turned_left = left * cosine_D[None, :] - right * sine_D[None, :]
        turned_right = right * cosine_D[None, :] + left * sine_D[None, :]
        y_HD = y_ptr + heads_H[:, None] * stride_y + pairs_D[None, :]
        tl.store(y_HD, turned_left.to(y_ptr.dtype.element_ty), mask=inside_HD)
        tl.store(y_HD + half, turned_right.to(y_ptr.dtype.element_ty), mask=inside_HD)
