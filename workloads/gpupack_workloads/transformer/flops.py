# SPDX-License-Identifier: Apache-2.0
"""Operations per token, for the share of a device's peak (MFU, Chowdhery et al., 2022).

Per token and step: 6 for every weight in a product (2 forward, 4 for both gradients), and for
causal attention 6 x layers x width x sequence (two products of 2 x width x sequence per layer,
three times that with gradients, half of it masked). Embeddings are looked up, not multiplied.
Recomputed activations do not count: MFU asks what the training needed, not what was done for it.
"""

from gpupack_workloads.transformer.plan import Shape


def flops_per_token(shape: Shape) -> int:
    """Return floating-point operations per token of a training step."""
    weights = shape.layers * shape.block_weights + shape.width * shape.vocabulary
    return 6 * weights + 6 * shape.layers * shape.width * shape.sequence
