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

Product = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Operations:
    """One maker's.

    Attributes:
        attention: q [B, H, S, D], k and v [B, G, S, D] to [B, H, S, D], causal.
        softmax: over the last dimension.
        product: x [..., K] and a weight [N, K] to [..., N].
    """

    name: str
    attention: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
    softmax: Callable[[torch.Tensor], torch.Tensor]
    product: Product


def operations(kernels: str) -> Operations:
    """Return torch's or ours."""
    return by_torch() if kernels == "torch" else by_us()


def by_torch() -> Operations:
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
    )


def by_us() -> Operations:
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
    )
