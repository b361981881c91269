# SPDX-License-Identifier: Apache-2.0
"""Attention as torch calls it: an operator, with its gradient.

O and one number per row are kept, and scores computed again. The gradient is an operator that has
none itself, so that a second derivative is an error and not a wrong number.
"""

import importlib
from functools import partial
from typing import Any

import torch

from gpupack_workloads.kernels.attention.portable import launch as portable
from gpupack_workloads.kernels.attention.problem import Problem, aligned, problem_of
from gpupack_workloads.kernels.attention.tuning import (
    HOPPER_DIMENSIONS,
    Configuration,
    TuningKey,
    configuration_for,
)
from gpupack_workloads.kernels.casts import as_product
from gpupack_workloads.kernels.devices import device_of, is_hopper, properties_of
from gpupack_workloads.kernels.eager import past_dispatcher, sees_operators
from gpupack_workloads.kernels.rows import empty_like_heads

Three = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


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


def _compute(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    causal: bool,  # noqa: FBT001  an operator's arguments have no names
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return O, with the strides of Q, and each row's log-sum-exp2 of scaled scores."""
    problem = problem_of(q, k, v, causal=causal, scale=scale)
    o, lse = empty_like_heads(q), portable.empty_sums(problem, q.device)
    if problem.is_empty:
        return o.zero_(), lse
    qkv = (aligned(q), aligned(k), aligned(v))
    tuned = configuration_of(q, problem)
    with device_of(q):
        if tuned is None:
            portable.forward(qkv, (o, lse), problem)
        else:
            hopper().forward(qkv, (o, lse), problem, tuned)
    return o, lse


def _compute_gradients(
    inputs: list[torch.Tensor],
    outputs: list[torch.Tensor],
    do: torch.Tensor,
    causal: bool,  # noqa: FBT001
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return dQ, dK and dV with the strides of Q, K and V; `outputs` are `_forward`'s results."""
    gradients: Three = (
        empty_like_heads(inputs[0]),
        empty_like_heads(inputs[1]),
        empty_like_heads(inputs[2]),
    )
    q, k, v = (aligned(x) for x in inputs)
    problem = problem_of(q, k, v, causal=causal, scale=scale)
    if problem.is_empty:
        dq, dk, dv = (gradient.zero_() for gradient in gradients)
        return dq, dk, dv
    o, lse = outputs
    do = aligned(do)
    tuned = configuration_of(q, problem)
    with device_of(q):
        sums = (lse, portable.row_products(o, do, problem))
        if tuned is None:
            portable.backward((q, k, v), do, sums, gradients, problem)
        else:
            hopper().backward((q, k, v), do, sums, gradients, problem, tuned)
    return gradients


_forward = torch.library.custom_op("gpupack::attention", _compute, mutates_args=())
_backward = torch.library.custom_op(
    "gpupack::attention_backward", _compute_gradients, mutates_args=()
)


@_forward.register_fake
def _(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    causal: bool,  # noqa: FBT001
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    problem = problem_of(q, k, v, causal=causal, scale=scale)
    return empty_like_heads(q), portable.empty_sums(problem, q.device)


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
    *(_compute, _keep, partial(_gradient, compute=_compute_gradients)), by_operators=_gradient
)


def configuration_of(q: torch.Tensor, problem: Problem) -> Configuration | None:
    """Return how the Hopper kernels run, or nothing where they cannot.

    They look for a row's largest score before they scale, so the scale must be positive.
    """
    if problem.dimension not in HOPPER_DIMENSIONS or not is_hopper(q):
        return None
    if q.dtype == torch.float32 or problem.scale <= 0:
        return None
    key = TuningKey(problem.dimension, causal=problem.causal)
    return configuration_for(properties_of(q).name, key)


def hopper() -> Any:
    """Import what only Hopper needs."""
    return importlib.import_module("gpupack_workloads.kernels.attention.hopper.launch")
