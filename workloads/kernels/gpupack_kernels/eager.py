# SPDX-License-Identifier: Apache-2.0
"""Calls past torch's dispatcher, which takes an operator's call some 100 us of Python.

Rule: a function whose calls bypass the dispatcher is one that each layer of a transformer calls in
a training step: `attention`, `gemm`, `gemms`, `rms_norm`, `rotary`, `swiglu`. A step makes hundreds
of these calls, and the GPU takes about as long for many of them: the host would not keep up. All
other functions are torch operators in every call, since 100 us more are little next to a step.

Where a tool such as torch.compile must see operators, no call bypasses the dispatcher.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode

PLAIN = (torch.Tensor, torch.nn.Parameter)


def sees_operators(*tensors: torch.Tensor) -> bool:
    """Return whether a tool must see an operator, and not what it is made of.

    torch.compile, a mode such as that of fake tensors or of a counter, a subclass such as DTensor.
    """
    if torch.compiler.is_compiling() or _get_current_dispatch_mode() is not None:
        return True
    return any(type(tensor) not in PLAIN or tensor.is_meta for tensor in tensors)


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
            """Keep what the gradients need; an unused result has no gradient to fill."""
            ctx.set_materialize_grads(False)
            keep(ctx, inputs, output)

        @staticmethod
        def backward(ctx: Any, *gains: Any) -> Any:
            """Return a gradient, or None, for each input."""
            # Recorded gradients may be differentiated; and autograd can be compiled, too.
            seen = torch.is_grad_enabled() or sees_operators()
            return (by_operators if seen else gradients)(ctx, *gains)

    function: Callable[..., Any] = Computed.apply
    return function
