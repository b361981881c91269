# SPDX-License-Identifier: Apache-2.0
"""What can be torch's or ours: attention, products, and the loss with its softmax.

Shape legend: B rows, S tokens of a row, H heads, G key heads, D numbers per head, K and N of a
product, T tokens of a batch, V vocabulary.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import torch
from torch.nn import functional

from gpupack_workloads.kernels.loading import load
from gpupack_workloads.transformer import sdpa
from gpupack_workloads.transformer.loss import Loss, by_cross_entropy, by_softmax
from gpupack_workloads.transformer.pointwise import Pointwise, pointwise

Product = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Operations:
    """One maker's.

    Attributes:
        attention: q [B, H, S, D], k and v [B, G, S, D] to [B, H, S, D], causal.
        loss: logits [T, V] in 32 bits and the right tokens [T] to their mean loss.
        product: x [..., K] and a weight [N, K] to [..., N].
        pointwise: what lies between them; torch's in any case.
    """

    name: str
    attention: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
    loss: Loss
    product: Product
    pointwise: Pointwise


def operations(kernels: str, *, compiled: bool) -> Operations:
    """Return torch's or ours, and the rest compiled or not."""
    rest = pointwise(compiled=compiled)
    return by_torch(rest) if kernels == "torch" else by_us(rest)


def by_torch(rest: Pointwise) -> Operations:
    """Return what torch has."""
    return Operations(
        name="torch",
        attention=sdpa.attention,
        loss=by_cross_entropy,
        product=functional.linear,
        pointwise=rest,
    )


def by_us(rest: Pointwise) -> Operations:
    """Return our kernels."""
    attention = load("attention.autograd", "attention")
    softmax = load("softmax.autograd", "softmax")
    gemm = load("gemm.launch", "gemm")

    def product(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        flat = gemm(x.reshape(-1, x.shape[-1]), weight.T)
        return cast("torch.Tensor", flat.reshape(*x.shape[:-1], weight.shape[0]))

    return Operations(
        name="ours",
        attention=lambda q, k, v: attention(q, k, v, causal=True),
        loss=by_softmax(softmax),
        product=product,
        pointwise=rest,
    )
