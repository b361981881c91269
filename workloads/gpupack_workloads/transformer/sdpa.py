# SPDX-License-Identifier: Apache-2.0
"""torch's attention by a named implementation.

By default torch chooses for each problem and does not report its choice. Here it is the
first of the order below that takes heads of this kind: on GPUs since Hopper cuDNN's is the fastest.
"""

import warnings
from functools import cache

import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

ORDER = (
    SDPBackend.CUDNN_ATTENTION,
    SDPBackend.FLASH_ATTENTION,
    SDPBackend.EFFICIENT_ATTENTION,
    SDPBackend.MATH,
)
PROBE_TOKENS = 64


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Return causal attention: q [B, H, S, D], k and v [B, G, S, D] to [B, H, S, D]."""
    backend = backend_for(
        heads=q.shape[1], kv_heads=k.shape[1], width=q.shape[3], dtype=q.dtype, device=q.device
    )
    return attention_by(backend, q, k, v)


def attention_by(
    backend: SDPBackend, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
) -> torch.Tensor:
    """Return causal attention by one implementation; a RuntimeError says that it cannot."""
    with sdpa_kernel(backend):
        return functional.scaled_dot_product_attention(
            q, k, v, is_causal=True, enable_gqa=q.shape[1] != k.shape[1]
        )


@cache
def backend_for(
    *, heads: int, kv_heads: int, width: int, dtype: torch.dtype, device: torch.device
) -> SDPBackend:
    """Return the first implementation that takes heads of this kind, by trying."""
    q, k = (
        torch.zeros((1, count, PROBE_TOKENS, width), dtype=dtype, device=device)
        for count in (heads, kv_heads)
    )
    return next((backend for backend in ORDER[:-1] if takes(backend, q, k)), ORDER[-1])


def takes(backend: SDPBackend, q: torch.Tensor, k: torch.Tensor) -> bool:
    """Try, without torch's warnings about all that others would not take.

    Without gradients, too: a block that is computed again must save the same tensors as at first.
    """
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            attention_by(backend, q, k, k)
    except RuntimeError:
        return False
    return True


def name_of(backend: SDPBackend) -> str:
    """Return cudnn, flash, efficient or math."""
    return str(backend.name).removesuffix("_ATTENTION").lower()
