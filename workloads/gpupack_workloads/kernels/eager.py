# SPDX-License-Identifier: Apache-2.0
"""Calls past torch's dispatcher, which takes an operator's call some 100 us of Python.

That is as long as the GPU takes for many of these kernels: the host would not keep up. So where
torch compiles, which must see operators, operators are called, and else the same functions.
"""

from collections.abc import Callable
from typing import Any

import torch


def past_dispatcher(
    compute: Callable[..., Any],
    keep: Callable[..., None],
    gradients: Callable[..., Any],
    *,
    by_operators: Callable[..., Any],
) -> Callable[..., Any]:
    """Return a function that computes, and is differentiable once.

    Args:
        compute: tensors and plain values to a tensor or a tuple of them.
        keep: as `setup_context` of torch.library.
        gradients: as `backward` of torch.library; calls no operator.
        by_operators: the same by operators. It is for gradients that may be differentiated again:
            these have none, and say so.
    """

    class Computed(torch.autograd.Function):
        """One call."""

        @staticmethod
        def forward(*inputs: Any) -> Any:
            """Compute."""
            return compute(*inputs)

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
            """Keep what the gradients need; a result that nobody uses has no gradient to fill."""
            ctx.set_materialize_grads(False)
            keep(ctx, inputs, output)

        @staticmethod
        def backward(ctx: Any, *gains: Any) -> Any:
            """Return a gradient, or None, for each input."""
            # Gradients are recorded where they may be differentiated.
            return (by_operators if torch.is_grad_enabled() else gradients)(ctx, *gains)

    function: Callable[..., Any] = Computed.apply
    return function
