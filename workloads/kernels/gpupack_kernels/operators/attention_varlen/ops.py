# SPDX-License-Identifier: Apache-2.0
"""Attention over packed sequences as torch calls it: an operator, with its gradient.

The gradient is an operator that has none itself, so that a second derivative is an error and not a
wrong number.
"""

from typing import Any

import torch

from gpupack_kernels.casts import as_product
from gpupack_kernels.devices import device_of
from gpupack_kernels.operators.attention.problem import aligned
from gpupack_kernels.operators.attention_varlen import launch
from gpupack_kernels.operators.attention_varlen.problem import problem_of

Three = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def attention_varlen(  # noqa: PLR0913  in the order in which others have them
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    *,
    causal: bool = False,
    scale: float | None = None,
) -> torch.Tensor:
    """Return softmax(Q K' scale) V of each sequence, packed as q. Differentiable once.

    Rows that see no key are zero, and so are rows that belong to no sequence and their gradients.
    Under torch.autocast q, k and v are cast first.

    Args:
        q: (tokens, heads, dimension), the dimension a multiple of 16 up to 256; one sequence's
            tokens behind the other's.
        k: (tokens, key heads, dimension); key heads divide heads.
        v: as k.
        cu_seqlens_q: (sequences + 1), int32 or int64: where each sequence begins in q, and where
            the last one ends. A sequence may be empty.
        cu_seqlens_k: as that, of k and v.
        causal: whether the last row of a sequence sees all of its keys, the one before it all but
            one, and so on: with as many keys as rows, row i sees keys up to i.
        scale: scale of the scores; one over the root of the dimension unless given.

    Raises:
        Unsupported: shapes, types or devices do not fit, or the GPU has too little shared memory.
    """
    q, k, v = as_product(q, k, v)
    offsets = [cu_seqlens_q, cu_seqlens_k]
    problem = problem_of((q, k, v), offsets, causal=causal, scale=scale)
    o: torch.Tensor = _forward(q, k, v, offsets, causal, problem.scale)[0]
    return o


@torch.library.custom_op("gpupack::attention_varlen", mutates_args=())
def _forward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    offsets: list[torch.Tensor],
    causal: bool,  # noqa: FBT001  an operator's arguments have no names
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return O and each row's log-sum-exp2 of scaled scores."""
    problem = problem_of((q, k, v), offsets, causal=causal, scale=scale)
    with device_of(q):
        return launch.forward((aligned(q), aligned(k), aligned(v)), _readable(offsets), problem)


@torch.library.custom_op("gpupack::attention_varlen_backward", mutates_args=())
def _backward(
    inputs: list[torch.Tensor],
    outputs: list[torch.Tensor],
    do: torch.Tensor,
    causal: bool,  # noqa: FBT001
    scale: float,
) -> Three:
    """Return dQ, dK and dV, given what `_forward` took and returned."""
    q, k, v, *offsets = inputs
    problem = problem_of((q, k, v), offsets, causal=causal, scale=scale)
    o, lse = outputs
    with device_of(q):
        return launch.backward(
            (aligned(q), aligned(k), aligned(v)),
            _readable(offsets),
            (o, aligned(do), lse),
            problem,
        )


@_forward.register_fake
def _(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    offsets: list[torch.Tensor],
    causal: bool,  # noqa: FBT001
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    problem = problem_of((q, k, v), offsets, causal=causal, scale=scale)
    return q.new_empty(q.shape), launch.empty_sums(problem, q.device)


@_backward.register_fake
def _(
    inputs: list[torch.Tensor],
    outputs: list[torch.Tensor],  # noqa: ARG001
    do: torch.Tensor,  # noqa: ARG001
    causal: bool,  # noqa: ARG001, FBT001
    scale: float,  # noqa: ARG001
) -> Three:
    dq, dk, dv = (x.new_empty(x.shape) for x in inputs[:3])
    return dq, dk, dv


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, torch.Tensor]) -> None:
    *qkv, offsets, ctx.causal, ctx.scale = inputs
    ctx.save_for_backward(*qkv, *offsets, *output)


def _gradient(
    ctx: Any, do: torch.Tensor, _: torch.Tensor | None
) -> tuple[torch.Tensor | list[None] | None, ...]:
    *given, o, lse = ctx.saved_tensors
    of_qkv = _backward(given, [o, lse], do, ctx.causal, ctx.scale)
    return (*of_qkv, [None, None], None, None)


_forward.register_autograd(_gradient, setup_context=_keep)


def _readable(offsets: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return offsets as the kernels read them: tokens of a pack are fewer than 2^31."""
    of_q, of_k = (each.int().contiguous() for each in offsets)
    return of_q, of_k
