# SPDX-License-Identifier: Apache-2.0
"""The loss and G of rows of logits, and the scaling of sums, in Triton.

A program takes one row and reads it twice, in chunks: at first for its largest value and the sum
of exponentials at once ("online", Milakov and Gimelshein, 2018), then to write G in its place. One
row per multiprocessor stays in the L2 cache until it is read again.

Shape suffixes: V words of one chunk of a row.
"""

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)
LN_2 = tl.constexpr(0.6931471805599453)
NONE = tl.constexpr(float("-inf"))


@triton.jit
def loss_kernel(
    logits_ptr,
    targets_ptr,
    losses_ptr,
    words,
    stride,
    ignored,
    CHUNK: tl.constexpr,
    STAGES: tl.constexpr,
    GRADIENT: tl.constexpr,
):
    """Write the loss of this program's row, and with GRADIENT its G over the logits.

    An ignored target has neither. A target outside the vocabulary has a loss of NaN.
    """
    row = tl.program_id(0).to(tl.int64)
    logits_ptr += row * stride
    target = tl.load(targets_ptr + row)
    counts = target != ignored
    known = (target >= 0) & (target < words)
    # Before any of the row is overwritten; the sums below hold all threads together.
    right = tl.load(logits_ptr + target, mask=known, other=float("nan")).to(tl.float32)
    positions_V = tl.arange(0, CHUNK)
    top_V = tl.full((CHUNK,), NONE, tl.float32)
    sum_V = tl.zeros((CHUNK,), tl.float32)
    for start in tl.range(0, words, CHUNK, num_stages=STAGES):
        words_V = start + positions_V
        at_V = logits_ptr + words_V
        x = tl.load(at_V, mask=words_V < words, other=NONE, eviction_policy="evict_last")
        x = x.to(tl.float32)
        higher_V = tl.maximum(top_V, x)
        # A position that has seen nothing yet: infinity minus infinity would be no number.
        base_V = tl.where(higher_V == NONE, 0.0, higher_V)
        sum_V = sum_V * tl.exp2((top_V - base_V) * LOG2_E) + tl.exp2((x - base_V) * LOG2_E)
        top_V = higher_V
    top = tl.max(top_V, 0)
    total = tl.sum(sum_V * tl.exp2((top_V - top) * LOG2_E), 0)
    loss = (top - right) + tl.log2(total) * LN_2
    tl.store(losses_ptr + row, tl.where(counts, loss, 0.0))
    if GRADIENT:
        scale = 1.0 / total
        for start in tl.range(0, words, CHUNK, num_stages=STAGES):
            words_V = start + positions_V
            at_V = logits_ptr + words_V
            x = tl.load(at_V, mask=words_V < words, other=NONE, eviction_policy="evict_first")
            g = tl.exp2((x.to(tl.float32) - top) * LOG2_E) * scale
            g = tl.where(words_V == target, g - 1.0, g)
            g = tl.where(counts, g, 0.0).to(logits_ptr.dtype.element_ty)
            tl.store(at_V, g, mask=words_V < words)


@triton.jit
def scale_kernel(x_ptr, y_ptr, gradient_ptr, count_ptr, elements, BLOCK: tl.constexpr):
    """Write y = x gradient / count of this program's block; the last two are one number each."""
    # Sums over no tokens are 0, and stay so.
    scale = tl.load(gradient_ptr).to(tl.float32) / tl.maximum(tl.load(count_ptr), 1.0)
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < elements
    x = tl.load(x_ptr + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(y_ptr + at, (x * scale).to(y_ptr.dtype.element_ty), mask=inside)
