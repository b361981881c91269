# SPDX-License-Identifier: Apache-2.0
"""Attention as torch calls it: an operator, with its gradient.

O and one number per row are kept, and scores computed again. The gradient is an operator that has
none itself, so that a second derivative is an error and not a wrong number.
"""

from functools import partial
from typing import Any

import torch

from gpupack_kernels.casts import as_product
from gpupack_kernels.eager import past_dispatcher, sees_operators
from gpupack_kernels.operators.attention import launch
from gpupack_kernels.operators.attention.portable.launch import empty_sums
from gpupack_kernels.operators.attention.problem import problem_of
from gpupack_kernels.rows import empty_like_heads


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    causal: bool = False,
    scale: float | None = None,
) -> torch.Tensor:
    """Return softmax(Q K' scale) V. Differentiable once.

    Under torch.autocast the operands are cast first. Rows that see no key, for there are none, are
    zero.

    Args:
        q: (batch, heads, length, dimension), the dimension a multiple of 16 up to 256.
        k: (batch, key heads, length of keys, dimension); key heads divide heads.
        v: as k.
        causal: whether row i sees only keys up to i; the lengths are equal then.
        scale: scale of the scores; one over the root of the dimension unless given.

    Raises:
        Unsupported: shapes, types or devices do not fit, or the GPU has too little shared memory.
    """
    q, k, v = as_product(q, k, v)
    problem = problem_of(q, k, v, causal=causal, scale=scale)
    call = _forward if sees_operators(q, k, v) else _eager
    o: torch.Tensor = call(q, k, v, causal, problem.scale)[0]
    return o


_forward = torch.library.custom_op("gpupack::attention", launch.forward, mutates_args=())
_backward = torch.library.custom_op("gpupack::attention_backward", launch.backward, mutates_args=())


@_forward.register_fake
def _(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    causal: bool,  # noqa: FBT001
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    problem = problem_of(q, k, v, causal=causal, scale=scale)
    return empty_like_heads(q), empty_sums(problem, q.device)


@_backward.register_fake
def _(
    inputs: list[torch.Tensor],
    outputs: list[torch.Tensor],  # noqa: ARG001
    do: torch.Tensor,  # noqa: ARG001
    causal: bool,  # noqa: ARG001, FBT001
    scale: float,  # noqa: ARG001
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    dq, dk, dv = (empty_like_heads(x) for x in inputs)
    return dq, dk, dv


def _keep(
    ctx: Any,
    inputs: tuple[Any, ...],
    output: tuple[torch.Tensor, torch.Tensor],
) -> None:
    *qkv, ctx.causal, ctx.scale = inputs
    ctx.save_for_backward(*qkv, *output)


def _gradient(
    ctx: Any,
    do: torch.Tensor,
    _: torch.Tensor | None,
    *,
    compute: Any = _backward,
) -> tuple[torch.Tensor | None, ...]:
    q, k, v, o, lse = ctx.saved_tensors
    return (*compute([q, k, v], [o, lse], do, ctx.causal, ctx.scale), None, None)


_forward.register_autograd(_gradient, setup_context=_keep)
_eager = past_dispatcher(
    *(launch.forward, _keep, partial(_gradient, compute=launch.backward)), by_operators=_gradient
)
