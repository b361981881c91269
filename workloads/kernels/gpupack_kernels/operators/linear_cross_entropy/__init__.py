# SPDX-License-Identifier: Apache-2.0
"""The mean loss of tokens straight from what the last layer leaves, without all logits in memory.

    ops      `linear_cross_entropy`, differentiable: what others use
    launch   checks arguments, sizes grids; chunks of tokens
    kernel   the Triton kernels

For tokens x [T, H], a weight [V, H] and right tokens t [T], logits are l = x weight', and

    loss = mean over tokens of log sum exp l - l[t]
    G = softmax(l) - onehot(t),    dx = G weight / T,    dweight = G' x / T

Tokens are taken in chunks. Of each the logits are computed, G is written over them, and its two
products are added to what the backward pass then only scales, as Liger does (Hsu et al., 2024).
Computing logits again in the backward pass would be four products in place of three, a third more
time. A chunk has about as many tokens as x has columns: its logits take what the weight takes, and
that much the backward pass needs anyway, for gradients before and after they are scaled. Smaller
chunks would save nothing, and each adds to the whole gradient of the weight once more.

Sums over chunks are kept in the type of the weight. G is not yet divided by T there: in 16 bits
with 5 of them for the exponent it would vanish.
"""
