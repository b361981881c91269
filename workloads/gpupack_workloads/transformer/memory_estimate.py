# SPDX-License-Identifier: Apache-2.0
"""Estimates the minimum memory of a training before any work.

Per parameter (ZeRO, Rajbhandari et al., 2020), of 4 bytes each: itself, two moments of AdamW, and
its gradient. In the forward pass gradients are there only if an earlier part of the batch has left
them, or DDP keeps its buckets; moments are there from the second step on.

Per token and block, in elements of the type of products (after Korthikanti et al., 2022, for this
block; each is the input of something whose gradient needs it):

    4 width                      what comes into each half, before and after it is normalised
    2 width + 2 kv + 3 inner     queries, attention's output, keys, values; gate, up, their product

of which tensor parallelism cuts the second line. In bf16 the rounded weights of products are kept,
too. Recomputing keeps one width per block, and has one block whole in the backward pass. Per token
and word of the vocabulary: the logits, the same in 32 bits, and what the loss makes of them. Where
the loss comes straight from the head, there are its gradients of the head's weight and input, and
logits of as many tokens as a token has numbers, or of all if they are fewer.

Whatever depends on kernels and allocators is left out, so that nothing is refused which would fit:
of the 39,113 MiB that four H200s took each for the default sizes this finds 36,000.
"""

from dataclasses import dataclass, replace

from gpupack_workloads.transformer.plan import SHARING, Plan, Shape

FLOAT_BYTES = 4
ELEMENT_BYTES = {"bf16": 2, "fp32": 4}


@dataclass(frozen=True, kw_only=True)
class MemoryUse:
    """Memory of one process of a training.

    Attributes:
        parameters: how many.
        layers: how many.
        cut: into how many parts their products are cut.
        tokens: that it computes on at once.
        gradients: whether they are there in the forward pass.
        moments: whether they are.
        rounded: whether weights in the type of products are kept.
        logits: whether it computes them.
        fused: whether it computes the loss without having all of them.
    """

    parameters: int
    layers: int
    cut: int = 1
    tokens: int
    gradients: bool
    moments: bool = True
    rounded: bool
    logits: bool = True
    fused: bool = False


def training_bytes(plan: Plan, ranks: int) -> int:
    """Return what every process needs to train: each makes the whole network before it is cut.

    Speeds are measured after the training, so there is always a second step.
    """
    if ranks == 1:
        held = alone(plan, parts=plan.parts, moments=True)
        return peak_bytes(replace(held, fused=plan.kernels == "all"), plan)
    return max(FLOAT_BYTES * parameters(plan.shape), peak_bytes(spread(plan, ranks), plan))


def keeps_gathered(plan: Plan, ranks: int, free_bytes: int) -> bool:
    """Return whether FSDP keeps the parameters that it gathers for the whole step.

    A step then gathers each of them once, and not for every pass of every micro-batch. It does so
    where the training with a whole copy of the parameters needs at most half of the memory.
    """
    copy = ELEMENT_BYTES[plan.dtype] * parameters(plan.shape)
    return 2 * (training_bytes(plan, ranks) + copy) <= free_bytes


def checking_bytes(plan: Plan, ranks: int) -> int:
    """Return what every process needs to train alone, in parts as small as those of the ranks."""
    parts = plan.parts * sharing_ranks(plan, ranks)
    return peak_bytes(alone(plan, parts=parts, moments=plan.check_steps > 1), plan)


def sharing_ranks(plan: Plan, ranks: int) -> int:
    """Return how many ranks compute different rows."""
    return ranks if plan.parallel in SHARING else 1


def alone(plan: Plan, *, parts: int, moments: bool) -> MemoryUse:
    """Return what a single process holds."""
    return MemoryUse(
        parameters=parameters(plan.shape),
        layers=plan.shape.layers,
        tokens=plan.batch_size // parts * plan.shape.sequence,
        gradients=parts > 1,
        moments=moments,
        rounded=plan.dtype != "fp32",
    )


def spread(plan: Plan, ranks: int) -> MemoryUse:
    """Return what the rank holds that holds least; of a pipeline that is an inner stage."""
    shape = plan.shape
    whole, embedding = parameters(shape), shape.vocabulary * shape.width
    stage = shape.layers // ranks
    rank = alone(plan, parts=plan.parts * sharing_ranks(plan, ranks), moments=True)
    fused = plan.kernels == "all" and plan.parallel in SHARING
    rank = replace(rank, gradients=plan.parts > 1, fused=fused)
    return {
        "ddp": replace(rank, gradients=True),
        "fsdp": replace(rank, parameters=whole // ranks, rounded=False),
        "tp": replace(rank, parameters=embedding + (whole - embedding) // ranks, cut=ranks),
        "pp": replace(
            rank,
            parameters=stage * shape.block_weights,
            layers=stage,
            gradients=False,
            logits=False,
        ),
    }[plan.parallel]


def parameters(shape: Shape) -> int:
    """Return how many numbers are trained: blocks, embedding, head, and scales of norms."""
    scales = (2 * shape.layers + 1) * shape.width
    return shape.layers * shape.block_weights + 2 * shape.vocabulary * shape.width + scales


def peak_bytes(held: MemoryUse, plan: Plan) -> int:
    """Return what is held at the end of a forward pass, or at the update if that is more."""
    copies = 1 + 2 * held.moments + held.gradients
    forward = copies * FLOAT_BYTES * held.parameters + activation_bytes(held, plan)
    return max(forward, 4 * FLOAT_BYTES * held.parameters)


def activation_bytes(held: MemoryUse, plan: Plan) -> int:
    """Return what a forward pass keeps for the backward pass, and its logits."""
    shape, element = plan.shape, ELEMENT_BYTES[plan.dtype]
    inputs = element * held.tokens * shape.width
    block = block_bytes(held, plan)
    logits = 0
    if held.fused:
        logits = inputs + element * shape.vocabulary * (shape.width + min(held.tokens, shape.width))
    elif held.logits:
        rounded = element if plan.dtype != "fp32" else 0
        logits = held.tokens * shape.vocabulary * (rounded + 2 * FLOAT_BYTES)
    if plan.recompute:
        return held.layers * inputs + max(block, logits)
    weights = element * shape.block_weights // held.cut if held.rounded else 0
    return held.layers * (block + weights) + logits


def block_bytes(held: MemoryUse, plan: Plan) -> int:
    """Return what a forward pass keeps of one block."""
    shape = plan.shape
    inner = 2 * shape.width + 2 * shape.kv_heads * shape.head_width + 3 * shape.inner
    return ELEMENT_BYTES[plan.dtype] * held.tokens * (4 * shape.width + inner // held.cut)
