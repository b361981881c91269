# SPDX-License-Identifier: Apache-2.0
"""Rotary positions as torch calls them: an operator, with its gradient.

The gradient is an operator that has none itself, so that a second derivative is an error and not a
wrong number.
"""

from functools import partial
from typing import Any

import torch

from gpupack_kernels.eager import past_dispatcher, sees_operators
from gpupack_kernels.operators.rotary import launch
from gpupack_kernels.operators.rotary.launch import Two
from gpupack_kernels.rows import empty_heads, empty_like_heads, has_tokens_first


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
    launch.check(q, k, cosine, sine)
    turned: Two = (_forward if sees_operators(q, k) else _eager)(q, k, cosine, sine)
    return turned


_forward = torch.library.custom_op("gpupack::rotary", launch.forward, mutates_args=())
_backward = torch.library.custom_op("gpupack::rotary_backward", launch.backward, mutates_args=())


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
    *(launch.forward, _keep, partial(_gradients, compute=launch.backward)), by_operators=_gradients
)
