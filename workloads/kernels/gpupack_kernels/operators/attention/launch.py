# SPDX-License-Identifier: Apache-2.0
"""Chooses the kernels of attention for the operands, and launches them."""

import importlib
from typing import Any

import torch

from gpupack_kernels.devices import device_of, is_hopper, properties_of
from gpupack_kernels.operators.attention.portable import launch as portable
from gpupack_kernels.operators.attention.problem import Problem, aligned, problem_of
from gpupack_kernels.operators.attention.tuning import (
    HOPPER_DIMENSIONS,
    Configuration,
    TuningKey,
    configuration_for,
)
from gpupack_kernels.rows import empty_like_heads

Three = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def forward(
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


def backward(
    inputs: list[torch.Tensor],
    outputs: list[torch.Tensor],
    do: torch.Tensor,
    causal: bool,  # noqa: FBT001
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return dQ, dK and dV with the strides of Q, K and V; `outputs` are `forward`'s results."""
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
    return importlib.import_module("gpupack_kernels.operators.attention.hopper.launch")
