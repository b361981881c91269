# SPDX-License-Identifier: Apache-2.0
"""Attention as torch calls it, with its derivative."""

import importlib
from functools import cache
from typing import Any

import torch

from gpupack_workloads.kernels.attention.configurations import (
    Case,
    Configuration,
    configuration_for,
)
from gpupack_workloads.kernels.attention.portable import launch as portable
from gpupack_workloads.kernels.attention.problem import aligned, problem_of

HOPPER = (9, 0)


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    causal: bool = False,
    scale: float | None = None,
) -> torch.Tensor:
    """Return softmax(Q K' scale) V.

    Args:
        q: (batch, heads, length, dimension), the dimension 64 or 128.
        k: (batch, key heads, length of keys, dimension); key heads divide heads.
        v: as k.
        causal: whether row i sees only keys up to i; the lengths are equal then.
        scale: of the scores; one over the root of the dimension unless given.

    Raises:
        BadArgument: shapes, types or devices do not fit.
    """
    problem = problem_of(q, k, v, causal=causal, scale=scale)
    o: torch.Tensor = _Attention.apply(q, k, v, problem)
    return o


class _Attention(torch.autograd.Function):
    """Keeps O and one number per row; scores are computed again."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> torch.Tensor:
        """Compute O."""
        *inputs, problem = arguments
        q, k, v = (aligned(x) for x in inputs)
        tuned = configuration_of(q, causal=problem.causal)
        with torch.cuda.device_of(q):
            if tuned is None:
                o, lse = portable.forward(q, k, v, problem)
            else:
                o, lse = hopper().forward(q, k, v, problem, tuned)
        ctx.save_for_backward(q, k, v, o, lse)
        ctx.problem = problem
        return o

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Compute dQ, dK and dV."""
        *inputs, o, lse = ctx.saved_tensors
        do = aligned(gradients[0])
        tuned = configuration_of(do, causal=ctx.problem.causal)
        with torch.cuda.device_of(do):
            sums = (lse, portable.row_products(o, do, ctx.problem))
            if tuned is None:
                derivatives = portable.backward(inputs, do, sums, ctx.problem)
            else:
                derivatives = hopper().backward(inputs, do, sums, ctx.problem, tuned)
        return (*derivatives, None)


def configuration_of(q: torch.Tensor, *, causal: bool) -> Configuration | None:
    """Return how the Hopper kernels run, or nothing where they cannot."""
    if not q.is_cuda or q.dtype == torch.float32:
        return None
    name, capability = _device(q.device.index)
    if capability != HOPPER:
        return None
    return configuration_for(name, Case(q.shape[3], causal=causal))


def hopper() -> Any:
    """Import what only Hopper needs."""
    return importlib.import_module("gpupack_workloads.kernels.attention.hopper.launch")


@cache
def _device(index: int) -> tuple[str, tuple[int, int]]:
    return torch.cuda.get_device_name(index), torch.cuda.get_device_capability(index)
