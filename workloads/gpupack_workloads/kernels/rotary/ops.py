# SPDX-License-Identifier: Apache-2.0
"""The rotary positions that others use: checks, sizes of grids; an operator with its gradient.

The gradient is an operator that has none itself, so that a second derivative is an error and not a
wrong number.
"""

from functools import partial
from typing import Any

import torch

from gpupack_workloads.kernels.devices import device_of
from gpupack_workloads.kernels.eager import past_dispatcher, sees_operators
from gpupack_workloads.kernels.errors import Unsupported
from gpupack_workloads.kernels.rotary.kernel import rotary_kernel
from gpupack_workloads.kernels.rows import (
    block_of,
    empty_heads,
    empty_like_heads,
    has_tokens_first,
    require,
)

Two = tuple[torch.Tensor, torch.Tensor]

MAX_PAIRS = 1 << 14
"""Half of a head, which a program holds in registers."""
# 1024 pairs for 128 threads: a load of 16 bytes from either half, in 16 bits.
PAIRS, WARPS = 1024, 4


def rotary(q: torch.Tensor, k: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> Two:
    """Return q and k with each head turned by its token's angles, computed in 32 bits.

    Number i and number i + dimension / 2 of a head are a pair. Results and gradients have no gaps
    in memory, and tokens or heads first there, as q and k have. Differentiable once with respect to
    q and k.

    Args:
        q: (batch, heads, tokens, dimension), in any order of strides.
        k: (batch, key heads, tokens, dimension), of the type of q.
        cosine: (tokens, dimension / 2), of any type.
        sine: as cosine.

    Raises:
        Unsupported: shapes, types or devices do not fit, or a table wants a gradient.
    """
    _check(q, k, cosine, sine)
    turned: Two = (_forward if sees_operators(q, k) else _eager)(q, k, cosine, sine)
    return turned


def _compute(q: torch.Tensor, k: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> Two:
    turned = empty_like_heads(q), empty_like_heads(k)
    _turn((q, k), (cosine, sine), turned, back=False)
    return turned


def _compute_gradients(
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


_forward = torch.library.custom_op("gpupack::rotary", _compute, mutates_args=())
_backward = torch.library.custom_op("gpupack::rotary_backward", _compute_gradients, mutates_args=())


@_forward.register_fake
def _(q: torch.Tensor, k: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> Two:  # noqa: ARG001
    return empty_like_heads(q), empty_like_heads(k)


@_backward.register_fake
def _(
    dq: torch.Tensor,
    dk: torch.Tensor,
    cosine: torch.Tensor,  # noqa: ARG001
    sine: torch.Tensor,  # noqa: ARG001
    q_tokens_first: bool,  # noqa: FBT001
    k_tokens_first: bool,  # noqa: FBT001
) -> Two:
    return (
        empty_heads(dq, tokens_first=q_tokens_first),
        empty_heads(dk, tokens_first=k_tokens_first),
    )


def _keep(ctx: Any, inputs: tuple[torch.Tensor, ...], output: Two) -> None:  # noqa: ARG001
    q, k, *tables = inputs
    ctx.save_for_backward(*tables)
    ctx.shapes, ctx.kind = (q.shape, k.shape), {"dtype": q.dtype, "device": q.device}
    ctx.tokens_first = has_tokens_first(q), has_tokens_first(k)


def _gradients(
    ctx: Any, dq: torch.Tensor | None, dk: torch.Tensor | None, *, compute: Any = _backward
) -> tuple[torch.Tensor, torch.Tensor, None, None]:
    dq, dk = (
        torch.zeros(shape, **ctx.kind) if gradient is None else gradient
        for gradient, shape in zip((dq, dk), ctx.shapes, strict=True)
    )
    return (*compute(dq, dk, *ctx.saved_tensors, *ctx.tokens_first), None, None)


_forward.register_autograd(_gradients, setup_context=_keep)
_eager = past_dispatcher(
    *(_compute, _keep, partial(_gradients, compute=_compute_gradients)), by_operators=_gradients
)


def _check(q: torch.Tensor, k: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> None:
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
