# SPDX-License-Identifier: Apache-2.0
"""Launches the rotary kernel: checks the arguments, sizes the grid."""

import torch

from gpupack_kernels.devices import device_of
from gpupack_kernels.errors import Unsupported
from gpupack_kernels.operators.rotary.kernel import rotary_kernel
from gpupack_kernels.rows import block_of, empty_heads, empty_like_heads, require

Two = tuple[torch.Tensor, torch.Tensor]
MAX_PAIRS = 1 << 14
"""Half of a head, which a program holds in registers."""
# 1024 pairs for 128 threads: a load of 16 bytes from either half, in 16 bits.
PAIRS, WARPS = 1024, 4


def forward(q: torch.Tensor, k: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> Two:
    """Return q and k turned."""
    turned = empty_like_heads(q), empty_like_heads(k)
    _turn((q, k), (cosine, sine), turned, back=False)
    return turned


def backward(
    dq: torch.Tensor,
    dk: torch.Tensor,
    cosine: torch.Tensor,
    sine: torch.Tensor,
    q_tokens_first: bool,  # noqa: FBT001  an operator's arguments have no names
    k_tokens_first: bool,  # noqa: FBT001
) -> Two:
    """Return gradients with the strides of q and k, so that no caller has to transpose them."""
    gradients = (
        empty_heads(dq, tokens_first=q_tokens_first),
        empty_heads(dk, tokens_first=k_tokens_first),
    )
    _turn((dq, dk), (cosine, sine), gradients, back=True)
    return gradients


def check(q: torch.Tensor, k: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> None:
    """Refuse operands that cannot be turned here."""
    require("rotary", q, k, cosine, sine)
    if q.dtype != k.dtype:
        raise Unsupported(f"q is of {q.dtype} and k of {k.dtype}")
    if q.dim() != 4 or k.dim() != 4 or q.shape[::2] != k.shape[::2] or q.shape[3] != k.shape[3]:  # noqa: PLR2004  see rotary
        raise Unsupported(
            "q and k must be (batch, heads, tokens, dimension), equal except for the heads, not"
            f" {tuple(q.shape)} and {tuple(k.shape)}"
        )
    tokens, dimension = q.shape[2:]
    if dimension % 2 or not 0 < dimension // 2 <= MAX_PAIRS:
        raise Unsupported(f"a head of {dimension} numbers is not 1 to {MAX_PAIRS} pairs")
    if cosine.shape != sine.shape or tuple(cosine.shape) != (tokens, dimension // 2):
        raise Unsupported(
            f"tables for {tokens} tokens of {dimension // 2} pairs cannot be of shapes"
            f" {tuple(cosine.shape)} and {tuple(sine.shape)}"
        )
    if torch.is_grad_enabled() and (cosine.requires_grad or sine.requires_grad):
        raise Unsupported("tables of cosines and sines have no gradients here")


def _turn(heads: Two, tables: Two, turned: Two, *, back: bool) -> None:
    """Write q and k turned."""
    if not turned[0].numel() and not turned[1].numel():
        return
    q, k, cosine, sine = (x if x.stride(-1) == 1 else x.contiguous() for x in (*heads, *tables))
    batch, _, tokens, dimension = q.shape
    half = dimension // 2
    block = block_of(half)
    most = max(1, PAIRS // block)
    with device_of(q):
        rotary_kernel[(batch * tokens,)](
            *(q, k, cosine, sine, *turned),
            *(tokens, half, q.shape[1], k.shape[1]),
            *(stride for x in (q, k, *turned) for stride in x.stride()[:3]),
            *(cosine.stride(0), sine.stride(0)),
            HEADS_Q=min(block_of(q.shape[1]), most),
            HEADS_K=min(block_of(k.shape[1]), most),
            BLOCK=block,
            EXACT=block == half,
            BACK=back,
            num_warps=WARPS,
        )
