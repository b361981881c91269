# SPDX-License-Identifier: Apache-2.0
"""The softmax that others use: an operator of torch's, with its gradient.

A custom operator is what torch.compile, activation checkpointing and fake tensors take as it is,
without a look inside: no graph breaks, and nothing is fused into it. The gradient is an operator
that has none itself, so that a second derivative is an error and not a wrong number.
"""

from typing import Any

import torch

from gpupack_kernels.casts import as_sum
from gpupack_kernels.operators.softmax import launch


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Return softmax over the last dimension, in the type of x, computed in 32 bits.

    Differentiable once. Under torch.autocast x is cast to 32 bits first.

    Raises:
        Unsupported: the type or the device does not fit, or x is a single number.
    """
    launch.check(x)
    (x,) = as_sum(x)
    y: torch.Tensor = _forward(x)
    return y


@torch.library.custom_op("gpupack::softmax", mutates_args=())
def _forward(x: torch.Tensor) -> torch.Tensor:
    return launch.forward(x)


@torch.library.custom_op("gpupack::softmax_backward", mutates_args=())
def _backward(y: torch.Tensor, dy: torch.Tensor) -> torch.Tensor:
    return launch.backward(y, dy)


@_forward.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return x.new_empty(x.shape)


@_backward.register_fake
def _(y: torch.Tensor, dy: torch.Tensor) -> torch.Tensor:  # noqa: ARG001
    return y.new_empty(y.shape)


def _keep(ctx: Any, inputs: tuple[torch.Tensor], output: torch.Tensor) -> None:  # noqa: ARG001
    """Keep y alone: dx = y (dy - y.dy)."""
    ctx.save_for_backward(output)


def _gradient(ctx: Any, dy: torch.Tensor) -> torch.Tensor:
    (y,) = ctx.saved_tensors
    dx: torch.Tensor = _backward(y, dy)
    return dx


_forward.register_autograd(_gradient, setup_context=_keep)
