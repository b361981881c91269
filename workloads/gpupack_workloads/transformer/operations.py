# SPDX-License-Identifier: Apache-2.0
"""The three operations that can be torch's or ours.

Shape legend: B rows, S tokens, H heads, G key heads, D numbers per head, K and N of a product.
"""

import importlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import torch
from torch.nn import functional

from gpupack_workloads.transformer.pointwise import Pointwise, pointwise

Product = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Operations:
    """One maker's.

    Attributes:
        attention: q [B, H, S, D], k and v [B, G, S, D] to [B, H, S, D], causal.
        softmax: over the last dimension.
        product: x [..., K] and a weight [N, K] to [..., N].
        pointwise: what lies between them; torch's in any case.
    """

    name: str
    attention: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
    softmax: Callable[[torch.Tensor], torch.Tensor]
    product: Product
    pointwise: Pointwise


def operations(kernels: str, *, compiled: bool) -> Operations:
    """Return torch's or ours, and the rest compiled or not."""
    rest = pointwise(compiled=compiled)
    return by_torch(rest) if kernels == "torch" else by_us(rest)


def by_torch(rest: Pointwise) -> Operations:
    """Return what torch has."""

    def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return functional.scaled_dot_product_attention(
            q, k, v, is_causal=True, enable_gqa=q.shape[1] != k.shape[1]
        )

    return Operations(
        name="torch",
        attention=attention,
        softmax=lambda scores: torch.softmax(scores, dim=-1),
        product=functional.linear,
        pointwise=rest,
    )


def by_us(rest: Pointwise) -> Operations:
    """Return our kernels, interpreted where there is no GPU: Triton decides that at import."""
    if not torch.cuda.is_available():
        os.environ["TRITON_INTERPRET"] = "1"
    kernels = importlib.import_module("gpupack_workloads.kernels")
    attention, softmax, gemm = kernels.attention, kernels.softmax, kernels.gemm

    def product(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        flat = gemm(x.reshape(-1, x.shape[-1]), weight.T)
        return cast("torch.Tensor", flat.reshape(*x.shape[:-1], weight.shape[0]))

    return Operations(
        name="ours",
        attention=lambda q, k, v: attention(q, k, v, causal=True),
        softmax=softmax,
        product=product,
        pointwise=rest,
    )
